package printable

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCommandsOfTerminalsAreShown(t *testing.T) {
	for in, want := range map[string]string{
		"plain, žluťoučký, 中文": "plain, žluťoučký, 中文",
		"a\nb\tc":              "a\nb\tc",
		"\x1b[31mred\x1b[0m":   `\x1b[31mred\x1b[0m`,
		"\x1b]0;title\a":       `\x1b]0;title\x07`,
		"over\rwritten":        `over\x0dwritten`,
		"\u009b2J":             `\u009b2J`,
		"\x9b2J":               `\ufffd2J`,
		"evil\u202egpj.exe":    `evil\u202egpj.exe`,
	} {
		require.Equal(t, want, Text(in))
	}
	require.Equal(t, "a b", Line("a\nb"))
}

func TestArgumentsAreShownAndFormatsObeyed(t *testing.T) {
	var out strings.Builder
	_, err := Fprintf(&out, "\x1b[1m%s %v %d\n", "\x1b[2J", errors.New("a\rb"), 3)
	require.NoError(t, err)
	require.Equal(t, "\x1b[1m\\x1b[2J a\\x0db 3\n", out.String())
}

func TestNothingThatIsObeyedIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "s")
		require.NotContains(t, strings.Map(func(r rune) rune {
			if unicode.IsControl(r) && r != '\n' && r != '\t' {
				return '!'
			}
			return 'x'
		}, Text(s)), "!")
	})
}

func TestFormulasAreText(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "fits": "fits", "-12": "-12", "+1.5": "+1.5", "-": "'-", "=1+1": "'=1+1",
		"@SUM(A1)": "'@SUM(A1)", "-2+3": "'-2+3", "+cmd|' /C calc'!A0": "'+cmd|' /C calc'!A0", "\t=1": "'\t=1",
		"\x1b[2J=1": `\x1b[2J=1`, "\r=1": `\x0d=1`, "=\x1b[31m": `'=\x1b[31m`,
	} {
		require.Equal(t, want, Cell(in))
	}
}

func TestMarkdownShowsWhatIsThere(t *testing.T) {
	require.Equal(t, "a \\<script> \\`x\\` \\*b\\* [l]\\(u) \\\\ \\\\x1b",
		Markdown("a <script> `x` *b* [l](u) \\ \x1b"))
	require.Equal(t, "3 [2, 4], <5 %", Markdown("3 [2, 4], <5 %"))
}
