package main

import (
	"fmt"
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

// colored tells whether tables on standard output are in color. NO_COLOR and a
// dumb terminal turn it off, unless the command line insists.
func (a *app) colored() bool {
	switch a.color {
	case "always":
		return true
	case "never":
		return false
	}
	out, isFile := a.stdout.(*os.File)
	return isFile && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(out.Fd()))
}
