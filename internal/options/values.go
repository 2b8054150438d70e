package options

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// New returns an option of a key whose field read parses and write formats.
func New[T, V any](key string, read func(string) (V, error), at func(*T) *V, write func(V) string) Option[T] {
	return Option[T]{
		Key: key,
		Read: func(v *T, text string) (err error) {
			*at(v), err = read(text)
			return err
		},
		Write: func(v *T) string { return write(*at(v)) },
	}
}

// BoolOption returns an option whose value is true or false; the default is false.
func BoolOption[T any](key string, at func(*T) *bool) Option[T] {
	return New(key, ParseBool, at, func(on bool) string { return wordIf(on, "true") })
}

// ChoiceOption returns an option whose value is one of two words: the default, and another that sets the field.
func ChoiceOption[T any](key, usual, other string, at func(*T) *bool) Option[T] {
	read := func(text string) (bool, error) {
		word, err := ParseOneOf(text, other, usual)
		return word == other, err
	}
	return New(key, read, at, func(on bool) string { return wordIf(on, other) })
}

// SwitchOption returns an option like [BoolOption] that is written as its key alone.
func SwitchOption[T any](key string, at func(*T) *bool) Option[T] {
	o := BoolOption(key, at)
	o.IsFlag = true
	return o
}

// OffOption returns an option whose value is true or false; the default is true. The field is true if it is off.
func OffOption[T any](key string, at func(*T) *bool) Option[T] {
	read := func(text string) (bool, error) {
		on, err := ParseBool(text)
		return !on, err
	}
	return New(key, read, at, func(off bool) string { return wordIf(off, "false") })
}

// NewCount returns an option whose value is a whole number within bounds. The default is zero.
func NewCount[T any, N int | int64](key string, least, most int64, at func(*T) *N) Option[T] {
	read := func(text string) (N, error) {
		n, err := ParseWithin(text, least, most)
		return N(n), err
	}
	return New(key, read, at, FormatNumber)
}

// Enum returns an option whose value is one of some words. The default is stored as the empty word.
func Enum[T any, W ~string](key, usual string, at func(*T) *W, words ...string) Option[T] {
	read := func(text string) (W, error) {
		word, err := ParseOneOf(text, words...)
		if word == usual {
			word = ""
		}
		return W(word), err
	}
	return New(key, read, at, func(word W) string { return string(word) })
}

// NamesOption returns an option whose value is a list of names joined by "+".
func NamesOption[T any](key string, at func(*T) *[]string) Option[T] {
	o := New(key, ParseNames, at, JoinNames)
	o.IsList = true
	return o
}

// ParseWithin parses a whole number from low to high.
func ParseWithin(text string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%q is not a whole number from %d to %d", text, low, high)
	}
	return n, nil
}

// ParseInteger reads a whole number as people write it: 1000000, 1_000_000, 1e6, 1.28M or 8k. The suffix k multiplies
// by thousand, which is 1000 for samples and 1024 for tokens, M and B by its second and third power.
func ParseInteger(text string, thousand float64) (int64, error) {
	bare := strings.ToLower(strings.ReplaceAll(text, "_", ""))
	if n, err := strconv.ParseInt(bare, 10, 64); err == nil {
		return n, nil
	} else if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%s is out of range", text)
	}
	digits := strings.TrimRight(bare, "kmb")
	n, err := strconv.ParseFloat(digits, 64)
	power := strings.Index(" kmb", strings.TrimPrefix(bare, digits))
	n *= math.Pow(thousand, float64(max(power, 0)))
	if whole := math.Round(n); err == nil && power >= 0 && math.Abs(n-whole) < 1e-6 && math.Abs(n) < 1<<53 {
		return int64(whole), nil
	}
	return 0, fmt.Errorf("%q is not a whole number", text)
}

// ParseOneOf returns the text if it is one of some words, else an error.
func ParseOneOf(text string, words ...string) (string, error) {
	if !slices.Contains(words, text) {
		return "", fmt.Errorf("%q is none of %s", text, strings.Join(words, ", "))
	}
	return text, nil
}

// ParseBool parses true or false, in any letter case, or 1 or 0.
func ParseBool(text string) (bool, error) {
	on, err := strconv.ParseBool(strings.ToLower(text))
	if err != nil {
		return false, fmt.Errorf("%q is neither true nor false", text)
	}
	return on, nil
}

// ParseNames parses names or patterns joined by "+", none of them empty.
func ParseNames(text string) ([]string, error) {
	names := strings.Split(text, "+")
	if slices.Contains(names, "") {
		return nil, fmt.Errorf("%q has an empty name; write names like q_proj+v_proj", text)
	}
	return names, nil
}

// JoinNames formats names for [ParseNames].
func JoinNames(names []string) string { return strings.Join(names, "+") }

// FormatNumber formats a number; empty for zero.
func FormatNumber[N int | int64](n N) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}

// wordIf returns the word, or the empty text if on is false.
func wordIf(on bool, word string) string {
	if on {
		return word
	}
	return ""
}
