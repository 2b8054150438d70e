package cli

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// referenceVariable names the folder in which `make docs` keeps the command reference.
const referenceVariable = "VPROF_DOCS"

// Every command has a page in Markdown (cli) and a man page (man) that name all its flags.
func TestCommandReferenceIsGenerated(t *testing.T) {
	folder := cmp.Or(os.Getenv(referenceVariable), t.TempDir())
	root := newRootCmd(newSystemApp())
	addPages(root)
	root.InitDefaultCompletionCmd()
	root.DisableAutoGenTag = true
	epoch := time.Unix(0, 0).UTC() // the same pages from the same commands
	write := func(kind, name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(folder, kind), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, kind, name), []byte(text), 0o644))
	}
	sections := manSections(t)
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() && cmd.HasParent() {
			return // help topics and hidden commands
		}
		var markdown, man strings.Builder
		link := func(file string) string { return file }
		require.NoError(t, doc.GenMarkdownCustom(cmd, &markdown, link))
		require.NoError(t, doc.GenMan(cmd,
			&doc.GenManHeader{Section: "1", Source: "vprof", Manual: "vprof", Date: &epoch}, &man))
		man.WriteString(sections)
		for _, flag := range flagNames(cmd) {
			require.Contains(t, markdown.String(), flag, cmd.CommandPath())
			require.Contains(t, strings.ReplaceAll(man.String(), `\-`, "-"), flag, cmd.CommandPath())
		}
		write("cli", strings.ReplaceAll(cmd.CommandPath(), " ", "_")+".md", markdown.String())
		write("man", strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1", man.String())
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

func TestEveryCommandSaysWhatItDoesAndHow(t *testing.T) {
	root := newRootCmd(newSystemApp())
	addPages(root)
	for _, cmd := range root.Commands() {
		require.NotEmpty(t, cmd.Short, cmd.Name())
		require.False(t, strings.HasSuffix(cmd.Short, "."), "%s: short help is no sentence", cmd.Name())
		if cmd.Runnable() && cmd.Flags().Lookup("model") != nil {
			require.NotEmpty(t, cmd.Example, cmd.Name())
		}
	}
}

func TestEveryCommandReadsWholeNumbersAsPeopleWriteThem(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if kind := f.Value.Type(); kind == "int" || kind == "int64" {
				require.IsType(t, integerFlag{}, f.Value, "%s --%s", cmd.CommandPath(), f.Name)
			}
		})
		for _, below := range cmd.Commands() {
			walk(below)
		}
	}
	walk(newRootCmd(newSystemApp()))
}

// manSections returns the sections that all man pages have in common, from the pages of the help.
func manSections(t *testing.T) string {
	_, exits, found := strings.Cut(pageText("exit-codes"), "\n\n")
	require.True(t, found)
	_, environment, found := strings.Cut(pageText("environment"), "\nEnvironment:\n\n")
	require.True(t, found)
	environment, files, found := strings.Cut(environment, "\nFiles:\n\n")
	require.True(t, found)
	var all strings.Builder
	for _, section := range [][2]string{{"EXIT STATUS", exits}, {"ENVIRONMENT", environment}, {"FILES", files}} {
		text := strings.ReplaceAll(strings.ReplaceAll(section[1], `\`, `\e`), "-", `\-`)
		all.WriteString(".SH " + section[0] + "\n.nf\n" + strings.ReplaceAll("\n"+text, "\n.", "\n\\&.")[1:] +
			"\n.fi\n")
	}
	return all.String()
}

// The page on the environment names every setting, and every variable that it names is read somewhere.
func TestTheEnvironmentIsDocumented(t *testing.T) {
	page := pageText("environment")
	for _, name := range settings {
		require.Contains(t, page, "VPROF_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
	}
	var code strings.Builder
	for _, folder := range []string{".", "../internal", "../bench", "../models", "../profiler"} {
		require.NoError(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				code.WriteString(readPage(t, path))
			}
			return err
		}))
	}
	standard := []string{"XDG_CONFIG_HOME"} // [os.UserConfigDir] reads it
	for _, name := range regexp.MustCompile(`\b[A-Z]+_[A-Z_]+\b`).FindAllString(page, -1) {
		if setting := strings.TrimPrefix(name, "VPROF_"); setting != name &&
			slices.Contains(settings, strings.ToLower(strings.ReplaceAll(setting, "_", "-"))) {
			continue
		}
		require.True(t, strings.Contains(code.String(), name) || slices.Contains(standard, name), name)
	}
}
