package nn

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/trace"
)

// Method is one of peft's methods beside LoRA, at a linear layer that is frozen.
type Method struct {
	name string
	// Options are the keys of its configuration that bear on memory, with their defaults, and
	// with what else there is where it is one of a few words: "r=8 variant=road_1|road_2".
	Options string
	// words says that it is at the input embeddings.
	words bool
	// add gives a site its parameters, in the order in which peft registers them.
	add func(s *Tuned) error
	// share makes what all sites have in common, nil for most.
	share func(sites []*Tuned)
	// forward is that of peft's layer, of which x is the argument.
	forward func(s *Tuned, f *trace.Frame, x *trace.Tensor) *trace.Tensor
	// penalty adds to the loss what the method's model does, nil for most.
	penalty func(f *trace.Frame, sites []*Tuned, loss *trace.Tensor)
}

func init() {
	for name, m := range methods {
		m.name = name
	}
}

func (m *Method) is(name string) bool { return m.name == name }

// Methods are the names of the methods beside LoRA, as peft's PeftType has them in small letters.
func Methods() []string { return slices.Sorted(maps.Keys(methods)) }

// Tuned is a frozen linear layer with what a method of peft has put there, as peft 0.21 does.
type Tuned struct {
	Module
	BaseLayer Projection
	// Own has the method's parameters and buffers under the names that peft gives them.
	Own     *Parts `torch:""`
	Dropout Layer

	method  *Method
	options map[string]string
	path    string
	in, out int64
	// shared are tensors of all sites, in the order in which the method's share has made them;
	// lent are parameters that another site has.
	shared []*Buffer
	lent   map[string]*Parameter
	bases  int64 // of RandLoRA
	around *trace.Frame
	off    bool
}

// Tuning is a method with values for its options.
type Tuning struct {
	method  *Method
	options map[string]string
}

// NewTuning reads the options of a method; those that are not given have peft's defaults. The
// error names what there is.
func NewTuning(name string, given map[string]string) (Tuning, error) {
	m, ok := methods[name]
	if !ok {
		return Tuning{}, fmt.Errorf("vprof has no rules for the method %s of peft; there are %s, and \"vprof run\" "+
			"takes any", name, strings.Join(Methods(), ", "))
	}
	options, keys := map[string]string{}, []string{}
	for field := range strings.FieldsSeq(m.Options) {
		key, value, _ := strings.Cut(field, "=")
		options[key], keys = value, append(keys, key)
	}
	for key, value := range given {
		if key == "dropout" {
			key = dropoutOf(keys)
		}
		standard, ok := options[key]
		if !ok && bearsNotOnMemory(key) {
			continue
		}
		choices := strings.Split(standard, "|")
		switch {
		case !ok:
			return Tuning{}, fmt.Errorf("%s has no option %s that bears on memory; there are %s", name, key,
				strings.Join(keys, ", "))
		case len(choices) > 1 && !slices.Contains(choices, value):
			return Tuning{}, fmt.Errorf("%s=%s of %s is not one of %s", key, value, name, strings.Join(choices, ", "))
		case !sameKind(standard, value):
			return Tuning{}, fmt.Errorf("%s=%s of %s cannot be read; it is something like %s", key, value, name,
				standard)
		}
		options[key] = value
	}
	for key, value := range options {
		options[key], _, _ = strings.Cut(value, "|")
	}
	return Tuning{m, options}, nil
}

// dropoutOf is the key that a method has for what its adapters drop out.
func dropoutOf(keys []string) string {
	i := slices.IndexFunc(keys, func(key string) bool { return strings.HasSuffix(key, "dropout") })
	if i < 0 {
		return "dropout"
	}
	return keys[i]
}

// bearsNotOnMemory tells of keys of configurations that say how adapters begin, how much they
// count and what is saved, and so change no allocation of a step.
func bearsNotOnMemory(key string) bool {
	for _, part := range []string{"alpha", "init", "scaling", "seed", "save_", "prng_key", "eps", "lambda", "beta"} {
		if strings.Contains(key, part) {
			return true
		}
	}
	return slices.Contains([]string{
		"bias", "fan_in_fan_out", "target_r", "tinit", "tfinal", "deltaT", "total_step", "orth_reg_weight",
		"mask_type", "select_top", "token_dim", "num_layers", "num_attention_heads", "num_transformer_submodules",
		"encoder_num_layers", "encoder_dropout", "wavelet_family", "psoft_svd", "ab_svd_init",
	}, key)
}

// sameKind tells whether a value of an option is a number where its default is one, and a truth
// value where that is one.
func sameKind(standard, value string) bool {
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

// Tune is peft.get_peft_model with a method beside LoRA: it freezes the model and replaces its
// linear layers that are wanted by their paths, but not those given. The error is of a layer that
// the method does not take with these options.
func Tune(model any, t Tuning, wanted func(path string) bool, but ...Layer) (made []Adapter, err error) {
	Freeze(model)
	var sites []*Tuned
	walkLinears(model, true, but, func(v reflect.Value, path string) {
		base, linear := v.Interface().(*Linear)
		if err != nil || !wanted(path) {
			return
		}
		if !linear {
			err = fmt.Errorf("%s is no linear layer as PyTorch has it, beside which vprof has rules for LoRA alone",
				path)
			return
		}
		s := &Tuned{
			BaseLayer: base, Own: &Parts{}, Dropout: NewIdentity(), method: t.method, options: t.options, path: path,
		}
		s.in, s.out = base.widths()
		if wrong := s.method.add(s); wrong != nil {
			err = fmt.Errorf("%s: %w", path, wrong)
		}
		sites, made = append(sites, s), append(made, s)
		v.Set(reflect.ValueOf(s))
	})
	if err == nil && len(sites) > 0 && t.method.share != nil {
		t.method.share(sites)
	}
	return made, err
}

// Penalize adds to the loss of a step what the method of the adapters adds to it, for most nothing.
func Penalize(f *trace.Frame, adapters []Adapter, loss *trace.Tensor) {
	var sites []*Tuned
	for _, a := range adapters {
		if s, ok := a.(*Tuned); ok && s.method.penalty != nil {
			sites = append(sites, s)
		}
	}
	if len(sites) > 0 {
		sites[0].method.penalty(f, sites, loss)
	}
}

func (s *Tuned) trained() []*Parameter { return s.Own.weights }

func (s *Tuned) baseType() trace.DType { return s.BaseLayer.adapterType() }

// Forward maps [..., in] to [..., out].
func (s *Tuned) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	if s.off {
		return f.Call(s.BaseLayer, x)
	}
	return s.method.forward(s, f, x)
}

// weight gives the site a parameter.
func (s *Tuned) weight(name string, dims ...int64) { s.Own.Own(name, dims...) }

// w is the parameter of a name, the site's own or one that it borrows.
func (s *Tuned) w(name string) *trace.Tensor {
	if p, ok := s.lent[name]; ok {
		return p.Tensor
	}
	return s.Own.Owned(name)
}

// has tells whether there is a parameter of a name.
func (s *Tuned) has(name string) bool {
	_, lent := s.lent[name]
	return lent || slices.Contains(s.Own.own, name)
}

// borrow has the site use the parameter of another site, in place of its own if it has one.
func (s *Tuned) borrow(name string, from *Tuned) {
	if s == from {
		return
	}
	if s.lent == nil {
		s.lent = map[string]*Parameter{}
	}
	if p, ok := from.lent[name]; ok {
		s.lent[name] = p
	} else {
		s.lent[name] = from.Own.weights[slices.Index(from.Own.own, name)]
	}
	if i := slices.Index(s.Own.own, name); i >= 0 {
		s.Own.own, s.Own.weights = slices.Delete(s.Own.own, i, i+1), slices.Delete(s.Own.weights, i, i+1)
	}
}

// plain is the layer as PyTorch has it.
func (s *Tuned) plain() *Linear { return s.BaseLayer.(*Linear) }

// dtype is the type of the method's parameters.
func (s *Tuned) dtype() trace.DType { return s.Own.weights[0].DType }

func (s *Tuned) text(key string) string {
	value, ok := s.options[key]
	if !ok {
		panic("nn: no option is called " + key)
	}
	return value
}

// number is an option that is one.
func (s *Tuned) number(key string) float64 {
	n, err := strconv.ParseFloat(s.text(key), 64)
	if err != nil {
		panic("nn: " + key + " is no number")
	}
	return n
}

// count is an option that is a whole number.
func (s *Tuned) count(key string) int64 { return int64(s.number(key)) }

// on is an option that is a truth value.
func (s *Tuned) on(key string) bool { return strings.EqualFold(s.text(key), "true") }

// drops has the method drop out what goes into it, by an option.
func (s *Tuned) drops(key string) {
	if p := s.number(key); p > 0 {
		s.Dropout = NewDropout(p)
	}
}

// positive says what is wrong with options that must be whole numbers above zero.
func (s *Tuned) positive(keys ...string) error {
	for _, key := range keys {
		if s.number(key) < 1 {
			return fmt.Errorf("%s=%s must be above zero", key, s.text(key))
		}
	}
	return nil
}

// divides says what is wrong with a number that must divide the widths given.
func divides(what string, n int64, widths ...int64) error {
	for _, w := range widths {
		if n < 1 || w%n != 0 {
			return fmt.Errorf("peft raises there: %s %d does not divide %d", what, n, w)
		}
	}
	return nil
}
