package cli

import (
	"cmp"
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vprof/vprof/models"
)

// Limits of --help, so that it fits on a screen.
const (
	defaultHelpWidth  = 80
	maxShownFlags     = 15
	maxParagraphLines = 7
	maxExampleLines   = 6
)

const helpAllFlag = "help-all"

// verbFlags are the flags that are not fields of a case, with their groups. Main flags come
// first in help, in this order, before the main fields of cases.
var verbFlags = func() (all []models.Field) {
	for _, row := range []struct {
		names string
		group models.Group
		main  bool
	}{
		{"model batch", models.GroupWhat, true},
		{"gpu", models.GroupWhere, true},
		{"to format export output", models.GroupOutput, true},
		{"auto", models.GroupWhere, true},
		{"levers", models.GroupHow, true},
		{"dataset-size epochs price", models.GroupWhat, true},
		{"apply", models.GroupOutput, true},
		{"set lengths batching pad-to-multiple-of", models.GroupWhat, false},
		{"gpu-memory gpu-spec device profile link rank", models.GroupWhere, false},
		{"wide color quiet page request dry-run config-path map into shard", models.GroupOutput, false},
		{"activation-memory-budget inductor-cache print-hook print-script triton verbose", models.GroupHow, false},
	} {
		for name := range strings.FieldsSeq(row.names) {
			all = append(all, models.Field{Name: name, Group: row.group, IsMain: row.main})
		}
	}
	return all
}()

// flagIndex returns the row of a flag, or -1. Flags of a case's fields are only in the fields' table, because
// another verb's flag of the same name may mean something else.
func flagIndex(table []models.Field, flag *pflag.Flag) int {
	if _, ofCase := flag.Value.(*fieldFlag); ofCase && &table[0] == &verbFlags[0] {
		return -1
	}
	return slices.IndexFunc(table, func(f models.Field) bool { return f.Name == flag.Name })
}

// groupOf returns the group of a flag; flags outside of the tables belong to the verb's options.
func groupOf(flag *pflag.Flag) models.Group {
	for _, table := range [][]models.Field{verbFlags, models.Fields()} {
		if i := flagIndex(table, flag); i >= 0 {
			return table[i].Group
		}
	}
	return models.GroupHow
}

// helpOrder returns the position of a flag in help: main flags of all verbs, main fields of a case, the verb's own
// flags, others.
func helpOrder(flag *pflag.Flag) int {
	rank := 0
	for _, table := range [][]models.Field{verbFlags, models.Fields()} {
		i := flagIndex(table, flag)
		switch {
		case i >= 0 && table[i].IsMain:
			return rank + i
		case i >= 0:
			return len(verbFlags) + len(models.Fields()) + 1
		}
		rank += len(table)
	}
	return rank
}

// help writes the help of a command: short enough for a screen, or whole.
type help struct {
	to    io.Writer
	width int
	all   bool
}

// newHelp returns help as wide as the terminal or COLUMNS.
func newHelp(a *app, all bool) help {
	return help{to: a.stdout, width: max(cmp.Or(a.width(), defaultHelpWidth), 40), all: all}
}

func (h help) write(cmd *cobra.Command) {
	fmt.Fprintf(h.to, "%s\n\nUsage:\n  %s\n", h.about(cmd), cmd.UseLine())
	if example := h.example(cmd); example != "" {
		fmt.Fprintf(h.to, "\nExamples:\n%s\n", example)
	}
	if subs := available(cmd); len(subs) > 0 {
		fmt.Fprintln(h.to, "\nCommands:")
		for _, sub := range subs {
			fmt.Fprintf(h.to, "  %-*s %s\n", cmd.NamePadding(), sub.Name(), sub.Short)
		}
	}
	shown, more := h.chosen(cmd)
	for _, group := range []models.Group{models.GroupWhat, models.GroupWhere, models.GroupHow, models.GroupOutput} {
		h.group(group, shown)
	}
	if more > 0 {
		fmt.Fprintf(h.to, "\n%d more flags and the full help: %s --%s\n", more, cmd.CommandPath(), helpAllFlag)
	}
}

// about returns the description of a command, or its first paragraph.
func (h help) about(cmd *cobra.Command) string {
	text := strings.TrimSpace(cmd.Long)
	text = cmp.Or(text, cmd.Short+".")
	if h.all {
		return h.wrapParagraphs(text)
	}
	first, _, _ := strings.Cut(text, "\n\n")
	if before, ok := strings.CutSuffix(first, ":"); ok { // of a list that is not shown
		first = before + "."
	}
	if first = h.wrapParagraphs(first); strings.Count(first, "\n") >= maxParagraphLines {
		return cmd.Short + "."
	}
	return first
}

// wrapParagraphs wraps paragraphs to the width, except lists, which have indented lines.
func (h help) wrapParagraphs(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		if !strings.Contains("\n"+p, "\n ") {
			paragraphs[i] = strings.Join(wrapText(p, h.width), "\n")
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// example returns the examples of a command: all, or in short help the first ones.
func (h help) example(cmd *cobra.Command) string {
	text := strings.Trim(cmd.Example, "\n")
	if h.all {
		return text
	}
	var lines []string
	for part := range strings.SplitSeq(text, "\n\n") {
		more := strings.Split(part, "\n")
		if len(lines) > 0 {
			more = append([]string{""}, more...)
		}
		if len(lines) > 0 && len(lines)+len(more) > maxExampleLines {
			break
		}
		lines = append(lines, more...)
	}
	return strings.Join(lines, "\n")
}

// available returns the visible subcommands of a command.
func available(cmd *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(cmd.Commands()), func(sub *cobra.Command) bool {
		return !sub.IsAvailableCommand()
	})
}

// chosen returns the flags that the help shows, and the number of hidden ones.
func (h help) chosen(cmd *cobra.Command) (shown []*pflag.Flag, more int) {
	cmd.InitDefaultHelpFlag()
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" && f.Name != helpAllFlag {
			shown = append(shown, f)
		}
	})
	if h.all || len(shown) <= maxShownFlags {
		return shown, 0
	}
	slices.SortStableFunc(shown, func(a, b *pflag.Flag) int { return helpOrder(a) - helpOrder(b) })
	return shown[:maxShownFlags], len(shown) - maxShownFlags
}

func (h help) group(group models.Group, flags []*pflag.Flag) {
	var names, usages []string
	indent := 0
	for _, f := range flags {
		if groupOf(f) != group {
			continue
		}
		name, usage := nameAndUsage(f)
		names, usages = append(names, name), append(usages, usage)
		indent = max(indent, len(name)+2)
	}
	if len(names) == 0 {
		return
	}
	indent = min(indent, h.width/2)
	fmt.Fprintf(h.to, "\n%s:\n", group)
	for i, name := range names {
		lines := wrapText(usages[i], h.width-indent)
		if !h.all {
			lines = []string{briefUsage(usages[i], h.width-indent)}
		}
		if len(name)+2 > indent {
			fmt.Fprintln(h.to, name)
			name = ""
		}
		for _, line := range lines {
			fmt.Fprintf(h.to, "%-*s%s\n", indent, name, line)
			name = ""
		}
	}
}

// nameAndUsage returns a flag with the name of its value, and what it does.
func nameAndUsage(f *pflag.Flag) (name, usage string) {
	value, usage := pflag.UnquoteUsage(f)
	name = "  --" + f.Name
	if f.Shorthand != "" {
		name = "  -" + f.Shorthand + ", --" + f.Name
	}
	if value != "" {
		name += " " + value
	}
	if !slices.Contains([]string{"", "0", "false", "[]"}, f.DefValue) && !strings.Contains(usage, "default") {
		usage += " (default: " + f.DefValue + ")"
	}
	return name, usage
}

// briefUsage shortens a text to a line: to its last complete clause or, if that is too short, at a word.
func briefUsage(text string, width int) string {
	if len(text) <= width {
		return text
	}
	best := 0
	for _, stop := range []string{"; ", ": ", " ("} {
		best = max(best, strings.LastIndex(text[:width], stop))
	}
	if best < width/3 {
		return wrapText(text, width-1)[0] + "…"
	}
	if open := strings.LastIndex(text[:best], "("); open > strings.LastIndex(text[:best], ")") {
		best = len(strings.TrimRight(text[:open], " "))
	}
	return text[:best]
}

func wrapText(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimLeft(line+" "+word, " ")
	}
	return append(lines, line)
}

// pages holds the long help of commands with their examples: help/fleet-run.txt for "vprof fleet run".
//
//go:embed help
var pages embed.FS

// addPages adds the pages to a root command and its subcommands. It replaces {shards} and others by text that
// several pages share, such as help/part-shards.txt, or by lists.
func addPages(root *cobra.Command) {
	parts := strings.NewReplacer("{lengths}", pageText("part-lengths"), "{shards}", pageText("part-shards"), "{trust}",
		pageText("part-trust"), "{types}", hfTypes(), "{agent tools}", strings.Join(agentTools, ", "))
	var add func(cmd *cobra.Command)
	add = func(cmd *cobra.Command) {
		name := strings.ReplaceAll(strings.TrimPrefix(cmd.CommandPath(), root.Name()+" "), " ", "-")
		if text := pageText(name); text != "" {
			cmd.Long, cmd.Example, _ = strings.Cut(text, "\n\nExamples:\n")
			cmd.Long = parts.Replace(cmd.Long)
		} else if page := generatedPages[name]; page != nil {
			cmd.Long = page()
		}
		for _, sub := range cmd.Commands() {
			add(sub)
		}
	}
	add(root)
}

// pageText returns the text of a page; empty for commands whose short help is enough.
func pageText(name string) string {
	text, err := pages.ReadFile("help/" + name + ".txt")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(text), "\n")
}

// newTopics returns help pages without a command.
func newTopics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "environment", Short: "Environment variables and files"},
		{Use: "exit-codes", Short: "Exit codes of vprof"},
		{Use: "formats", Short: "Output formats"},
		{Use: "gpu-spec", Short: "Describe a GPU that the catalog lacks"},
		{Use: "trainers", Short: "Plan from a trainer's configuration"},
		{Use: "strategies", Short: "Strategies for several GPUs"},
		{Use: "options", Short: "Options of --set"},
		{Use: "conflicts", Short: "Options that cannot be combined"},
		{Use: "units", Short: "Units and counts of memory"},
	}
}

// generatedPages are the topics whose pages are made when they are shown.
var generatedPages = map[string]func() string{"options": optionsPage, "conflicts": conflictsPage}

// optionsPage lists the options without a flag of their own.
func optionsPage() string {
	text := "Rarely used options have no flag: set each with --set NAME=VALUE. In files of a fleet they are ordinary " +
		"keys."
	for _, f := range models.Fields() {
		if f.SetOnly {
			text += fmt.Sprintf("\n\n%s: %s.", f.Name, strings.ReplaceAll(f.Help(nil), "`", ""))
		}
	}
	return text
}

// conflictsPage lists what does not go together, by the option to change.
func conflictsPage() string {
	text := "Each line names what an option cannot be combined with, and the error. Names in braces stand for values."
	last := ""
	for _, c := range models.Conflicts() {
		if c.Field != last {
			text, last = text+"\n\n"+c.Field, c.Field
		}
		for i, line := range wrapText("- "+c.ExcludedBy+": "+c.Reason, defaultHelpWidth-4) {
			text += "\n  " + strings.Repeat("  ", min(i, 1)) + line
		}
	}
	return text
}
