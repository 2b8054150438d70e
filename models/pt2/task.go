package pt2

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// task is a graph and a case: forward and loss of a batch that stays on the device. It implements [train.Graph].
type task struct {
	*moduleTree
	// plain is the program before the sizes of a batch are inserted; sizes are its dimensions.
	plain *graph
	sizes *dimensions

	g       *graph
	c       models.Case
	symbols map[string]int64
	output  int
	loss    lossFunc
	half    trace.DType        // of the weights, if they are in half precision
	regions []region           // that are recomputed
	inputs  []*trace.Tensor    // by place among the program's inputs
	kept    []keptState        // by modules, of the last forward
	keeping []keptState        // by modules, of this forward
	gates   map[int]string     // blocks by their first nodes
	enter   func(block string) // is called there
	// inputGrads has the results of embeddings require gradients.
	inputGrads bool
	// ranks is the model as in one rank of several, nil on one GPU; wraps are the calls of its wrapped modules, in
	// order, the outer before the inner.
	ranks *train.Ranks
	wraps []*wrapped
	// whole are the shapes of values where no rank has a part only; nil but under tensor parallelism.
	whole [][]int64
	// resized looks at the arguments of a call, and may change them; nil for most.
	resized func(n *export.Node, given []aten.Arg)
	// first are the tasks of the first forward, by batches, where it does more than those after it; begun reports
	// whether it has run. In one of these, then is the task of the forwards that follow.
	first []*task
	then  *task
	begun bool
	// head is the output layer where scores and loss are computed in chunks, nil otherwise.
	head *fusedHead
}

// newTrainer makes the training system of a case. The error is a [*models.CaseError].
func newTrainer(g *graph, d *dimensions, c models.Case) (models.Trainer, error) {
	wrong := func(field string, err error) error {
		return c.Wrong(field, "%v", err)
	}
	t := &task{moduleTree: newModules(g.Program), plain: g, sizes: d, c: c, half: halves[c.Weights]}
	var err error
	if t.output, err = chooseOutput(g.Program, c.Output); err != nil {
		return nil, wrong("output", err)
	}
	r := g.Results[t.output]
	if c.Loss == "" {
		_, err = defaultLoss(r)
	} else {
		err = checkLoss(c.Loss, r)
	}
	if err != nil {
		return nil, wrong("loss", err)
	}
	if err = t.freeze(c.Freeze); err != nil {
		return nil, wrong("freeze", err)
	}
	if field, err := ofConfigurations(c); err != nil {
		return nil, wrong(field, err)
	}
	if field, err := t.recompute(); err != nil {
		return nil, wrong(field, err)
	}
	trainer, err := train.Build(t, c)
	if err != nil {
		return nil, err
	}
	t.makeFirst()
	return trainer, t.sized(c.Batch)
}

// makeFirst makes the tasks of the first forward, which share the modules. Ranks and stages do not use them.
func (t *task) makeFirst() {
	for _, g := range t.plain.first {
		sizes := findDimensions(g.Program)
		b := &task{moduleTree: t.moduleTree.first[g.Program], plain: g, sizes: sizes, c: t.c, half: t.half, then: t}
		var err error
		if b.output, err = chooseOutput(g.Program, t.c.Output); err != nil || t.c.Strategy != nil {
			continue
		}
		if _, err = b.recompute(); err == nil {
			t.first = append(t.first, b)
		}
	}
}

// autocasts are the types of autocast.
var autocasts = map[models.Autocast]trace.DType{"bf16": trace.BF16, "fp16": trace.F16}

var halves = map[models.WeightType]trace.DType{"bf16": trace.BF16, "fp16": trace.F16}

// sized sets the sizes of a batch in the graph, and replaces nodes for the case. The error is a [*models.CaseError].
func (t *task) sized(batch int) error {
	wrong := func(field string, err error) error {
		return &models.CaseError{Model: t.c.Model, Field: field, Reason: err.Error()}
	}
	t.c.Batch = batch
	if err := t.sizes.check(t.c.Model, t.c); err != nil {
		return err
	}
	p, err := t.sizes.scale(t.plain.Program, int64(batch))
	if err != nil {
		return wrong("batch", err)
	}
	t.g = t.plain.withProgram(p)
	t.g.autocast = autocasts[t.c.AMP]
	t.symbols, t.loss, t.head = t.sizes.symbolValues(t.c), lossFuncs[t.c.Loss], nil
	if err := t.useLiger(); err != nil {
		return wrong("liger", err)
	}
	if setting, err := t.chunkLoss(); err != nil {
		return wrong(setting, err)
	}
	return nil
}

// Model implements [train.Task].
func (t *task) Model() any { return t.Parts }

// Head implements [train.Task]: graphs have no stage that trains it.
func (t *task) Head() any { return nil }

// Unadapted implements [train.Adaptable]: the layers whose results the model returns.
func (t *task) Unadapted() (layers []nn.Layer) {
	for i := range returnedValues(t.plain.Program) {
		if s := t.sites[inputOf(&t.plain.Nodes[i], "weight")]; s != nil && t.plain.Nodes[i].Target == linear {
			layers = append(layers, s.Linear)
		}
	}
	return layers
}

// Saved implements [train.Adaptable].
func (t *task) Saved() []*nn.Layer { return nil }

// RequireInputGrads implements [train.Adaptable]: reentrant checkpointing differentiates nothing
// whose inputs do not require gradients.
func (t *task) RequireInputGrads() { t.inputGrads = t.c.Recompute == models.Reentrant }

// Unpacked implements [train.Graph]: transformers' replace_with_bnb_linear replaces modules, and layers that share
// their weight with other modules are not replaced.
func (t *task) Unpacked() (layers []nn.Layer) {
	shared := map[int32]bool{}
	for i := range t.plain.Nodes {
		n := &t.plain.Nodes[i]
		for _, in := range n.Inputs {
			eachValue(in.Argument, func(v int32) { shared[v] = shared[v] || n.Target != linear || in.Name == "input" })
		}
	}
	for v, s := range t.sites {
		if shared[v] || len(t.of[v].values) > 1 {
			layers = append(layers, s.Linear)
		}
	}
	return layers
}

// Blocks implements [train.Graph].
func (t *task) Blocks() []string {
	if t.plain.Blocks == "" {
		return nil
	}
	return train.Matching(t.plain.Blocks, t.plain.Modules)
}

// Gate implements [train.Graph].
func (t *task) Gate(blocks []string, enter func(block string)) error {
	t.gates, t.enter = map[int]string{}, enter
	for _, b := range blocks {
		found := calls(t.plain.Program, b)
		if len(found) != 1 {
			return fmt.Errorf("block %s is called %d times; a pipeline needs blocks that follow each other",
				b, len(found))
		}
		t.gates[found[0].begin] = b
	}
	return nil
}

// recompute finds the calls that backward recomputes, if the case has checkpointing. The error belongs to the field
// that it names.
func (t *task) recompute() (field string, err error) {
	switch {
	case !t.c.Checkpointing:
		return "", nil
	case t.c.Blocks == "":
		return "checkpointing",
			errors.New("the model has no list of equal modules; name some with --set checkpoint=PATTERNS")
	}
	if t.regions, err = regions(t.plain.Program, t.c.Blocks); err != nil {
		return "checkpoint", err
	}
	t.regions = everyNth(t.regions, t.c.Recompute.EveryLayers())
	return "", nil
}

// ofConfigurations returns a field of the case that only models of transformers support, and the error.
func ofConfigurations(c models.Case) (field string, err error) {
	switch {
	case c.Recompute == models.ReentrantTrained:
		return "checkpointing",
			errors.New("reentrant-trained works only for models of transformers (hf:config.json); use reentrant")
	case c.TrainedWeights != "":
		return "trained-weights", errors.New("the graph fixes the types of its weights; export it with the types of " +
			"training")
	}
	return "", nil
}

func everyNth(all []region, n int) []region {
	var out []region
	for i := 0; i < len(all); i += max(n, 1) {
		out = append(out, all[i])
	}
	return out
}

// Begin implements [train.Graph].
func (t *task) Begin(tape *trace.Tape, net *nn.Tree) {
	t.kept, t.begun = nil, false
	if err := t.answerConvolutions(tape); err != nil {
		tape.Raise(err)
	}
	if t.c.Strategy != nil && t.c.Strategy.Name == models.TP {
		t.whole = t.shapes(trace.New(tape.GPU(), *tape.Rules(), trace.Options{}), net)
	}
}

// Moved implements [train.Graph].
func (t *task) Moved(tape *trace.Tape, net *nn.Tree) {
	if t.channelsLast() {
		toChannelsLast(tape, net)
	}
}

// answerConvolutions gives a tape the answers of the release's cuDNN about convolutions on its GPUs.
func (t *task) answerConvolutions(tape *trace.Tape) error {
	if len(t.plain.Asked) == 0 && t.plain.CuDNN == nil {
		return nil
	}
	release, err := t.c.Release()
	if err != nil {
		return err
	}
	t.plain.Asked.With(t.plain.CuDNN).Answer(tape, release.Versions().CuDNN)
	return nil
}

// Load implements [train.Task]; a graph of fixed sizes gets the sizes of the batch.
func (t *task) Load(tape *trace.Tape, n int64) {
	if int(n) != t.c.Batch || !t.Training() {
		if err := t.sized(int(n)); err != nil {
			tape.Raise(err)
		}
	}
	t.inputs = make([]*trace.Tensor, len(t.g.Inputs))
	for i := range t.g.Inputs {
		in := &t.g.Inputs[i]
		if in.Role != export.UserInput || in.Number || in.Value < 0 {
			continue
		}
		shape := make([]int64, len(in.Sizes))
		for d, s := range in.Sizes {
			n, err := s.Eval(t.symbols)
			if err == nil && (n < 0 || n > mostSize) {
				err = fmt.Errorf("size %d: need 0 to %d", n, int64(mostSize))
			}
			if err != nil {
				tape.Raise(fmt.Errorf("%s: dimension %d: %w", in.Name, d, err))
			}
			shape[d] = n
		}
		d := dtypes[in.Type]
		if t.half.IsHalf() && d == trace.F32 {
			d = t.half
		}
		t.inputs[i] = tape.Hold(tape.New("zeros", program.Batch, d, shape...))
	}
	if t.channelsLast() {
		t.inputsChannelsLast(tape)
	}
}

// channelsLast reports whether parameters and images of four dimensions are laid out with their channels last.
func (t *task) channelsLast() bool { return t.c.On(channelsLast) }

// inputsChannelsLast runs {k: v.contiguous(memory_format=torch.channels_last)} for the images among the inputs.
func (t *task) inputsChannelsLast(tape *trace.Tape) {
	var old []*trace.Tensor
	for i, x := range t.inputs {
		if x == nil || x.NDim() != 4 {
			continue
		}
		t.inputs[i] = tape.Hold(tape.NewChannelsLast("contiguous", program.Batch, x.DType(), x.Shape()...))
		old = append(old, x)
	}
	tape.Release(old...)
}

// mostSize is the upper bound of a dimension of the batch.
const mostSize = 1 << 40

// walker returns a walker at the beginning of the graph, in a frame, with weights and inputs set.
func (t *task) walker(g *trace.Frame) *nodeRunner {
	w := &nodeRunner{task: t, frame: g, values: make([]aten.Value, t.g.Values), wraps: t.wraps}
	if t.Training() {
		w.regions = t.regions
	}
	for v, x := range t.of {
		w.values[v] = x.tensor()
	}
	for i := range t.g.Inputs {
		in := &t.g.Inputs[i]
		switch {
		case in.Role != export.UserInput || in.Value < 0:
		case in.Number:
			n, err := in.Size.Eval(t.symbols)
			if err != nil {
				g.Tape().Raise(fmt.Errorf("%s: %w", in.Name, err))
			}
			w.values[in.Value] = n
		default:
			w.values[in.Value] = t.inputs[i]
		}
	}
	w.takeState()
	return w
}

// weightType returns the type of the model's weights where they are used.
func (t *task) weightType() trace.DType {
	if t.half.IsHalf() {
		return t.half
	}
	if d, cast := t.ranks.ParameterType(); cast {
		return d
	}
	return trace.F32
}

// Loss implements [train.Task].
func (t *task) Loss(f *trace.Frame, loss **trace.Tensor) { t.Compute(f, new([]*trace.Tensor), loss) }

// Compute implements [train.Graph].
func (t *task) Compute(f *trace.Frame, results *[]*trace.Tensor, loss **trace.Tensor) *trace.Tensor {
	if !t.begun && t.Training() {
		t.begun = true
		for _, b := range t.first {
			if b.sized(t.c.Batch) == nil {
				return t.begin(b, f, results, loss)
			}
		}
	}
	g := f.CallFrame()
	w := t.walker(g)
	w.run(0, len(t.g.Nodes))
	w.keepState()
	outs := make([]*trace.Tensor, len(t.g.Results))
	var alive []*trace.Tensor
	for i, r := range t.g.Results {
		if r.Value < 0 {
			continue
		}
		if x, ok := w.values[r.Value].(*trace.Tensor); ok && (results != nil || i == t.output) {
			outs[i] = x
			alive = append(alive, x)
		}
	}
	g.End(alive...)
	outs = t.ranks.LeaveRoot(f, outs)
	out := outs[t.output]
	if results != nil {
		f.SetAll(results, slices.DeleteFunc(outs, func(x *trace.Tensor) bool { return x == nil }))
	} else {
		f.Bind(out)
	}
	f.Tape().Mark("forward")
	f.Set(loss, t.loss(f, out))
	return out
}
