// Package phrase builds sentences from optional parts.
package phrase

import "fmt"

// If returns a text, formatted by [fmt.Sprintf], if holds is true, and else an empty text. The arguments are evaluated
// in both cases.
func If(holds bool, format string, args ...any) string {
	if !holds {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// Prefix returns a text after a prefix, and nothing if the text is empty.
func Prefix(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// IfKnown returns a formatted value, and nothing if it is nil.
func IfKnown[T any](format string, value *T) string {
	if value == nil {
		return ""
	}
	return fmt.Sprintf(format, *value)
}

// CountText returns a number of things: "1 file", "2 files".
func CountText(n int, unit string) string { return fmt.Sprintf("%d %s%s", n, unit, If(n != 1, "s")) }

// List holds texts in order: notes below a table, options of a flag.
type List []string

// Add adds a formatted text.
func (l *List) Add(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

// If adds a formatted text if holds is true. The arguments are evaluated in both cases.
func (l *List) If(holds bool, format string, args ...any) {
	if holds {
		l.Add(format, args...)
	}
}

// AddTexts adds texts, without empty ones.
func (l *List) AddTexts(texts ...string) {
	for _, text := range texts {
		l.If(text != "", "%s", text)
	}
}

// Example adds a sentence about things, if any. The format has a verb for their number and one for the first.
func (l *List) Example(format, unit string, things []string) {
	if n := len(things); n > 0 {
		l.Add(format, CountText(n, unit), things[0])
	}
}
