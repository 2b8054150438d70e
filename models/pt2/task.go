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

// task runs forward and loss of a graph for one case, on a batch that stays on the GPU. It implements [train.Graph].
type task struct {
	*moduleTree
	// plain is the graph before a batch's sizes are inserted; sizes are its dimensions.
	plain *graph
	sizes *dimensions

	g       *graph
	c       models.Case
	symbols map[string]int64
	output  int
	loss    lossFunc
	half    trace.DType        // data type of half-precision weights; 0 for fp32
	regions []region           // regions that backward recomputes
	inputs  []*trace.Tensor    // by index of the program's inputs
	kept    []keptState        // values that modules kept in the last forward
	keeping []keptState        // values that modules keep in this forward
	gates   map[int]string     // blocks by their first nodes
	enter   func(block string) // called when a block begins
	// inputGrads makes the results of embeddings require gradients.
	inputGrads bool
	// ranks is the model on one rank of several; nil on one GPU. wraps are the calls of its wrapped modules in order,
	// outer calls before inner ones.
	ranks *train.Ranks
	wraps []*wrappedCall
	// wholeShapes are the shapes of values on one GPU, under tensor parallelism; nil otherwise.
	wholeShapes [][]int64
	// onArguments, if not nil, is called with the arguments of each call and may change them.
	onArguments func(n *export.Node, given []aten.Arg)
	// first holds the tasks of the first forward pass by batch size, if that differs from later passes. hasBegun
	// reports whether the first pass has run. In a task of the first pass, laterTask is the task of later passes.
	first     []*task
	laterTask *task
	hasBegun  bool
	// head is the output layer if a loss in chunks of tokens calls it; nil otherwise.
	head *fusedHead
}

// newTrainer returns the trainer of a case. The error is a [*models.CaseError].
func newTrainer(g *graph, d *dimensions, c models.Case) (models.Trainer, error) {
	wrong := func(field string, err error) error { return c.FieldError(field, "%v", err) }
	t := &task{moduleTree: newModules(g.Program), plain: g, sizes: d, c: c, half: halfTypes[c.Weights]}
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
	if err = t.freezeMatching(c.Freeze); err != nil {
		return nil, wrong("freeze", err)
	}
	if field, err := transformersOnlyField(c); err != nil {
		return nil, wrong(field, err)
	}
	if field, err := t.findRegions(); err != nil {
		return nil, wrong(field, err)
	}
	trainer, err := train.NewTrainer(t, c)
	if err != nil {
		return nil, err
	}
	t.makeFirstTasks()
	return trainer, t.setBatch(c.Batch)
}

// makeFirstTasks creates the tasks of the first forward pass, which share modules. Ranks and stages do not use them.
func (t *task) makeFirstTasks() {
	for _, g := range t.plain.first {
		sizes := findDimensions(g.Program)
		b := &task{
			moduleTree: t.moduleTree.first[g.Program], plain: g, sizes: sizes, c: t.c, half: t.half,
			laterTask: t,
		}
		var err error
		if b.output, err = chooseOutput(g.Program, t.c.Output); err != nil || t.c.Strategy != nil {
			continue
		}
		if _, err = b.findRegions(); err == nil {
			t.first = append(t.first, b)
		}
	}
}

var autocastTypes = map[models.Autocast]trace.DType{"bf16": trace.BF16, "fp16": trace.F16}

var halfTypes = map[models.WeightType]trace.DType{"bf16": trace.BF16, "fp16": trace.F16}

// setBatch inserts a batch's sizes into the graph and replaces nodes for the case. The error is a [*models.CaseError].
func (t *task) setBatch(batch int) error {
	wrong := func(field string, err error) error {
		return &models.CaseError{Model: t.c.Model, Field: field, Reason: err.Error()}
	}
	t.c.Batch = batch
	if err := t.sizes.checkBatch(t.c.Model, t.c); err != nil {
		return err
	}
	p, err := t.sizes.withBatch(t.plain.Program, int64(batch))
	if err != nil {
		return wrong("batch", err)
	}
	t.g = t.plain.withProgram(p)
	t.g.autocast = autocastTypes[t.c.AMP]
	t.symbols, t.loss, t.head = t.sizes.symbolValues(t.c), lossFuncs[t.c.Loss], nil
	if err := t.applyLiger(); err != nil {
		return wrong("liger", err)
	}
	if setting, err := t.applyChunkedLoss(); err != nil {
		return wrong(setting, err)
	}
	return nil
}

func (t *task) Model() any { return t.NamedModule }

// Head implements [train.Task]; it is nil, since graphs have no freeze stage that trains a head.
func (t *task) Head() any { return nil }

// OutputLayers implements [train.Adaptable]: it returns the layers whose results the model returns.
func (t *task) OutputLayers() (layers []nn.Layer) {
	for i := range returnedValues(t.plain.Program) {
		if s := t.linearSites[inputOf(&t.plain.Nodes[i], "weight")]; s != nil &&
			t.plain.Nodes[i].Target == linearTarget {
			layers = append(layers, s.Linear)
		}
	}
	return layers
}

func (t *task) LayersToSave() []*nn.Layer { return nil }

// RequireInputGrads implements [train.Adaptable]: reentrant checkpointing needs inputs with gradients.
func (t *task) RequireInputGrads() { t.inputGrads = t.c.Recompute == models.Reentrant }

// UnquantizedLayers implements [train.Graph]: transformers' replace_with_bnb_linear skips layers with shared weights.
func (t *task) UnquantizedLayers() (layers []nn.Layer) {
	shared := map[int32]bool{}
	for i := range t.plain.Nodes {
		n := &t.plain.Nodes[i]
		for _, in := range n.Inputs {
			eachValue(in.Argument,
				func(v int32) { shared[v] = shared[v] || n.Target != linearTarget || in.Name == "input" })
		}
	}
	for v, s := range t.linearSites {
		if shared[v] || len(t.weightOf[v].values) > 1 {
			layers = append(layers, s.Linear)
		}
	}
	return layers
}

func (t *task) Blocks() []string {
	if t.plain.Blocks == "" {
		return nil
	}
	return train.MatchingModules(t.plain.Blocks, t.plain.Modules)
}

func (t *task) OnBlock(blocks []string, enter func(block string)) error {
	t.gates, t.enter = map[int]string{}, enter
	for _, b := range blocks {
		found := moduleCalls(t.plain.Program, b)
		if len(found) != 1 {
			return fmt.Errorf("block %s is called %d times; a pipeline needs blocks that follow each other",
				b, len(found))
		}
		t.gates[found[0].begin] = b
	}
	return nil
}

// findRegions sets the calls that backward recomputes under checkpointing. The error belongs to the returned field.
func (t *task) findRegions() (field string, err error) {
	switch {
	case !t.c.Checkpointing:
		return "", nil
	case t.c.Blocks == "":
		return "checkpointing",
			errors.New("the model has no list of equal modules to recompute; name modules with --set " +
				"checkpoint=PATTERNS")
	}
	if t.regions, err = checkpointedRegions(t.plain.Program, t.c.Blocks); err != nil {
		return "checkpoint", err
	}
	t.regions = everyNthRegion(t.regions, t.c.Recompute.EveryLayers())
	return "", nil
}

// transformersOnlyField returns the first field of the case that only models of transformers support, with an error.
func transformersOnlyField(c models.Case) (field string, err error) {
	switch {
	case c.Recompute == models.ReentrantTrained:
		return "checkpointing",
			errors.New("reentrant-trained checkpointing works only with models of transformers (hf:config.json); use " +
				"--checkpointing reentrant")
	case c.TrainedWeights != "":
		return "trained-weights", errors.New("an exported graph fixes the types of its weights; leave out --weights, " +
			"and export the model with the types of training")
	}
	return "", nil
}

func everyNthRegion(all []region, n int) []region {
	var out []region
	for i := 0; i < len(all); i += max(n, 1) {
		out = append(out, all[i])
	}
	return out
}

func (t *task) BeforeMove(tape *trace.Tape, net *nn.Tree) {
	t.kept, t.hasBegun = nil, false
	if err := t.addConvolutionAnswers(tape); err != nil {
		tape.Raise(err)
	}
	if t.c.Strategy != nil && t.c.Strategy.Name == models.TP {
		t.wholeShapes = t.valueShapes(trace.New(tape.GPU(), *tape.Rules(), trace.Options{}), net)
	}
}

func (t *task) AfterMove(tape *trace.Tape, net *nn.Tree) {
	if t.channelsLast() {
		toChannelsLast(tape, net)
	}
}

// addConvolutionAnswers adds the answers of the release's cuDNN about convolutions to the tape.
func (t *task) addConvolutionAnswers(tape *trace.Tape) error {
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

// Load implements [train.Task]. A graph with fixed sizes is scaled to n samples.
func (t *task) Load(tape *trace.Tape, n int64) {
	if int(n) != t.c.Batch || !t.Training() {
		if err := t.setBatch(int(n)); err != nil {
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
			if err == nil && (n < 0 || n > maxSize) {
				err = fmt.Errorf("invalid size %d of an input: need 0 to %d", n, int64(maxSize))
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

// channelsLast reports whether 4D parameters and images are in channels_last format.
func (t *task) channelsLast() bool { return t.c.IsSwitchOn(channelsLast) }

// inputsChannelsLast records {k: v.contiguous(memory_format=torch.channels_last)} for the images among the inputs.
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

const maxSize = 1 << 40

// newRunner returns a runner at the first node of the graph, with weights and inputs set.
func (t *task) newRunner(g *trace.Frame) *nodeRunner {
	w := &nodeRunner{task: t, frame: g, values: make([]aten.Value, t.g.Values), wraps: t.wraps}
	if t.Training() {
		w.regions = t.regions
	}
	for v, x := range t.weightOf {
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
	w.setKeptStates()
	return w
}

// weightType returns the data type of the model's weights in forward.
func (t *task) weightType() trace.DType {
	if t.half.IsHalf() {
		return t.half
	}
	if d, cast := t.ranks.ParameterType(); cast {
		return d
	}
	return trace.F32
}

func (t *task) Loss(f *trace.Frame, loss **trace.Tensor) { t.Compute(f, new([]*trace.Tensor), loss) }

func (t *task) Compute(f *trace.Frame, results *[]*trace.Tensor, loss **trace.Tensor) *trace.Tensor {
	if !t.hasBegun && t.Training() {
		t.hasBegun = true
		for _, b := range t.first {
			if b.setBatch(t.c.Batch) == nil {
				return t.runFirstForward(b, f, results, loss)
			}
		}
	}
	g := f.CallFrame()
	w := t.newRunner(g)
	w.runNodes(0, len(t.g.Nodes))
	w.keepStates()
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
