package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// moved are the verbs that are called otherwise today: the old name, the words that stand
// in its place, and what a message calls those. docs/moving.md lists them.
var moved = []struct {
	old  string
	new  []string
	name string
}{
	{"export", []string{"report", "--output", "-"}, "report --to"},
	{"plot", []string{"report", "--output", "plot.svg"}, "report --to batch, breakdown or timeline"},
	{"merge", []string{"fleet", "merge"}, "fleet merge"},
	{"coefficients show", []string{"calibrate", "show"}, "calibrate show"},
	{"coefficients diff", []string{"calibrate", "diff"}, "calibrate diff"},
	{"cudnn ask", []string{"capture", "ask"}, "capture ask"},
}

// addMoved adds commands under the old names, which no list and no completion shows.
func addMoved(root *cobra.Command) {
	for _, m := range moved {
		at := root
		for name := range strings.FieldsSeq(m.old) {
			known := slices.IndexFunc(at.Commands(), func(c *cobra.Command) bool { return c.Name() == name })
			if known < 0 {
				at.AddCommand(&cobra.Command{
					Use: name, Short: "Moved, see docs/moving.md", Hidden: true,
					DisableFlagParsing: true,
				})
				known = slices.IndexFunc(at.Commands(), func(c *cobra.Command) bool { return c.Name() == name })
			}
			at = at.Commands()[known]
		}
	}
}

// renamed puts today's words in the place of an old name, and says so.
func renamed(root *cobra.Command, stderr io.Writer, args []string) []string {
	asked, words := []string(nil), args
	if len(args) > 0 && args[0] == "help" {
		asked, words = args[:1], args[1:]
	}
	cmd, rest, err := root.Find(words)
	if err != nil {
		return args
	}
	for _, m := range moved {
		if cmd.CommandPath() != root.Name()+" "+m.old {
			continue
		}
		fmt.Fprintf(stderr, "vprof: %q is now %q\n", root.Name()+" "+m.old, root.Name()+" "+m.name)
		if asked != nil {
			return append(asked, m.new[0])
		}
		return slices.Concat(m.new, rest)
	}
	return args
}
