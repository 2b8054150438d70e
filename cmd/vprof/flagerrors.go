package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// flagError says what is wrong with a flag in the words of this program, and not in
// those of the library that reads numbers.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return usageError{err}
	}
	flag, value := invalid.GetFlag(), invalid.GetValue()
	var number *strconv.NumError
	isNumber := errors.As(err, &number)
	switch kind := flag.Value.Type(); {
	case isNumber && errors.Is(number.Err, strconv.ErrRange):
		return usagef("--%s: %s is beyond all bounds", flag.Name, value)
	case kind == "duration":
		return usagef("--%s: %q is not a time; write it with its unit, like 500ms, 30s or 5m", flag.Name, value)
	case kind == "bool":
		return usagef("--%s: %q is neither true nor false", flag.Name, value)
	case isNumber && kind == "float64":
		return usagef("--%s: %q is not a number", flag.Name, value)
	case isNumber:
		return usagef("--%s: %q is not a whole number", flag.Name, value)
	}
	return usagef("--%s: %q: %w", flag.Name, value, errors.Unwrap(invalid))
}

// once is a text that a flag takes at most once: of two that differ, nobody can say which
// was meant. Completion reads all flags twice.
type once struct {
	to  *string
	set bool
}

// String implements pflag.Value.
func (o *once) String() string {
	if o.to == nil {
		return ""
	}
	return *o.to
}

// Set implements pflag.Value.
func (o *once) Set(s string) error {
	if o.set && s != *o.to {
		return fmt.Errorf("it is given twice, and was %q before", *o.to)
	}
	*o.to, o.set = s, true
	return nil
}

// Type implements pflag.Value.
func (*once) Type() string { return "string" }
