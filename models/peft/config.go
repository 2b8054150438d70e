// Package peft records the adapter methods of the peft library other than LoRA: the parameters that each adds to a
// frozen layer, and its forward pass. It follows peft 0.21.
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
	// options are the keys of the method's peft configuration that affect memory, with their defaults. Other possible
	// words follow after |: "r=8 variant=road_1|road_2".
	options string
	// atEmbeddings reports whether the method adapts the input embeddings instead of linear layers.
	atEmbeddings bool
	// has lists the parameters and buffers of an adapted layer in peft's order: name[dims] is a parameter, f32[dims] or
	// i64[dims] a buffer. A dimension is in, out, an option or a number, or a product or quotient of two of them.
	// counts lists the options that must be positive integers.
	has, counts string
	// add adds the parameters to a layer that has cannot describe.
	add func(s *AdaptedLayer) error
	// share sets up what all adapted layers share; nil for most methods.
	share func(sites []*AdaptedLayer)
	// forward records the forward pass of peft's layer for input x.
	forward func(s *AdaptedLayer, f *trace.Frame, x *trace.Tensor) *trace.Tensor
	// penalty adds the method's regularization to the loss; nil for most methods.
	penalty func(f *trace.Frame, sites []*AdaptedLayer, loss *trace.Tensor)
}

func init() {
	for name, m := range methods {
		m.name = name
	}
}

// Methods returns the names of the methods other than LoRA: peft's PeftType in lower case.
func Methods() []string { return slices.Sorted(maps.Keys(methods)) }

// Config is an adapter method with the values of its options.
type Config struct {
	method *method
	options
}

// options are the values of options as text, by key.
type options map[string]string

// NewConfig returns the configuration of a method with the given options, and peft's defaults for others.
func NewConfig(name string, given map[string]string) (Config, error) {
	m, ok := methods[name]
	if !ok {
		return Config{}, fmt.Errorf("vprof does not support the method %s of peft, only %s; leave out method=, or "+
			"run your own script with \"vprof run\", which supports all", name, strings.Join(Methods(), ", "))
	}
	values, keys := options{}, []string{}
	for field := range strings.FieldsSeq(m.options) {
		key, value, _ := strings.Cut(field, "=")
		values[key], keys = value, append(keys, key)
	}
	for key, value := range given {
		if key == "dropout" {
			key = dropoutKey(keys)
		}
		standard, ok := values[key]
		if !ok && isIgnored(key) {
			continue
		}
		choices := strings.Split(standard, "|")
		switch {
		case !ok:
			return Config{}, fmt.Errorf("the method %s of peft has no option %s that affects memory; use one of %s",
				name, key, strings.Join(keys, ", "))
		case len(choices) > 1 && !slices.Contains(choices, value):
			return Config{}, fmt.Errorf("method %s of peft: %s=%s: need one of %s",
				name, key, value, strings.Join(choices, ", "))
		case !sameType(standard, value):
			return Config{}, fmt.Errorf("invalid %s=%s for the method %s of peft: need a value like %s",
				key, value, name, standard)
		}
		values[key] = value
	}
	for key, value := range values {
		values[key], _, _ = strings.Cut(value, "|")
	}
	return Config{method: m, options: values}, nil
}

// dropoutKey returns the key of the adapters' dropout among a method's keys.
func dropoutKey(keys []string) string {
	i := slices.IndexFunc(keys, func(key string) bool { return strings.HasSuffix(key, "dropout") })
	if i < 0 {
		return "dropout"
	}
	return keys[i]
}

// isIgnored reports whether a key of peft changes no allocation: keys for initialization, scaling and saving.
func isIgnored(key string) bool {
	parts := []string{"alpha", "init", "scaling", "seed", "save_", "prng_key", "eps", "lambda", "beta"}
	contained := func(part string) bool { return strings.Contains(key, part) }
	return slices.ContainsFunc(parts, contained) || slices.Contains([]string{
		"bias", "fan_in_fan_out", "target_r", "tinit", "tfinal", "deltaT", "total_step", "orth_reg_weight",
		"mask_type", "select_top", "token_dim", "num_layers", "num_attention_heads", "num_transformer_submodules",
		"wavelet_family",
	}, key)
}

// sameType reports whether a value has the type of the option's default: number, boolean or text.
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

// text returns the value of an option as text.
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

func (o options) enabled(key string) bool { return strings.EqualFold(o.text(key), "true") }

// requirePositive returns an error unless the options are positive integers.
func (o options) requirePositive(keys ...string) error {
	for _, key := range keys {
		if o.number(key) < 1 {
			return fmt.Errorf("invalid %s=%s: need a number above 0", key, o.text(key))
		}
	}
	return nil
}

// requireDivisor returns an error unless n divides all of the given widths.
func requireDivisor(what string, n int64, widths ...int64) error {
	for _, w := range widths {
		if n < 1 || w%n != 0 {
			return fmt.Errorf("peft refuses the adapter: %s %d does not divide the layer's width %d", what, n, w)
		}
	}
	return nil
}
