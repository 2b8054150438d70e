package peft

import (
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"

	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/trace"
)

// AdaptedLayer is a frozen layer with the parameters that an adapter method adds to it.
type AdaptedLayer struct {
	nn.Module
	BaseLayer nn.Projection
	// Own holds the method's parameters and buffers under the names that peft gives them.
	Own     *nn.NamedModule `torch:""`
	Dropout nn.Layer

	method *method
	options
	path    string
	in, out int64
	// shared are buffers that all adapted layers use, in the order in which share created them. borrowed are parameters
	// of another adapted layer.
	shared   []*nn.Buffer
	borrowed map[string]*nn.Parameter
	bases    int64 // of RandLoRA
	// caller is the frame of PeftModel.forward, which holds the virtual tokens of a method at the embeddings.
	caller   *trace.Frame
	disabled bool
}

// Adapt records peft.get_peft_model with a method at linear layers: it freezes the model and replaces the linear layers
// whose path is wanted, except excluded ones. The error names a layer that the method does not support.
func Adapt(model any, c Config, wanted func(path string) bool, excluded ...nn.Layer) (made []nn.Adapter, err error) {
	nn.Freeze(model)
	var sites []*AdaptedLayer
	nn.WalkLinears(model, excluded, func(v reflect.Value, path string) {
		base, linear := v.Interface().(*nn.Linear)
		if err != nil || !wanted(path) {
			return
		}
		if !linear {
			err = fmt.Errorf("%s is not a torch.nn.Linear, and on other layers vprof supports only LoRA; leave it "+
				"out of target=, or leave out method=", path)
			return
		}
		s, wrong := newAdaptedLayer(base, c, path)
		if wrong != nil {
			err = fmt.Errorf("%s: %w", path, wrong)
		}
		sites, made = append(sites, s), append(made, s)
		v.Set(reflect.ValueOf(s))
	})
	if err == nil && len(sites) > 0 && c.method.share != nil {
		c.method.share(sites)
	}
	return made, err
}

func newAdaptedLayer(base nn.Projection, c Config, path string) (*AdaptedLayer, error) {
	s := &AdaptedLayer{
		BaseLayer: base, Own: &nn.NamedModule{}, Dropout: nn.NewIdentity(), method: c.method, options: c.options,
		path: path,
	}
	s.in, s.out = base.Widths()
	if _, ok := s.options["rank_pattern"]; ok {
		if _, ok := s.options["r"]; ok {
			r, err := s.rankOf("r")
			if err != nil {
				return nil, err
			}
			if r > 0 {
				s.options = maps.Clone(s.options)
				s.options["r"] = strconv.FormatInt(r, 10)
			}
		}
	}
	for key := range c.options {
		if strings.HasSuffix(key, "dropout") && s.number(key) > 0 {
			s.Dropout = nn.NewDropout(s.number(key))
		}
	}
	if s.method.add != nil {
		return s, s.method.add(s)
	}
	return s, s.addDeclared()
}

// addDeclared adds the parameters and buffers listed in method.has to a layer.
func (s *AdaptedLayer) addDeclared() error {
	if err := s.requirePositive(strings.Fields(s.method.counts)...); err != nil {
		return err
	}
	for field := range strings.FieldsSeq(s.method.has) {
		name, list, _ := strings.Cut(strings.TrimSuffix(field, "]"), "[")
		var dims []int64
		for text := range strings.SplitSeq(list, ",") {
			n, err := s.dimension(text)
			if err != nil {
				return err
			}
			dims = append(dims, n)
		}
		switch name {
		case "f32":
			s.Own.AddBuffer(trace.F32, dims...)
		case "i64":
			s.Own.AddBuffer(trace.I64, dims...)
		default:
			s.addWeight(name, dims...)
		}
	}
	return nil
}

// dimension returns a dimension written in method.has: a size, or a product or quotient of two sizes.
func (s *AdaptedLayer) dimension(text string) (int64, error) {
	if of, by, ok := strings.Cut(text, "/"); ok {
		if err := requireDivisor(by, s.size(by), s.size(of)); err != nil {
			return 0, err
		}
		return s.size(of) / s.size(by), nil
	}
	if times, of, ok := strings.Cut(text, "*"); ok {
		return s.size(times) * s.size(of), nil
	}
	return s.size(text), nil
}

// size returns the value of in or out (the layer's widths), of a number, or of an option.
func (s *AdaptedLayer) size(text string) int64 {
	switch n, err := strconv.ParseInt(text, 10, 64); {
	case err == nil:
		return n
	case text == "in":
		return s.in
	case text == "out":
		return s.out
	}
	return s.count(text)
}

// AddPenalty adds the regularization of the adapters' method to a step's loss, if the method has any.
func AddPenalty(f *trace.Frame, adapters []nn.Adapter, loss *trace.Tensor) {
	var sites []*AdaptedLayer
	for _, a := range adapters {
		if s, ok := a.(*AdaptedLayer); ok && s.method.penalty != nil {
			sites = append(sites, s)
		}
	}
	if len(sites) > 0 {
		sites[0].method.penalty(f, sites, loss)
	}
}

// Trained returns the adapter's trained parameters, for [nn.Adapter].
func (s *AdaptedLayer) Trained() []*nn.Parameter { return s.Own.Parameters() }

// BaseType returns the dtype of the frozen layer's weight, for [nn.Adapter].
func (s *AdaptedLayer) BaseType() trace.DType { return s.BaseLayer.AdapterType() }

// Frozen returns the frozen layer without its adapter, for [nn.Adapter].
func (s *AdaptedLayer) Frozen() nn.Layer {
	if t, ok := s.BaseLayer.(*embeddingTable); ok {
		return t.Embeddings
	}
	return s.BaseLayer
}

// Disable turns the adapter off or on, for [nn.Adapter].
func (s *AdaptedLayer) Disable(off bool) { s.disabled = off }

// Forward maps [..., in] to [..., out] with the adapter, or without it if it is disabled.
func (s *AdaptedLayer) Forward(f *trace.Frame, x *trace.Tensor) *trace.Tensor {
	if s.disabled {
		return f.Call(s.BaseLayer, x)
	}
	return s.method.forward(s, f, x)
}

func (s *AdaptedLayer) addWeight(name string, dims ...int64) { s.Own.AddParameter(name, dims...) }

// parameter returns a parameter by name, the layer's own or a borrowed one; nil if there is none.
func (s *AdaptedLayer) parameter(name string) *nn.Parameter {
	if p, ok := s.borrowed[name]; ok {
		return p
	}
	return s.Own.Parameter(name)
}

func (s *AdaptedLayer) w(name string) *trace.Tensor { return s.parameter(name).TensorOrNil() }

func (s *AdaptedLayer) has(name string) bool { return s.parameter(name) != nil }

// borrow makes the layer use a parameter of another adapted layer instead of its own.
func (s *AdaptedLayer) borrow(name string, from *AdaptedLayer) {
	if s == from {
		return
	}
	if s.borrowed == nil {
		s.borrowed = map[string]*nn.Parameter{}
	}
	s.borrowed[name] = from.parameter(name)
	s.Own.RemoveParameter(name)
}

func (s *AdaptedLayer) linear() *nn.Linear { return s.BaseLayer.(*nn.Linear) }

// dtype returns the dtype of the adapter's parameters.
func (s *AdaptedLayer) dtype() trace.DType { return s.Trained()[0].DType }
