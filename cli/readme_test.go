package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/tools/golden"
	"github.com/vprof/vprof/tools/sample"
)

// consoleBlock is a block of a page that shows a command and its output.
var consoleBlock = regexp.MustCompile("(?s)```console\n\\$ vprof ([^\n]*)\n.*?```\n")

// The README and the guide show what their commands really print.
func TestPagesShowWhatCommandsPrint(t *testing.T) {
	sample.Alone(t)
	for _, path := range []string{"../README.md", "../docs/guide.md"} {
		page, err := os.ReadFile(path)
		require.NoError(t, err)
		blocks := 0
		current := consoleBlock.ReplaceAllFunc(page, func(block []byte) []byte {
			blocks++
			line := string(consoleBlock.FindSubmatch(block)[1])
			a := newSystemApp()
			var out bytes.Buffer
			a.stdout = &out
			require.Equal(t, exitFine, run(t.Context(), a, strings.Fields(line)), line)
			return []byte("```console\n$ vprof " + line + "\n" + out.String() + "```\n")
		})
		require.Positive(t, blocks, path)
		golden.Equal(t, path, current)
	}
}

// Whoever meets the project reads the README to its end.
func TestTheREADMEIsShort(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	require.LessOrEqual(t, len(strings.Fields(string(readme))), 1000)
}

// flagName finds the name of a flag at the beginning of a line.
var flagName = regexp.MustCompile(`^--([A-Za-z][\w-]*)`)

// pageCode finds the code of a page: in blocks and within lines.
var pageCode = regexp.MustCompile("(?s)```[a-z]*\n(.*?)```|`([^`]+)`")

// foreignFlags are flags of other programs that pages name: trainers, schedulers, podman and vprof's Python tools.
var foreignFlags = strings.Fields("as-recorded config config_file dummy exclude fsdp_config mem num_processes " +
	"read-only sample tmpfs use_fsdp zero_stage")

// documents returns the pages for users and the laboratory's.
func documents(t *testing.T) (pages []string) {
	for _, pattern := range []string{"../docs/*.md", "../docs/lab/*.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, found)
		pages = append(pages, found...)
	}
	return pages
}

// skillFile tells agents how to use vprof; the wheel has it, too.
const skillFile = "../python/vprof_gpu/SKILL.md"

// Commands and flags that pages name exist: flags of "vprof VERB ..." for that verb, flags alone for any verb.
func TestCommandsAndFlagsOfPagesExist(t *testing.T) {
	pages := documents(t)
	root := newRootCmd(newSystemApp())
	root.InitDefaultHelpCmd()
	for _, path := range append(pages, "../README.md", "../ARCHITECTURE.md", "../CONTRIBUTING.md", skillFile) {
		page, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, code := range pageCode.FindAllSubmatch(page, -1) {
			for line := range strings.SplitSeq(string(code[1])+string(code[2]), "\n") {
				checkCommand(t, root, line, path)
				if name := flagName.FindStringSubmatch(line); name != nil &&
					!hasFlag(root, name[1]) && !slices.Contains(foreignFlags, name[1]) {
					t.Errorf("%s: no command has the flag --%s", path, name[1])
				}
			}
		}
	}
}

// checkCommand checks the command line of vprof in a line of code, if there is one: after "vprof", or a verb with
// flags.
func checkCommand(t *testing.T, root *cobra.Command, line, where string) {
	_, after, found := strings.Cut(" "+strings.TrimPrefix(line, "$ "), " vprof ")
	if !found {
		verb, _, withFlags := strings.Cut(line, " --")
		if cmd, rest, err := root.Find(strings.Fields(verb)); !withFlags || err != nil || cmd == root || len(rest) > 0 {
			return
		}
		after = line
	}
	line, _, _ = strings.Cut(after, " #")
	var words []string
	for word := range strings.FieldsSeq(line) {
		if word == "--" || word == "|" || word == "&&" || strings.HasPrefix(word, ">") {
			break
		}
		words = append(words, strings.TrimRight(word, ";,)"))
	}
	cmd, rest, err := root.Find(words)
	require.NoError(t, err, "%s: %s", where, line)
	if cmd == root && len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		t.Errorf("%s: no command %q", where, words[0])
	}
	for _, word := range rest {
		if name, isFlag := strings.CutPrefix(word, "--"); isFlag {
			name, _, _ = strings.Cut(name, "=")
			known := cmd.Flags().Lookup(name) != nil || cmd.InheritedFlags().Lookup(name) != nil
			if !known && name != "help" {
				t.Errorf("%s: vprof %s has no flag %s", where, cmd.Name(), word)
			}
		}
	}
}

// hasFlag reports whether a command or one below it has a flag.
func hasFlag(cmd *cobra.Command, name string) bool {
	return cmd.Flags().Lookup(name) != nil || cmd.PersistentFlags().Lookup(name) != nil ||
		slices.ContainsFunc(cmd.Commands(), func(sub *cobra.Command) bool { return hasFlag(sub, name) })
}

var (
	// link is a link of a page to a file of the repository, and to a heading there.
	link = regexp.MustCompile(`\]\(([^):#]*)(?:#([^):]*))?\)`)
	// heading is a heading of a page.
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

func TestLinksOfPagesLeadToFiles(t *testing.T) {
	for _, path := range append(documents(t), "../README.md", "../ARCHITECTURE.md", "../CONTRIBUTING.md") {
		for _, to := range link.FindAllStringSubmatch(readPage(t, path), -1) {
			file := path
			if to[1] != "" {
				file = filepath.Join(filepath.Dir(path), to[1])
			}
			_, err := os.Stat(file)
			require.NoError(t, err, path)
			if to[2] != "" {
				require.Contains(t, anchors(readPage(t, file)), to[2], "%s: %s", path, to[0])
			}
		}
	}
}

// anchors returns the names of a page's headings in links, as GitHub and the site make them.
func anchors(page string) (names []string) {
	outside := regexp.MustCompile(`[^\w\- ]`)
	for _, found := range heading.FindAllStringSubmatch(codeOfPages.ReplaceAllString(page, ""), -1) {
		names = append(names, strings.ReplaceAll(outside.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-"))
	}
	return names
}
