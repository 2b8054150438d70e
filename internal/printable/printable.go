// Package printable makes text from files and other programs safe for terminals, spreadsheets and Markdown.
package printable

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// Text escapes characters that a terminal would interpret instead of showing: control characters, Unicode's line
// separators, and characters that change the direction of text. Line breaks and tabs stay.
func Text(s string) string {
	if strings.IndexFunc(s, isUnsafe) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !isUnsafe(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Fprintf prints to a terminal: the format may have escape sequences; arguments that are text, errors or [fmt.Stringer]
// are escaped by [Text].
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

// Line returns [Text] on one line.
func Line(s string) string {
	return Text(strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace(s))
}

// isUnsafe reports whether a terminal may interpret a character. Bytes that are not UTF-8
// are among them: some terminals take 0x9b for the beginning of an escape sequence.
func isUnsafe(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' ||
		unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp) || r == unicode.ReplacementChar
}

// Cell returns [Text] that a spreadsheet shows unchanged: an apostrophe precedes a formula, and numbers stay numbers.
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

// markdown are the characters that begin something in the middle of a line of Markdown: code, emphasis, HTML, a link.
var markdown = regexp.MustCompile("[\\\\`*]|<[A-Za-z/!?]|\\]\\(")

// Markdown returns [Line] escaped for Markdown.
func Markdown(s string) string {
	return markdown.ReplaceAllStringFunc(Line(s), func(found string) string {
		if found == "](" {
			return `]\(`
		}
		return `\` + found
	})
}
