package cli

import (
	"bytes"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/tools/golden"
	"github.com/vprof/vprof/tools/sample"
)

// The README's picture of a terminal is what the command prints there.
func TestPictureOfTheTerminalIsCurrent(t *testing.T) {
	sample.Alone(t)
	const command = "sweep --model redimnet-b2 --stage full"
	a := newSystemApp()
	var out bytes.Buffer
	a.stdout = &out
	require.Equal(t, exitFine, run(t.Context(), a, strings.Fields(command+" --color always")))
	golden.Equal(t, "../docs/sweep.svg", terminalSVG("$ vprof "+command+"\n"+out.String()))
}

var (
	// sgr is an escape sequence that sets a color or ends it.
	sgr = regexp.MustCompile("\x1b\\[(\\d*)m")
	// words stand together: not every program that shows SVG keeps more than one space.
	words = regexp.MustCompile(`\S+( \S+)*`)
)

// Sizes of the picture in its own units: of a character, and of the border.
const (
	advance = 7.8
	leading = 18.0
	border  = 16.0
)

// terminalSVG draws what a program wrote to a terminal. The length of each
// piece is given, so that columns stand below each other in any font.
func terminalSVG(text string) []byte {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	columns := 0
	for _, line := range lines {
		columns = max(columns, utf8.RuneCountInString(sgr.ReplaceAllString(line, "")))
	}
	width, height := float64(columns)*advance+2*border, float64(len(lines))*leading+2*border
	var b bytes.Buffer
	fmt.Fprintf(&b,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"ui-monospace, Menlo, "+
			"Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"13\">\n", width, height)
	fmt.Fprintf(&b, "<rect width=\"%.0f\" height=\"%.0f\" rx=\"8\" fill=\"#1a1d21\"/>\n<g fill=\"#e6e8eb\">\n",
		width, height)
	for i, line := range lines {
		lineSVG(&b, line, border+13+float64(i)*leading)
	}
	b.WriteString("</g>\n</svg>\n")
	return b.Bytes()
}

// lineSVG draws a line at a height.
func lineSVG(b *bytes.Buffer, line string, y float64) {
	colors := map[string]string{"31": "#ff8a80", "32": "#5fd3a4", "33": "#f0b32e"}
	column, fill := 0, ""
	piece := func(s string) {
		for _, at := range words.FindAllStringIndex(s, -1) {
			before, word := utf8.RuneCountInString(s[:at[0]]), s[at[0]:at[1]]
			fmt.Fprintf(b,
				"<text x=\"%.1f\" y=\"%.0f\" textLength=\"%.1f\" lengthAdjust=\"spacingAndGlyphs\"%s>%s</text>\n",
				border+float64(column+before)*advance, y, float64(utf8.RuneCountInString(word))*advance, fill,
				html.EscapeString(word))
		}
		column += utf8.RuneCountInString(s)
	}
	for {
		at := sgr.FindStringSubmatchIndex(line)
		if at == nil {
			break
		}
		piece(line[:at[0]])
		fill = ""
		if c := colors[line[at[2]:at[3]]]; c != "" {
			fill = fmt.Sprintf(" fill=%q", c)
		}
		line = line[at[1]:]
	}
	piece(line)
}
