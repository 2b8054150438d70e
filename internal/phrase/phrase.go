// Package phrase makes sentences of parts, each of which stands there under a condition.
package phrase

import "fmt"

// If returns a text, formatted as by [fmt.Sprintf], if a condition holds, and an empty one otherwise. The arguments are
// evaluated in both cases.
func If(holds bool, format string, args ...any) string {
	if !holds {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// After returns a text behind a prefix, and nothing if the text is empty.
func After(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// Count returns a number of things: "1 file", "2 files".
func Count(n int, unit string) string { return fmt.Sprintf("%d %s%s", n, unit, If(n != 1, "s")) }

// Lines are sentences, a line each.
type Lines []string

// Add adds a line.
func (l *Lines) Add(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

// If adds a line if a condition holds. The arguments are evaluated in both cases.
func (l *Lines) If(holds bool, format string, args ...any) {
	if holds {
		l.Add(format, args...)
	}
}

// Text adds lines that are not empty.
func (l *Lines) Text(lines ...string) {
	for _, line := range lines {
		l.If(line != "", "%s", line)
	}
}

// Such adds a line about things, if there are any: how many, and the first as an example. The format has a verb for
// each of the two.
func (l *Lines) Such(format, unit string, things []string) {
	if n := len(things); n > 0 {
		l.Add(format, Count(n, unit), things[0])
	}
}
