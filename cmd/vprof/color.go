package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// colorChoices are the values of --color.
var colorChoices = []string{"auto", "always", "never"}

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
