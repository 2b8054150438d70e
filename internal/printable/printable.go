// Package printable makes text from files and other programs safe to show: on a
// terminal, in a spreadsheet, in Markdown.
package printable

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// Text writes out what a terminal would obey instead of show: control
// characters, and those that change the direction of what follows or end a line
// elsewhere than on it. Line breaks and tabs stay.
func Text(s string) string {
	if strings.IndexFunc(s, obeyed) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !obeyed(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Fprintf is [fmt.Fprintf] for a terminal: the format may hold what the terminal obeys,
// arguments that are text or an error are shown as [Text] has them.
func Fprintf(w io.Writer, format string, args ...any) (int, error) {
	shown := make([]any, len(args))
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			shown[i] = Text(arg)
		case error:
			shown[i] = Text(arg.Error())
		case fmt.Stringer:
			shown[i] = Text(arg.String())
		default:
			shown[i] = arg
		}
	}
	return fmt.Fprintf(w, format, shown...)
}

// Line is [Text] on one line.
func Line(s string) string {
	return Text(strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace(s))
}

// obeyed reports whether a terminal obeys a character. Bytes that are no UTF-8
// are among them: some terminals take 0x9b for the beginning of a command.
func obeyed(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' ||
		unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) || r == unicode.ReplacementChar
}

// Cell is [Text] that a spreadsheet shows as it is: one that would be a formula gets an
// apostrophe before it. Numbers stay numbers. CSV goes to terminals, too.
func Cell(s string) string {
	s = Text(s)
	if s == "" || !strings.ContainsRune("=+-@\t", rune(s[0])) {
		return s
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return s
	}
	return "'" + s
}

// markdown are the characters that begin something in the middle of a line of
// Markdown: code, emphasis, HTML, a link.
var markdown = regexp.MustCompile("[\\\\`*]|<[A-Za-z/!?]|\\]\\(")

// Markdown is [Line] as Markdown shows it.
func Markdown(s string) string {
	return markdown.ReplaceAllStringFunc(Line(s), func(found string) string {
		if found == "](" {
			return `]\(`
		}
		return `\` + found
	})
}
