package report

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestBarsHaveOneWidthAndGrowWithTheShare(t *testing.T) {
	filled := func(s string) int {
		n := 0
		for _, r := range s {
			if at := strings.IndexRune("▏▎▍▌▋▊▉█", r); at >= 0 {
				n += 1 + at/3 // each of the eight takes three bytes
			}
		}
		return n
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Float64Range(0, 3).Draw(t, "a"), rapid.Float64Range(0, 3).Draw(t, "b")
		low, high := Bar{Share: min(a, b)}.String(), Bar{Share: max(a, b)}.String()
		require.Equal(t, barCells+1+cellsAboveGPU, utf8.RuneCountInString(low))
		if !strings.Contains(high, "▶") {
			require.LessOrEqual(t, filled(low), filled(high))
		}
		limit := []rune(high)[barCells]
		require.Equal(t, '│', limit, "the limit is always at the same place")
		if a := min(a, b); a > 1.02 {
			require.NotContains(t, strings.TrimRight(low, " "), " ", "what is beyond the limit reaches it")
		}
	})
	require.Equal(t, strings.Repeat("█", barCells)+"│"+strings.Repeat(" ", cellsAboveGPU), Bar{Share: 1}.String())
}

// Without the escapes, the text is the same.
func TestColorSaysNothingMore(t *testing.T) {
	for _, r := range []*Report{toySweep(), toyPlan(1), toyPlan(2)} {
		var plain, colored bytes.Buffer
		require.NoError(t, WriteTable(&plain, r, Layout{}))
		require.NoError(t, WriteTable(&colored, r, Layout{Color: true}))
		require.NotContains(t, plain.String(), "\x1b")
		require.Equal(t, plain.String(), regexp.MustCompile("\x1b\\[\\d+m").ReplaceAllString(colored.String(), ""))
	}
	var b bytes.Buffer
	require.NoError(t, WriteTable(&b, toySweep(), Layout{Color: true}))
	require.Contains(t, b.String(), "\x1b[31m")
}

// Of several GPUs each point has a bar, up to so many that they help.
func TestBarsOfSeveralGPUsNameThem(t *testing.T) {
	r := toyPlan(2)
	require.Len(t, r.bars().Bars, len(r.Points))
	require.Equal(t, "other, batch 8", r.bars().Bars[2].Label)
	for len(r.Points) <= mostBars {
		r.Points = append(r.Points, r.Points[0])
	}
	require.Empty(t, r.bars().Bars)
}

// A bar that says 100 % is red, and one that fits without being safe is not green.
func TestBarsOfFullGPUsAreRed(t *testing.T) {
	r := toyPlan(1)
	p := &r.Points[0]
	tone := func(bytes int64, unsafe Reason) Tone {
		e := *p.Estimate
		e.Device.Bytes, e.Verdict, e.Unsafe, p.Estimate = bytes, Fits, unsafe, &e
		return r.bars().Bars[0].Tone
	}
	memory := r.Devices[0].Memory
	require.Equal(t, GoodTone, tone(memory/2, ""))
	require.Equal(t, DoubtfulTone, tone(memory/10*9, "over-share"))
	require.Equal(t, BadTone, tone(memory, "over-share"))
	require.Equal(t, BadTone, tone(memory-memory/300, "over-share"))
}
