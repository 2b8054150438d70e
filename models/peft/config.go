// Package peft has the methods of peft other than LoRA: the parameters that each adds to a frozen layer, and its
// forward pass. It follows peft 0.21.
package peft

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/trace"
)

// method is one of peft's methods other than LoRA, for a frozen layer.
type method struct {
	name string
	// options are the keys of its configuration that affect memory, with their defaults and, where the value is one of
	// a few words, the other words: "r=8 variant=road_1|road_2".
	options string
	// atEmbeddings reports whether it is at the input embeddings and not at linear layers.
	atEmbeddings bool
	// has are the parameters and buffers of a site, in the order in which peft registers them: name[dims] is a
	// parameter, f32[dims] or i64[dims] a buffer. Dimensions are in, out, options and numbers, and products and
	// quotients of two of them. counts are the options that must be whole numbers above zero.
	has, counts string
	// add gives a site its parameters where that takes more than a row.
	add func(s *Site) error
	// share makes what all sites have in common, nil for most.
	share func(sites []*Site)
	// forward is the forward pass of peft's layer for input x.
	forward func(s *Site, f *trace.Frame, x *trace.Tensor) *trace.Tensor
	// penalty adds the method's regularization to the loss, nil for most.
	penalty func(f *trace.Frame, sites []*Site, loss *trace.Tensor)
}

func init() {
	for name, m := range methods {
		m.name = name
	}
}

// Methods returns the names of the methods other than LoRA, as in peft's PeftType in small letters.
func Methods() []string { return slices.Sorted(maps.Keys(methods)) }

// Config is a method with values for its options.
type Config struct {
	method *method
	options
}

// options are values by their keys, as text.
type options map[string]string

// NewConfig reads the options of a method; others have peft's defaults. The error names the valid ones.
func NewConfig(name string, given map[string]string) (Config, error) {
	m, ok := methods[name]
	if !ok {
		return Config{}, fmt.Errorf("vprof has no rules for the method %s of peft; use one of %s, or \"vprof run\", "+
			"which supports all", name, strings.Join(Methods(), ", "))
	}
	values, keys := options{}, []string{}
	for field := range strings.FieldsSeq(m.options) {
		key, value, _ := strings.Cut(field, "=")
		values[key], keys = value, append(keys, key)
	}
	for key, value := range given {
		if key == "dropout" {
			key = dropoutOf(keys)
		}
		standard, ok := values[key]
		if !ok && withoutEffect(key) {
			continue
		}
		choices := strings.Split(standard, "|")
		switch {
		case !ok:
			return Config{}, fmt.Errorf("%s has no option %s that affects memory; use one of %s", name, key,
				strings.Join(keys, ", "))
		case len(choices) > 1 && !slices.Contains(choices, value):
			return Config{}, fmt.Errorf("%s: %s=%s: need one of %s", name, key, value, strings.Join(choices, ", "))
		case !sameType(standard, value):
			return Config{}, fmt.Errorf("invalid %s=%s of %s: need a value like %s", key, value, name, standard)
		}
		values[key] = value
	}
	for key, value := range values {
		values[key], _, _ = strings.Cut(value, "|")
	}
	return Config{method: m, options: values}, nil
}

// dropoutOf returns the key that a method has for the dropout of its adapters.
func dropoutOf(keys []string) string {
	i := slices.IndexFunc(keys, func(key string) bool { return strings.HasSuffix(key, "dropout") })
	if i < 0 {
		return "dropout"
	}
	return keys[i]
}

// withoutEffect reports whether a key changes no allocation of a step: keys for initialization, scaling and saving.
func withoutEffect(key string) bool {
	parts := []string{"alpha", "init", "scaling", "seed", "save_", "prng_key", "eps", "lambda", "beta"}
	contained := func(part string) bool { return strings.Contains(key, part) }
	return slices.ContainsFunc(parts, contained) || slices.Contains([]string{
		"bias", "fan_in_fan_out", "target_r", "tinit", "tfinal", "deltaT", "total_step", "orth_reg_weight",
		"mask_type", "select_top", "token_dim", "num_layers", "num_attention_heads", "num_transformer_submodules",
		"wavelet_family",
	}, key)
}

// sameType reports whether the value of an option has the type of its default: number, boolean or text.
func sameType(standard, value string) bool {
	if _, err := strconv.ParseFloat(standard, 64); err == nil {
		n, err := strconv.ParseFloat(value, 64)
		return err == nil && n >= -1
	}
	if _, err := strconv.ParseBool(standard); err == nil {
		_, err := strconv.ParseBool(value)
		return err == nil
	}
	return value != ""
}

// text returns an option's unparsed value.
func (o options) text(key string) string {
	value, ok := o[key]
	if !ok {
		panic("peft: no option is called " + key)
	}
	return value
}

func (o options) number(key string) float64 {
	n, err := strconv.ParseFloat(o.text(key), 64)
	if err != nil {
		panic("peft: " + key + " is no number")
	}
	return n
}

func (o options) count(key string) int64 { return int64(o.number(key)) }

func (o options) on(key string) bool { return strings.EqualFold(o.text(key), "true") }

// positive returns an error if one of these options is not a whole number above zero.
func (o options) positive(keys ...string) error {
	for _, key := range keys {
		if o.number(key) < 1 {
			return fmt.Errorf("%s=%s must be above zero", key, o.text(key))
		}
	}
	return nil
}

// divides returns an error if a number does not divide all of the given widths.
func divides(what string, n int64, widths ...int64) error {
	for _, w := range widths {
		if n < 1 || w%n != 0 {
			return fmt.Errorf("peft raises an error: %s %d does not divide %d", what, n, w)
		}
	}
	return nil
}
