package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// colorChoice is the value of --color; empty is auto.
type colorChoice string

var colorChoices = []string{"auto", "always", "never"}

// String implements pflag.Value.
func (c *colorChoice) String() string {
	if *c == "" {
		return "auto"
	}
	return string(*c)
}

// Set implements pflag.Value.
func (c *colorChoice) Set(s string) error {
	if !slices.Contains(colorChoices, s) {
		return fmt.Errorf("use %s", strings.Join(colorChoices, ", "))
	}
	*c = colorChoice(s)
	return nil
}

// Type implements pflag.Value.
func (*colorChoice) Type() string { return "when" }

// colored reports whether tables on standard output are in color. NO_COLOR and a
// dumb terminal turn it off, unless the command line insists.
func (a *app) colored() bool {
	switch a.color {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && a.interactive()
}

// interactive reports whether standard output is a terminal that can do more
// than print.
func (a *app) interactive() bool { return terminal(a.stdout) }

func terminal(w io.Writer) bool {
	out, isFile := w.(*os.File)
	return isFile && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(out.Fd()))
}
