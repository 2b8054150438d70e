package pt2

import (
	"fmt"
	"strings"

	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// nodeRunner runs a graph's nodes on a tape. Its frame has a variable for every value that Python still refers to.
type nodeRunner struct {
	*task
	frame  *trace.Frame
	values []aten.Value
	// regions are the regions that backward recomputes, in order. inside is the current one.
	regions []region
	inside  *region
	// inFunction reports whether the nodes belong to an autograd.Function's forward.
	inFunction bool
	// wraps are the calls of wrapped modules that have not begun. open are the current ones, the innermost last.
	wraps, open []*wrappedCall
	// note, if not nil, is called with each value.
	note func(v int32, x *trace.Tensor)
}

func (w *nodeRunner) runNodes(begin, end int) {
	for i := begin; i < end; i++ {
		if block, ok := w.gates[i]; ok && (w.inside == nil || i > w.inside.begin) {
			w.enter(block)
		}
		if len(w.wraps) > 0 {
			w.beginCalls(i)
		}
		if w.inside == nil && len(w.regions) > 0 && w.regions[0].begin == i {
			r := &w.regions[0]
			w.regions = w.regions[1:]
			w.runCheckpointed(r)
			i = r.end - 1
			w.endCalls(i)
			continue
		}
		if f, ok := w.g.functions[i]; ok && !w.inFunction {
			w.runFunction(f)
			i = f.end - 1
			continue
		}
		n, c := &w.g.Nodes[i], &w.g.calls[i]
		switch n.Block {
		case export.Call:
			w.frame.SetModule(c.module)
			w.allocateState(i)
			w.runCall(n, c)
		case export.Close:
		default:
			w.runBlock(n, func() { w.runNodes(i+1, c.end) })
			i = c.end
		}
		for _, v := range w.g.Nodes[i].Dies {
			w.dropValue(v)
		}
		if len(w.kept) > 0 {
			w.releaseReplaced(n.Number)
		}
		if len(w.open) > 0 {
			w.endCalls(i)
		}
	}
}

// dropValue releases a value, unless the caller of the current region holds it.
func (w *nodeRunner) dropValue(v int32) {
	if w.inside == nil || !w.inside.isBorderValue(v) {
		w.keepValue(v)
		w.endValue(v)
	}
}

func (w *nodeRunner) endValue(v int32) {
	if x := w.tensor(v); x != nil {
		w.frame.Del(&x)
	}
	w.values[v] = nil
}

func (w *nodeRunner) tensor(v int32) *trace.Tensor {
	x, _ := w.values[v].(*trace.Tensor)
	return x
}

func (w *nodeRunner) runBlock(n *export.Node, inside func()) {
	t := w.frame.Tape()
	switch n.Block {
	case export.OpenNoGrad:
		t.NoGrad(inside)
	case export.OpenAutocast:
		w.runAutocast(n, inside)
	default:
		inside()
	}
}

// runAutocast runs torch.autocast(device, dtype, enabled, cache_enabled).
func (w *nodeRunner) runAutocast(n *export.Node, inside func()) {
	t := w.frame.Tape()
	on, d := true, trace.F16
	if len(n.Inputs) > 2 {
		on = n.Inputs[2].Kind != export.Boolean || n.Inputs[2].Int != 0
		if given, ok := dtypes[export.ScalarType(n.Inputs[1].Int)]; ok && n.Inputs[1].Kind == export.Type {
			d = given
		}
	}
	if on {
		t.Autocast(d, inside)
	} else {
		t.NoAutocast(inside)
	}
}

func (w *nodeRunner) runCall(n *export.Node, c *plannedCall) {
	switch {
	case c.skip:
		if n.Target == itemTarget {
			w.bindResults(n, []aten.Value{int64(0)})
		}
		return
	case c.replacement != nil:
		w.bindResults(n, c.replacement(w))
		return
	case c.number != nil:
		args := make([]aten.Value, len(n.Inputs))
		for i := range n.Inputs {
			args[i] = w.argumentValue(n.Inputs[i].Argument, "")
		}
		v, err := c.number(args)
		if err != nil {
			w.raiseAt(n, err)
		}
		w.bindResults(n, []aten.Value{v})
		return
	}
	if n.Target == linearTarget {
		x, isTensor := w.values[max(0, inputOf(n, "input"))].(*trace.Tensor)
		if weight := inputOf(n, "weight"); isTensor && w.isReplaced(weight) {
			w.bindResults(n, []aten.Value{w.frame.Call(w.linearSites[weight].layer(), x)})
			return
		}
	}
	args, err := c.op.Bind(w.arguments(n, c)...)
	if err != nil {
		w.raiseAt(n, err)
	}
	out := identitySlice(n, &args)
	if out == nil {
		if out, err = w.compute(n, c, args); err != nil {
			w.raiseAt(n, err)
		}
	}
	if x, ok := out[0].(*trace.Tensor); ok && w.inputGrads && n.Target == embeddingTarget && !x.RequiresGrad() {
		x.Leaf() // the hook of enable_input_require_grads()
	}
	w.bindResults(n, out)
}

// arguments returns the arguments of an operator call, with sizes of the rank's shard. In evaluation, dropout is off.
func (w *nodeRunner) arguments(n *export.Node, c *plannedCall) []aten.Arg {
	given := make([]aten.Arg, len(n.Inputs))
	for i := range n.Inputs {
		in := &n.Inputs[i]
		given[i] = aten.Arg{Name: in.Name, Value: w.argumentValue(in.Argument, schemaType(c.op, in.Name))}
	}
	if w.wholeShapes != nil {
		w.resizeArguments(n, given)
	}
	if w.onArguments != nil {
		w.onArguments(n, given)
	}
	if !w.Training() {
		setEvaluation(given)
	}
	if c.trueCount != nil {
		countMasks(given, *c.trueCount, int64(w.c.Batch))
	}
	return given
}

// compute runs an operator on the GPU or on the CPU.
func (w *nodeRunner) compute(n *export.Node, c *plannedCall, args aten.Args) (out []aten.Value, err error) {
	t := w.frame.Tape()
	switch {
	case c.onHost:
		t.OnHost(func() { out, err = c.op.Call(t, args) })
	case c.kernels != nil:
		t.AttentionKernels(c.kernels, func() { out, err = c.op.Call(t, args) })
	case strings.HasPrefix(n.Target, movePrefix) && args.Tensor("self").OnHost():
		x := args.Tensor("self")
		out = []aten.Value{x.ToCopy(args.DType("dtype", x.DType()))}
	default:
		out, err = c.op.Call(t, args)
	}
	return out, err
}

// movePrefix is the prefix of the operators that move a tensor to another device.
const movePrefix = "torch.ops.aten.to."

// countMasks sets the number of true elements in mask arguments, or of nonzero or unique elements in argument self.
func countMasks(given []aten.Arg, count export.MaskCount, batch int64) {
	var self, masks []*trace.Tensor
	for _, a := range given {
		of := &masks
		if a.Name == "self" { // a mask argument, if there is one, selects from self
			of = &self
		}
		switch x := a.Value.(type) {
		case *trace.Tensor:
			*of = append(*of, x)
		case []*trace.Tensor:
			*of = append(*of, x...)
		}
	}
	if len(masks) == 0 {
		masks = self
	}
	for _, x := range masks {
		if x != nil {
			x.SetTrue(count.TrueElements(x.Numel(), batch))
		}
	}
}

// linearTarget is the operator of linear layers, which memory-saving options replace. embedding is the operator whose
// result must require gradients under reentrant checkpointing.
const (
	linearTarget    = "torch.ops.aten.linear.default"
	embeddingTarget = "torch.ops.aten.embedding.default"
)

// sliceTarget is the operator of x[start:end].
const sliceTarget = "torch.ops.aten.slice.Tensor"

// identitySlice returns the result of x[:], which Python does not slice; nil for other slices. Graphs contain it if
// sizes were dynamic or if PyTorch 2.6 or older wrote them.
func identitySlice(n *export.Node, a *aten.Args) []aten.Value {
	if n.Target != sliceTarget || a.Int("step") != 1 || !a.IsNone("start") && a.Int("start") != 0 {
		return nil
	}
	x, d := a.Tensor("self"), a.Dim("dim")
	if d < -x.NDim() || d >= x.NDim() || !a.IsNone("end") && a.Int("end") < x.Size(d) {
		return nil
	}
	return []aten.Value{x.Slice(d, 0, x.Size(d))}
}

func schemaType(op *aten.Operator, name string) string {
	for i := range op.Arguments {
		if op.Arguments[i].Name == name {
			return op.Arguments[i].Type
		}
	}
	return ""
}

func (w *nodeRunner) bindResults(n *export.Node, results []aten.Value) {
	if len(results) < len(n.Outputs) {
		w.raiseAt(n, fmt.Errorf("the operator has %d results, but the file names %d; export the model again",
			len(results), len(n.Outputs)))
	}
	for i, o := range n.Outputs {
		switch o.Kind {
		case export.Ref:
			w.setValue(o.Ref, results[i])
		case export.List:
			xs, ok := results[i].([]*trace.Tensor)
			if !ok || len(xs) != len(o.List) {
				w.raiseAt(n, fmt.Errorf("the operator returns %d tensors, but the file names %d; export the model "+
					"again", len(xs), len(o.List)))
			}
			for k, e := range o.List {
				if e.Kind == export.Ref {
					w.setValue(e.Ref, xs[k])
				} else {
					w.frame.Discard(xs[k])
				}
			}
		default:
			if x, ok := results[i].(*trace.Tensor); ok && x != nil {
				w.frame.Discard(x)
			}
		}
	}
}

func (w *nodeRunner) setValue(v int32, x aten.Value) {
	if t, ok := x.(*trace.Tensor); ok && t != nil {
		w.frame.Bind(t)
		if w.g.leaves[v] && w.Training() {
			t.Leaf()
		}
		if w.note != nil {
			w.note(v, t)
		}
	}
	w.values[v] = x
}

func (w *nodeRunner) argumentValue(a export.Argument, typ string) aten.Value {
	if a.Autocast != export.AutocastUnknown && w.g.autocast != 0 {
		if a.Autocast == export.AutocastHalves {
			return w.g.autocast
		}
		return trace.F32
	}
	switch a.Kind {
	case export.Ref:
		return w.values[a.Ref]
	case export.Integer:
		return a.Int
	case export.Real:
		return float64(a.Real)
	case export.Imaginary:
		return complex(0, 1)
	case export.Boolean:
		return a.Int != 0
	case export.Text:
		return a.Text
	case export.Type:
		if d, ok := dtypes[export.ScalarType(a.Int)]; ok {
			return d
		}
		return fmt.Sprintf("element type %d", a.Int)
	case export.TypeOf:
		return w.promotedType(a.List)
	case export.MemoryFormat:
		return memoryFormats[a.Int]
	case export.List:
		return w.listValue(a.List, strings.HasPrefix(typ, "Tensor"))
	case export.Opaque:
		return "opaque"
	default:
		return nil
	}
}

// promotedType returns the data type of the first floating-point tensor, or of the model's weights if there is none.
func (w *nodeRunner) promotedType(values []export.Argument) aten.Value {
	for _, a := range values {
		if x := w.tensor(a.Ref); x != nil && x.DType().IsFloat() {
			return x.DType()
		}
	}
	return w.weightType()
}

var memoryFormats = map[int64]aten.MemoryFormat{
	1: aten.ContiguousFormat, 2: aten.ChannelsLast, 3: aten.ChannelsLast,
	4: aten.PreserveFormat,
}

func (w *nodeRunner) listValue(elements []export.Argument, tensors bool) aten.Value {
	values := make([]aten.Value, len(elements))
	var ints, floats, bools int
	for i, e := range elements {
		values[i] = w.argumentValue(e, "")
		switch values[i].(type) {
		case int64:
			ints++
		case float64:
			floats++
		case bool:
			bools++
		case *trace.Tensor:
			tensors = true
		}
	}
	switch n := len(elements); {
	case tensors:
		return valuesOfType[*trace.Tensor](values)
	case ints == n:
		return valuesOfType[int64](values)
	case ints+floats == n:
		out := make([]float64, n)
		for i, v := range values {
			out[i], _ = v.(float64)
			if k, whole := v.(int64); whole {
				out[i] = float64(k)
			}
		}
		return out
	case bools == n:
		return valuesOfType[bool](values)
	default:
		return values
	}
}

func valuesOfType[T any](values []aten.Value) []T {
	out := make([]T, len(values))
	for i, v := range values {
		out[i], _ = v.(T)
	}
	return out
}

func (w *nodeRunner) raiseAt(n *export.Node, err error) {
	where := n.Module
	if l := n.Line; l != "" {
		where += " (" + l + ")"
	}
	if where != "" {
		err = fmt.Errorf("%s: %w", where, err)
	}
	w.frame.Tape().Raise(err)
}

func setEvaluation(given []aten.Arg) {
	for i := range given {
		switch given[i].Name {
		case "train", "training":
			given[i].Value = false
		case "dropout_p":
			given[i].Value = 0.0
		}
	}
}
