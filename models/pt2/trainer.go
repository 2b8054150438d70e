package pt2

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/models/train"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// trainer is the training system of a graph and a case: forward and loss under
// autocast, backward, the optimizer's step, zero_grad(set_to_none=True). The
// batch lies on the device and stays there.
type trainer struct {
	g        *graph
	c        models.Case
	w        *weights
	symbols  map[string]int64
	output   int
	loss     loss
	half     trace.DType        // of the weights, if they are in half precision
	adapters map[int32]*adapter // by the weights of linear layers
	packed   map[int32]nn.Quantized
	regions  []region        // that are recomputed
	inputs   []*trace.Tensor // by place among the program's inputs
	// ranks is the model as one rank of several has it, nil on one GPU; wraps are the
	// calls of its wrapped modules, in order, the outer before the inner.
	ranks *train.Ranks
	wraps []*wrapped
	// whole are the shapes of values where no rank has a part only; nil but under
	// tensor parallelism.
	whole [][]int64
	// head is the output layer where scores and loss are computed in chunks, nil otherwise.
	head *head
	// evaluating is model.eval().
	evaluating bool
}

// newTrainer makes the training system of a case. The error is a
// [*models.CaseError].
func newTrainer(g *graph, d *dimensions, c models.Case) (models.Trainer, error) {
	wrong := func(field string, err error) error {
		return &models.CaseError{Model: c.Model, Field: field, Reason: err.Error()}
	}
	p, err := d.scale(g.Program, int64(c.Batch))
	if err != nil {
		return nil, wrong("batch", err)
	}
	plain := g
	g = &graph{Program: p, calls: g.calls, functions: g.functions}
	t := &trainer{g: g, c: c, w: newWeights(g.Program), symbols: d.at(c)}
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
	t.loss = losses[c.Loss]
	if err = t.w.freeze(c.Freeze); err != nil {
		return nil, wrong("freeze", err)
	}
	if c.TrainOnly != "" && !t.w.trainOnly(regexp.MustCompile(c.TrainOnly)) {
		return nil, train.NothingChosen(c, t.w.parameters[len(t.w.parameters)/2].name)
	}
	if field, err := ofConfigurations(c); err != nil {
		return nil, wrong(field, err)
	}
	if c.Weights != "" {
		t.half = map[models.WeightType]trace.DType{"bf16": trace.BF16, "fp16": trace.F16}[c.Weights]
		t.w.cast(t.half)
	}
	if c.LoRA != nil {
		if t.adapters, err = t.w.adapt(g.Program, *c.LoRA); err != nil {
			return nil, wrong("lora", err)
		}
	}
	if field, err := t.recompute(); err != nil {
		return nil, wrong(field, err)
	}
	if err = t.useLiger(); err != nil {
		return nil, wrong("liger", err)
	}
	if err = t.quantize(); err != nil {
		return nil, wrong("quantize", err)
	}
	if setting, err := t.chunkLoss(); err != nil {
		return nil, wrong(setting, err)
	}
	if c.Strategy != nil && c.Strategy.Name == models.PP {
		return t, nil
	}
	return &validator{trainer: t, plain: plain, sizes: d}, nil
}

// recompute finds the calls that backward runs again, if the case asks for it. The error is of
// the field that it names.
func (t *trainer) recompute() (field string, err error) {
	switch {
	case !t.c.Checkpointing:
		return "", nil
	case t.c.Blocks == "":
		return "checkpointing", errors.New("there is no list of equal modules; name those to recompute with --checkpoint")
	}
	if t.regions, err = regions(t.g.Program, t.c.Blocks); err != nil {
		return "checkpoint", err
	}
	t.regions = everyNth(t.regions, t.c.EveryLayers())
	return "", nil
}

// ofConfigurations refuses what is described of models of transformers alone, by its field.
func ofConfigurations(c models.Case) (field string, err error) {
	switch {
	case c.Recompute == models.ReentrantTrained:
		return "checkpointing", errors.New("vprof records reentrant-trained in models of transformers (hf:config.json); use reentrant")
	case c.StateOfFrozen:
		return "state-of-frozen", errors.New("vprof records it for models of transformers (hf:config.json)")
	case c.TrainedWeights != "":
		return "trained-weights", errors.New("a graph has the types of its weights; export it with those of training")
	}
	return "", nil
}

// quantize packs the layers that bitsandbytes holds, if the case asks for it.
func (t *trainer) quantize() error {
	if t.c.Quantize == "" {
		return nil
	}
	if t.c.Strategy != nil {
		return errors.New("vprof describes packed layers of exported models on one GPU; leave out --strategy")
	}
	if t.packed = t.w.quantize(t.g.Program, t.c); len(t.packed) == 0 {
		return errors.New("the model has no linear layer that bitsandbytes could hold")
	}
	return nil
}

// errNoGrad is what PyTorch raises in backward.
var errNoGrad = errors.New("RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn; reentrant checkpointing differentiates nothing whose inputs do not require gradients, so use --checkpointing non-reentrant")

// everyNth are the first of each n regions.
func everyNth(all []region, n int) []region {
	var out []region
	for i := 0; i < len(all); i += max(n, 1) {
		out = append(out, all[i])
	}
	return out
}

// Counts implements [models.Trainer].
func (t *trainer) Counts() models.Counts { return t.w.counts() }

// Record implements [models.Trainer].
func (t *trainer) Record(tape *trace.Tape, steps int) error {
	if err := t.answerConvolutions(tape); err != nil {
		return err
	}
	if t.c.Strategy != nil && t.c.Strategy.Name == models.PP {
		return t.recordPipeline(tape, steps)
	}
	return tape.Try(func() {
		if t.c.Strategy != nil && t.c.Strategy.Name == models.TP {
			t.whole = t.wholeShapes(tape)
		}
		train.Place(tape, t.c, func() { t.w.to(tape) })
		if t.channelsLast() {
			t.w.toChannelsLast(tape)
		}
		tape.Mark("model")
		s := train.NewSession(tape, t.c)
		trained := t.w.trainable()
		if t.c.Strategy != nil {
			var err error
			if t.ranks, err = t.distribute(tape); err != nil {
				tape.Raise(err)
			}
			trained = t.ranks.Parameters
		}
		s.Linears = t.w.linears(t.g.Program)
		if err := s.CheckProjected(t.c, trained); err != nil {
			tape.Raise(err)
		}
		opt, err := s.OptimizerOf(t.c, ownOptimizer, t.ranks, trained)
		if err != nil {
			tape.Raise(err)
		}
		if t.c.InBackward {
			if err := s.InBackward(t.c, ownOptimizer, t.w.trainable()); err != nil {
				tape.Raise(err)
			}
		}
		t.load(tape)
		tape.Mark("batch")
		names := s.Names(t.c, models.LoopFunction)
		for i := range steps {
			tape.SetStep(i)
			t.step(s, opt, trained, names)
			tape.Mark("step_end")
		}
	})
}

// answerConvolutions gives a tape what the release's cuDNN said itself about
// convolutions on its boards.
func (t *trainer) answerConvolutions(tape *trace.Tape) error {
	if len(t.g.Asked) == 0 && t.g.Oracle == nil {
		return nil
	}
	release, err := t.c.Release()
	if err != nil {
		return err
	}
	answers := t.g.Asked.With(t.g.Oracle)
	tape.AnswerConvolutions(func(b trace.Board) cudnn.Answer {
		return answers(release.Versions().CuDNN, cudnn.Generation(cudnn.Board{Capability: b.Capability}))
	})
	return nil
}

// ownOptimizer is the optimizer of cases that name none.
var ownOptimizer = optim.Config{Algorithm: optim.AdamW, WeightDecay: true}

// load makes the batch on the device.
func (t *trainer) load(tape *trace.Tape) {
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
				err = fmt.Errorf("%d is no size", n)
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

// channelsLast says that parameters and images of four dimensions are laid out
// with their channels last.
func (t *trainer) channelsLast() bool { return t.c.Settings[channelsLast] == 1 }

// inputsChannelsLast is {k: v.contiguous(memory_format=torch.channels_last)} of
// the images among the inputs.
func (t *trainer) inputsChannelsLast(tape *trace.Tape) {
	var old []*trace.Tensor
	for i, x := range t.inputs {
		if x == nil || x.NDim() != 4 {
			continue
		}
		t.inputs[i] = tape.Hold(tape.NewChannelsLast("contiguous", program.Batch, x.DType(), x.Shape()...))
		old = append(old, x)
	}
	for _, x := range old {
		tape.Release(x)
	}
}

// mostSize is the upper bound of a dimension of the batch.
const mostSize = 1 << 40

// step is one update of the optimizer, to the parameters that the rank trains.
func (t *trainer) step(s *train.Session, opt *optim.Optimizer, trained []*trace.Tensor, f *train.Names) {
	f.Begin(s.Tape, opt)
	for i := range t.c.Accumulate {
		t.ranks.Begin(i, t.c.Accumulate)
		s.Forward(t.c, func() {
			results, out := t.forward(f.Frame)
			f.Returned(results)
			s.Tape.Mark("forward")
			l := t.loss(f.Frame, out)
			if t.c.Accumulate > 1 {
				l = l.DivScalar()
			}
			f.Set(&f.Loss, l)
			f.Taken()
			s.Tape.Mark("loss")
		})
		if !f.Loss.RequiresGrad() {
			s.Tape.Raise(errNoGrad)
		}
		s.Backward(f.Loss)
		s.Tape.Mark("backward")
	}
	t.update(s, opt, trained)
	t.ranks.End(s.Tape)
	s.Tape.Mark("optimizer")
	f.EndStep(s.Tape, opt)
}

// update is what follows backward: unscaling, clipping, the optimizer's step.
func (t *trainer) update(s *train.Session, opt *optim.Optimizer, trained []*trace.Tensor) {
	switch {
	case t.c.InBackward:
	case t.ranks.Updates():
		t.ranks.Update(opt.Step)
	case t.c.Clip == models.ClipNorm:
		s.StepOver(opt, trained)
	default:
		s.StepOver(opt, nil)
	}
}

// walker is one at the beginning of the graph, in a frame, with weights and inputs in
// place.
func (t *trainer) walker(g *trace.Frame) *walker {
	w := &walker{g: t.g, frame: g, values: make([]aten.Value, t.g.Values), regions: t.regions, adapters: t.adapters, packed: t.packed, reentrant: t.c.Recompute == models.Reentrant, weights: trace.F32, wraps: t.wraps, whole: t.whole, evaluating: t.evaluating}
	if d, cast := t.ranks.ParameterType(); cast {
		w.weights = d
	}
	if t.half.IsHalf() {
		w.weights = t.half
	}
	for _, x := range t.w.moved {
		for _, v := range x.values {
			w.values[v] = x.x
		}
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
	return w
}

// forward runs the model and returns the tensors among its results, and the one that the
// loss is of.
func (t *trainer) forward(f *trace.Frame) (results []*trace.Tensor, out *trace.Tensor) {
	g := f.CallFrame()
	w := t.walker(g)
	w.run(0, len(t.g.Nodes))
	outs := make([]*trace.Tensor, len(t.g.Results))
	var alive []*trace.Tensor
	for i, r := range t.g.Results {
		if r.Value < 0 {
			continue
		}
		if x, ok := w.values[r.Value].(*trace.Tensor); ok {
			outs[i] = x
			alive = append(alive, x)
		}
	}
	g.End(alive...)
	outs = t.ranks.LeaveRoot(f, outs)
	out = outs[t.output]
	return slices.DeleteFunc(outs, func(x *trace.Tensor) bool { return x == nil }), out
}
