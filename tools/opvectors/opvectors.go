// Package opvectors is test support. It reads recorded vectors of single PyTorch operators (their allocations and frees
// in forward and backward) and compares them with the events of vprof's recorder.
package opvectors

import (
	"bufio"
	"compress/bzip2"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

// Tensor is a shape and an element type. View reports whether the tensor was not contiguous (see Vector.Layout).
type Tensor struct {
	Shape []int64
	DType trace.DType
	View  bool
}

// UnmarshalJSON reads [[sizes], "dtype", "view"?].
func (t *Tensor) UnmarshalJSON(b []byte) error {
	var raw []json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	var name string
	if err := json.Unmarshal(raw[0], &t.Shape); err != nil {
		return err
	}
	if err := json.Unmarshal(raw[1], &name); err != nil {
		return err
	}
	t.View = len(raw) > 2 && string(raw[2]) == `"view"`
	d, err := dtype(name)
	t.DType = d
	return err
}

func dtype(name string) (trace.DType, error) {
	for d := trace.Bool; d <= trace.C64; d++ {
		if d.String() == name {
			return d, nil
		}
	}
	return 0, fmt.Errorf("unknown dtype %q", name)
}

// Vector is one recorded call.
type Vector struct {
	Op         string         `json:"op"`
	Args       map[string]any `json:"args"`
	Regime     string         `json:"regime"`
	GPU        string         `json:"gpu"`
	In         []Tensor       `json:"in"`
	Params     Params         `json:"params"`
	Layout     string         `json:"layout"`
	InPlace    int            `json:"inplace"`
	Eval       int            `json:"eval"`
	Accumulate int            `json:"accumulate"`
	Grad       struct {
		In     []int `json:"in"`
		Params int   `json:"params"`
	} `json:"grad"`
	Forward  []string `json:"forward"`
	Backward []string `json:"backward"`
	Saved    []any    `json:"saved"`
	GradFn   string   `json:"grad_fn"`
	// Err is the exception that PyTorch raised.
	Err string `json:"err"`

	stack *stack.Stack // the releases that recorded the vector
	kept  []int64      // bytes of tensors that the last comparison saved for backward
}

// Params are named parameters in the order in which they were recorded.
type Params []Param

// Param is a named parameter.
type Param struct {
	Name string
	Tensor
}

// UnmarshalJSON reads an object and keeps the order of its keys.
func (p *Params) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(strings.NewReader(string(b)))
	if _, err := dec.Token(); err != nil {
		return err
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		var t Tensor
		if err := dec.Decode(&t); err != nil {
			return err
		}
		*p = append(*p, Param{key.(string), t})
	}
	return nil
}

// Int returns an integer argument, or def if the vector lacks it.
func (v *Vector) Int(name string, def int64) int64 {
	if x, ok := v.Args[name].(float64); ok {
		return int64(x)
	}
	return def
}

// Ints returns an argument that may be a number or a list.
func (v *Vector) Ints(name string) []int64 {
	switch x := v.Args[name].(type) {
	case float64:
		return []int64{int64(x)}
	case []any:
		out := make([]int64, len(x))
		for i, e := range x {
			out[i] = int64(e.(float64))
		}
		return out
	}
	return nil
}

// Bool returns a boolean argument, or def if the vector lacks it.
func (v *Vector) Bool(name string, def bool) bool {
	if x, ok := v.Args[name].(bool); ok {
		return x
	}
	return def
}

// String returns a string argument, or def if the vector lacks it.
func (v *Vector) String(name, def string) string {
	if x, ok := v.Args[name].(string); ok {
		return x
	}
	return def
}

// Load reads a bzip2-compressed file of JSON lines, recorded with the releases of a stack. Calls that raised an error
// in PyTorch before any event are left out.
func Load(path string, s *stack.Stack) ([]*Vector, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewScanner(bzip2.NewReader(f))
	in.Buffer(nil, 1<<24)
	var out []*Vector
	for in.Scan() {
		v := &Vector{stack: s}
		if err := json.Unmarshal(in.Bytes(), v); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, len(out)+1, err)
		}
		if v.Err == "" || v.Forward != nil {
			out = append(out, v)
		}
	}
	return out, in.Err()
}

// Call runs the operator of a vector on the recorder and returns its outputs in order. in are the inputs and params the
// parameters and buffers by name.
type Call func(f *trace.Frame, v *Vector, in []*trace.Tensor, params map[string]*trace.Tensor) []*trace.Tensor

// GPUs are the GPUs of the recordings.
var GPUs = map[string]trace.GPU{
	"rtx-5060-ti": {Name: "rtx-5060-ti", Capability: 120, SMs: 36, ThreadsPerSM: 1536, Memory: 16615079936},
	"h200":        {Name: "h200", Capability: 90, SMs: 132, ThreadsPerSM: 2048, Memory: 150109093888},
	"t4":          {Name: "t4", Capability: 75, SMs: 40, ThreadsPerSM: 1024, Memory: 15828320256},
}

// Compare runs the call on the recorder and returns the first difference to the vector's events, "" if there is none.
func (v *Vector) Compare(call Call) (diff string) { return v.compare(call, "") }

// CompareBut compares like [Vector.Compare], without the allocations of one native function, such as run_conv_plan,
// which allocates cuDNN's workspaces.
func (v *Vector) CompareBut(native string, call Call) (diff string) { return v.compare(call, native) }

func (v *Vector) compare(call Call, but string) (diff string) {
	defer explain(&diff)
	forward, backward := v.record(call, but)
	number := numbering{}
	if d := v.difference("forward", number.tokens(v.Forward, but), forward); d != "" {
		return d
	}
	return v.difference("backward", number.tokens(v.Backward, but), backward)
}

// explain turns a panic into a difference.
func explain(diff *string) {
	if r := recover(); r != nil {
		*diff = fmt.Sprintf("panic: %v", r)
	}
}

// Procedure prepares a function without backward, such as gradient clipping or a GradScaler step, and returns it. Its
// parameters have gradients. Only the events of run are compared.
type Procedure func(t *trace.Tape, v *Vector, params []*trace.Tensor) (run func())

// CompareProcedure runs a procedure on the recorder and returns the first difference to the vector's forward events, ""
// if there is none.
func (v *Vector) CompareProcedure(p Procedure) (diff string) {
	defer explain(&diff)
	t := trace.New(GPUs[v.GPU], v.stack.Rules(), trace.Options{Warm: true})
	params, err := v.leaves(t)
	if err != nil {
		return err.Error()
	}
	run := p(t, v, params)
	rec := NewRecorder(t)
	run()
	return Difference("forward", v.Forward, rec.Events())
}

// leaves returns parameters with the shapes and the type in the vector's arguments, each with a gradient.
func (v *Vector) leaves(t *trace.Tape) ([]*trace.Tensor, error) {
	d, err := dtype(v.String("dtype", "f32"))
	if err != nil {
		return nil, err
	}
	f := t.Frame()
	shapes, _ := v.Args["shapes"].([]any)
	var out []*trace.Tensor
	for _, s := range shapes {
		var shape []int64
		for _, n := range s.([]any) {
			shape = append(shape, int64(n.(float64)))
		}
		p := f.Bind(t.New("parameter", program.Weights, d, shape...)).Leaf()
		p.SetGrad(t.New("grad", program.Gradients, d, shape...))
		out = append(out, p)
	}
	return out, nil
}

// Difference returns the first difference between recorded events and the recorder's, "" if there is none.
func Difference(phase string, want, got []string) string {
	return compare(phase, tokens(want), got)
}

// record runs the call and returns the recorder's events of forward and backward, without the allocations of the native
// function but.
func (v *Vector) record(call Call, but string) (forward, backward []string) {
	t := trace.New(GPUs[v.GPU], v.stack.Rules(), trace.Options{Warm: true})
	f := t.Frame()
	in, params := v.inputs(f), v.parameters(f)
	rec := NewRecorder(t)
	rec.but = but
	var out []*trace.Tensor
	run := func() {
		g := f.FunctionFrame()
		out = call(g, v, in, params)
		g.End(out...)
		f.BindAll(out)
	}
	switch v.Regime {
	case "amp16", "amp16h":
		t.Autocast(trace.F16, run)
	case "ampbf", "ampbfh":
		t.Autocast(trace.BF16, run)
	default:
		run()
	}
	forward = rec.Events()
	v.kept = trace.SavedBytes(out...)
	if v.Backward == nil {
		return forward, nil
	}
	var roots, grads []*trace.Tensor
	for _, y := range out {
		if y.RequiresGrad() {
			roots = append(roots, y)
			grads = append(grads, v.incoming(y))
		}
	}
	if len(roots) == 0 {
		return forward, []string{"(no output requires grad)"}
	}
	trace.Backward(roots, grads)
	return forward, rec.Events()
}

// inputs returns the call's inputs. Inputs with a gradient are results of another operator, as in a network.
func (v *Vector) inputs(f *trace.Frame) []*trace.Tensor {
	in := make([]*trace.Tensor, len(v.In))
	k := 0
	for i, spec := range v.In {
		x := f.Bind(f.Tape().New("input", program.Batch, spec.DType, spec.Shape...))
		if spec.DType >= trace.F16 {
			if k < len(v.Grad.In) && v.Grad.In[k] == 1 {
				x = f.Bind(x.Leaf().Clone())
			}
			k++
		}
		if spec.View {
			x = f.Bind(v.view(x))
		}
		in[i] = x
	}
	return in
}

// parameters returns the layer's parameters and buffers by name.
func (v *Vector) parameters(f *trace.Frame) map[string]*trace.Tensor {
	t, params := f.Tape(), map[string]*trace.Tensor{}
	for _, p := range v.Params {
		x := f.Bind(v.parameter(t, p.Tensor))
		if v.Grad.Params == 1 {
			x.Leaf()
			if v.Accumulate == 1 {
				x.SetGrad(t.New("grad", program.Gradients, p.DType, p.Shape...))
			}
		}
		params[p.Name] = x
	}
	for _, b := range v.buffers() {
		params[b.Name] = t.Hold(t.New("buffer", program.Buffers, b.DType, b.Shape...))
	}
	return params
}

// incoming returns the gradient of output y. It has y's layout, except in the older vectors of the H200, where it is
// contiguous.
func (v *Vector) incoming(y *trace.Tensor) *trace.Tensor {
	if v.GPU == "h200" {
		return y.Tape().New("incoming", program.Temporaries, y.DType(), y.Shape()...)
	}
	return y.NewGradient()
}

// view returns an input in the vector's layout.
func (v *Vector) view(x *trace.Tensor) *trace.Tensor {
	switch {
	case strings.HasPrefix(v.Layout, "channels_last"):
		return x.ContiguousChannelsLast()
	case v.Layout == "[B,S,H,D] transposed", v.Layout == "": // matmul_4d_nc has no layout
		return x.Transpose(1, 2)
	case v.Layout == "narrowed":
		// Columns 3 to 40 of 133; the vectors list the base tensor.
		return x.Slice(-1, 3, 40)
	default:
		return x.Transpose(-2, -1)
	}
}

// parameter returns a parameter; a channels-last vector has channels-last weights.
func (v *Vector) parameter(t *trace.Tape, s Tensor) *trace.Tensor {
	if v.Layout == "channels_last" && len(s.Shape) == 4 {
		return t.NewChannelsLast("parameter", program.Weights, s.DType, s.Shape...)
	}
	return t.New("parameter", program.Weights, s.DType, s.Shape...)
}

// buffers returns the module's buffers, which the vectors do not list.
func (v *Vector) buffers() []Param {
	f32 := func(name string, shape ...int64) Param { return Param{name, Tensor{Shape: shape, DType: trace.F32}} }
	switch {
	case v.Op == "stft":
		return []Param{f32("window", v.Int("n_fft", 0))}
	case strings.HasPrefix(v.Op, "spectral_norm"), strings.HasPrefix(v.Op, "weight_norm"):
		// The module also keeps the weight that the previous call computed.
		w := v.Params[len(v.Params)-1].Shape
		rows, columns := w[0], int64(1)
		for _, n := range w[1:] {
			columns *= n
		}
		return []Param{f32("u", rows), f32("v", columns), f32("computed", w...)}
	}
	if !strings.HasPrefix(v.Op, "batch_norm") || strings.HasSuffix(v.Op, "_nostats") {
		return nil
	}
	stats := Tensor{Shape: v.In[0].Shape[1:2], DType: trace.F32}
	if v.Regime == "fp16" || v.Regime == "bf16" {
		stats.DType = v.In[0].DType
	}
	return []Param{{"running_mean", stats}, {"running_var", stats}}
}

// SavedDifference returns the first difference between the storages that PyTorch saved for backward and the ones of the
// last comparison, "" if there is none. It ignores buffers of modules and the 8-byte states of random generators on the
// host.
func (v *Vector) SavedDifference() string {
	var want, statistics []int64
	for _, s := range v.Saved {
		row := s.([]any)
		bytes, name := int64(row[0].(float64)), row[1].(string)
		switch {
		case bytes == 8:
		case strings.Contains(name, "running_"):
			statistics = append(statistics, bytes)
		default:
			want = append(want, bytes)
		}
	}
	slices.Sort(want)
	got := slices.DeleteFunc(slices.Clone(v.kept), func(n int64) bool { return n == 8 })
	for _, n := range statistics {
		if i := slices.Index(got, n); i >= 0 && len(got) > len(want) {
			got = slices.Delete(got, i, i+1)
		}
	}
	if !slices.Equal(want, got) {
		return fmt.Sprintf("saved\n   want %v\n   got  %v", want, got)
	}
	return ""
}
