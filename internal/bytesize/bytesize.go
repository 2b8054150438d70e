// Package bytesize reads and writes amounts of memory the way people do: 16GiB, 512MiB, 24564M, 16GB, 17179869184.
//
// Powers of two are the rule, as in PyTorch's messages and nvidia-smi. Only a suffix that ends in B without an i is
// decimal, as the SI defines it: 16GB is 16,000,000,000 bytes, below what a GPU sold as "16 GB" gives to programs.
package bytesize

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// The binary units, in bytes.
const (
	KiB = 1 << 10
	MiB = 1 << 20
	GiB = 1 << 30
	TiB = 1 << 40
)

// A byteUnit is a name and its number of bytes.
type byteUnit struct {
	name  string
	bytes int64
}

// byteUnits are the units that values are shown in, the largest first.
var byteUnits = []byteUnit{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1}}

// suffixes are what Parse accepts after a number, in lower case.
var suffixes = map[string]int64{
	"": 1, "b": 1,
	"k": KiB, "ki": KiB, "kib": KiB, "kb": 1e3,
	"m": MiB, "mi": MiB, "mib": MiB, "mb": 1e6,
	"g": GiB, "gi": GiB, "gib": GiB, "gb": 1e9,
	"t": TiB, "ti": TiB, "tib": TiB, "tb": 1e12,
}

// maxNumber bounds the digits Parse looks at, so that arithmetic stays cheap
// whatever the input. Every int64 in any unit needs fewer.
const maxNumber = 40

// Parse reads an amount of memory: a decimal number, optionally with a fraction, then an optional unit in any letter
// case, with or without spaces between. G, Gi and GiB are 2^30 bytes, GB is 10^9; likewise K, M and T. A result that is
// not a whole number of bytes is rounded to the nearest. Negative amounts, and amounts beyond an int64, are errors.
func Parse(s string) (int64, error) {
	n, err := parse(strings.TrimSpace(s))
	if err != nil {
		return 0, fmt.Errorf("invalid memory size %q: it %w (write for example 16GiB, 512MiB or 17179869184)", s, err)
	}
	return n, nil
}

// ParseMemory reads an amount of memory like [Parse]. A bare number too small for bytes, below 65,536, means GiB.
func ParseMemory(s string) (int64, error) {
	if gib, err := strconv.ParseFloat(strings.TrimSpace(s), 64); err == nil && gib > 0 && gib < 1<<16 {
		return int64(gib * GiB), nil
	}
	return Parse(s)
}

func parse(s string) (int64, error) {
	end := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(s)
	}
	number, suffix := s[:end], strings.TrimSpace(s[end:])
	if strings.Trim(number, ".") == "" || strings.Count(number, ".") > 1 {
		return 0, errors.New("does not start with a number")
	}
	if len(number) > maxNumber {
		return 0, errors.New("has too many digits")
	}
	scale, ok := suffixes[strings.ToLower(suffix)]
	switch {
	case ok:
	case strings.HasPrefix(suffix, ","):
		return 0, fmt.Errorf("has the unknown unit %q; write a decimal point, as in 16.5GiB", suffix)
	default:
		return 0, fmt.Errorf("has the unknown unit %q; use KiB to TiB (or K to T), or KB to TB for powers of 1000",
			suffix)
	}
	// Rationals, not floats: 0.1 GB is 100,000,000 bytes, and int64 values above 2^53 keep their last digits.
	exact, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, errors.New("does not start with a number")
	}
	exact.Mul(exact, new(big.Rat).SetInt64(scale))
	exact.Add(exact, big.NewRat(1, 2))
	whole := new(big.Int).Quo(exact.Num(), exact.Denom())
	if !whole.IsInt64() {
		return 0, errors.New("is too large; need less than 2^63 bytes")
	}
	return whole.Int64(), nil
}

// Format formats n for people, in the most suitable unit and with two decimals, as PyTorch's messages do: "15.47 GiB",
// "512.00 MiB", "100 B".
func Format(n int64) string {
	s := ScaleOf(n)
	return s.Format(n) + " " + s.Unit()
}

// A Scale is the unit that all values of a column share, so that readers can compare the numbers.
type Scale struct{ unit byteUnit }

// ScaleOf returns the scale for a column: the largest unit in which the largest absolute amount is at least one.
func ScaleOf(column ...int64) Scale {
	var most uint64
	for _, n := range column {
		most = max(most, magnitude(n))
	}
	for _, u := range byteUnits {
		if most >= uint64(u.bytes) {
			return Scale{u}
		}
	}
	return Scale{byteUnits[len(byteUnits)-1]}
}

// magnitude returns |n|, also for the smallest int64.
func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// Unit returns the name of the scale's unit: "GiB".
func (s Scale) Unit() string { return s.unit.name }

// Format formats n in the scale's unit, without the unit's name: two decimals, whole numbers for bytes. An amount that
// is not zero never looks like zero: it shows as "<0.01", or ">-0.01" below zero.
func (s Scale) Format(n int64) string {
	if s.unit.bytes == 1 {
		return strconv.FormatInt(n, 10)
	}
	v := float64(n) / float64(s.unit.bytes)
	if n != 0 && math.Abs(v) < 0.005 {
		if n < 0 {
			return ">-0.01"
		}
		return "<0.01"
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
