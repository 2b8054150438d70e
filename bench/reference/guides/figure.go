package guides

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/pattern"
)

// Value is an amount of memory or a share, as a guide writes it, with its bounds.
type Value struct {
	// Text is the guide's text: "~5-6 GB", "30-40 %", "≥ 6-8 GiB", "same".
	Text string
	// Share reports whether the limits are shares, not bytes.
	Share bool
	// Low and High are bytes, or shares; of "4 GiB or less" the low one is 0.
	Low, High float64
}

// units are the units of values. The guides' code divides by 1024**2 and 1024**3 for MB and GB.
var units = map[string]float64{
	"B": 1, "KB": bytesize.KiB, "KiB": bytesize.KiB, "MB": bytesize.MiB, "MiB": bytesize.MiB, "GB": bytesize.GiB,
	"GiB": bytesize.GiB,
}

var figure = pattern.Lazy(`^(≥ ?|~)?([0-9]+(?:\.[0-9]+)?)(?:-([0-9]+(?:\.[0-9]+)?))? ?(%|[KMG]?i?B)( or less)?$`)

// ParseValue reads a value. "same" is a share of zero: nothing is saved.
func ParseValue(text string) (Value, error) {
	if text == "same" {
		return Value{Text: text, Share: true}, nil
	}
	m := figure().FindStringSubmatch(text)
	if m == nil {
		return Value{}, fmt.Errorf("%q: write a value like ~5-6 GB, 30-40 %% or same", text)
	}
	f := Value{Text: text, Share: m[4] == "%"}
	unit, known := units[m[4]]
	switch {
	case f.Share:
		unit = 0.01
	case !known:
		return Value{}, fmt.Errorf("%q: unknown unit %s", text, m[4])
	}
	var err error
	if f.Low, err = strconv.ParseFloat(m[2], 64); err != nil {
		return Value{}, fmt.Errorf("%q: %w", text, err)
	}
	f.High = f.Low
	if m[3] != "" {
		if f.High, err = strconv.ParseFloat(m[3], 64); err != nil {
			return Value{}, fmt.Errorf("%q: %w", text, err)
		}
	}
	if m[5] != "" {
		f.Low = 0
	}
	f.Low, f.High = f.Low*unit, f.High*unit
	switch {
	case f.High < f.Low:
		return Value{}, fmt.Errorf("the range %q ends below its start", text)
	case f.Share && f.High > 1:
		return Value{}, fmt.Errorf("%q is above 100 %%", text)
	case f.High > 1<<50:
		return Value{}, fmt.Errorf("%q is more bytes than 63 bits hold", text)
	}
	return f, nil
}

// UnmarshalYAML implements [yaml.Unmarshaler].
func (f *Value) UnmarshalYAML(n *yaml.Node) (err error) {
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: a value must be text", n.Line)
	}
	if *f, err = ParseValue(n.Value); err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	return nil
}

// Range is a batch size, or a range of them: 32, 8-16.
type Range struct{ From, To int }

// A Span is a number of seconds, or a range.
type Span struct{ Low, High float64 }

// UnmarshalYAML implements [yaml.Unmarshaler]: "0.5" or "8.3e-3..0.01".
func (s *Span) UnmarshalYAML(n *yaml.Node) error {
	first, last, is := strings.Cut(n.Value, "..")
	if !is {
		last = first
	}
	low, err := strconv.ParseFloat(first, 64)
	high, err2 := strconv.ParseFloat(last, 64)
	if err = errors.Join(err, err2); err != nil || !(0 < low && low <= high && high < 1e10) {
		return fmt.Errorf("%q: need seconds like 0.5 or a range like 0.5..2", n.Value)
	}
	*s = Span{low, high}
	return nil
}

// String formats the range as ParseRange reads it.
func (r Range) String() string {
	if r.From == r.To {
		return strconv.Itoa(r.From)
	}
	return fmt.Sprintf("%d-%d", r.From, r.To)
}

// ParseRange reads a range.
func ParseRange(text string) (Range, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	var r Range
	var err, err2 error
	r.From, err = strconv.Atoi(first)
	r.To, err2 = strconv.Atoi(last)
	if err = errors.Join(err, err2); err != nil || r.From < 1 || r.To < r.From {
		return Range{}, fmt.Errorf("%q: need a batch size like 32 or a range like 8-16", text)
	}
	return r, nil
}

// UnmarshalYAML implements [yaml.Unmarshaler].
func (r *Range) UnmarshalYAML(n *yaml.Node) (err error) {
	if *r, err = ParseRange(n.Value); err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	return nil
}
