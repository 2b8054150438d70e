package train

import (
	"errors"
	"regexp"
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/peft"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
)

// Task is a model with its batch and loss that is trained in the usual way: AdamW over the trainable parameters,
// gradients clipped to a norm, one loss.
type Task interface {
	// Model is what [nn.NewTree] takes, Head the layer that stage "head" trains.
	Model() any
	Head() any
	// Load brings a batch of n samples to the device, where it stays.
	Load(t *trace.Tape, n int64)
	// Loss binds *loss to the loss of the batch. It marks phase "forward" when the model has returned.
	Loss(f *trace.Frame, loss **trace.Tensor)
}

// Adaptable is a task whose model can be trained through low-rank adapters.
type Adaptable interface {
	Task
	// Unadapted are the layers that get adapters only if they are named, and that are not quantized with the others:
	// output embeddings.
	Unadapted() []nn.Layer
	// Saved returns the places of layers that are trained as a whole, in a copy: the layers that peft adds to
	// modules_to_save for the kind of task. Adapters leave them alone, too.
	Saved() []*nn.Layer
	// RequireInputGrads makes the input embeddings of the model require gradients.
	RequireInputGrads()
}

// EmbeddingAdapter is a task over tokens, whose input embeddings peft's methods can adapt.
type EmbeddingAdapter interface {
	// AdaptEmbeddings puts a method of peft at the input embeddings. The error describes what it does not take.
	AdaptEmbeddings(c peft.Config) (nn.Adapter, error)
}

// LossDetacher is a task whose trainer may keep the losses of micro-batches without their graphs.
type LossDetacher interface {
	DetachesLoss() bool
}

// RecomputePreparer is a task whose model prepares itself for recomputation.
type RecomputePreparer interface {
	// PrepareRecomputation does what transformers' activation_checkpointing_enable does besides recomputing layers: in
	// models over tokens the output of the input embeddings requires gradients, even if they are frozen. LLaMA-Factory,
	// which recomputes only layers with trained parameters, leaves it out.
	PrepareRecomputation()
}

// ReferenceHolder is a task that compares the trained model with a frozen one.
type ReferenceHolder interface {
	// ReferenceModel is the frozen model, as [nn.NewTree] accepts it; nil if there is none.
	ReferenceModel() any
}

// ValueHeadHolder is a task with a value head around its model, trained as a whole, in fp32, in addition to any
// adapters.
type ValueHeadHolder interface {
	// Valued are the model with the head and the head, as [nn.NewTree] takes them; nil if there is none.
	Valued() (model, head any)
}

// wholeModel returns everything that a task trains.
func wholeModel(task Task, c models.Case) any {
	v, ok := task.(ValueHeadHolder)
	if !ok {
		return task.Model()
	}
	model, head := v.Valued()
	if model == nil {
		return task.Model()
	}
	if c.Strategy.DeepSpeed() { // which brings all of the model to one type
		for _, p := range nn.NewTree(head).Parameters {
			p.DType = dtypeOf(c.Weights)
		}
	}
	return model
}

// StepPreparer is a task that does something before the micro-batches of each step.
type StepPreparer interface {
	// Prepare does that work and marks its own phase.
	Prepare(f *trace.Frame)
}

// Graph is a task whose model is a list of operator calls, as in exports: its modules hold parameters and the layers
// that memory-saving options replace, but are never called as a whole. The task itself reports where calls of its
// modules begin and end.
type Graph interface {
	Adaptable
	// Unpacked returns the layers that are not quantized with the others, in addition to the layers of Unadapted.
	Unpacked() []nn.Layer
	// Blocks are the modules that are wrapped, and that stages begin with, unless the case names others.
	Blocks() []string
	// Sharing are the modules that use a parameter of another, by its name.
	Sharing() map[string][]string
	// Begin runs before the model is moved to the device, and Moved after it.
	Begin(t *trace.Tape, net *nn.Tree)
	Moved(t *trace.Tape, net *nn.Tree)
	// Wrap puts a strategy's wrappers around the calls of modules.
	Wrap(t *trace.Tape, net *nn.Tree, r *Ranks) error
	// Gate has enter called before each block.
	Gate(blocks []string, enter func(block string)) error
	// Compute is Loss with what the model returned, unless results is nil; of is the result that the loss is of.
	Compute(f *trace.Frame, results *[]*trace.Tensor, loss **trace.Tensor) (of *trace.Tensor)
}

// AutocastTask is a task that enters the training precision by itself.
type AutocastTask interface {
	// Casts reports whether it does: each call of a model is a region of autocast, as
	// accelerate wraps forward, and what follows the call is outside.
	Casts() bool
}

// Model completes a registry entry for a model that is trained as a task, with a default batch size. Its freeze stages
// train either the whole model or only its last layer.
func Model(m models.Model, batch int, task func(models.Case) Task) models.Model {
	m.Stages, m.SupportsRanks = []string{"full", "head"}, true
	m.Default.Model, m.Default.Stage, m.Default.Batch, m.Default.Accumulate = m.Name, m.Stages[0], batch, 1
	m.Build = func(c models.Case) (models.Trainer, error) { return Build(task(c), c) }
	return m
}

// Build makes the training system of a task for a case. The error is a [*models.CaseError].
func Build(task Task, c models.Case) (models.Trainer, error) {
	t, err := newTrainer(task, c)
	if err != nil {
		return nil, err
	}
	if c.Strategy != nil && c.Strategy.Name == models.PP {
		return pipelineTrainer{t}, nil
	}
	return t, nil
}

// taskTrainer is the training system of a task and a case.
type taskTrainer struct {
	task Task
	// graph is the task if its model is a graph, nil if it is a tree of modules.
	graph Graph
	c     models.Case
	net   *nn.Tree
	// adapters come to the device after the model.
	adapters []nn.Adapter
	// ranks is the model as in one of several ranks, nil on one GPU; clipped are the parameters with clipped gradients.
	ranks   *Ranks
	clipped []*trace.Tensor
	// reference is a frozen model to compare with, nil for most.
	reference *nn.Tree
	// onBlock is called before each block, with its arguments, where a rank has stages of a pipeline; nil between
	// passes: stages do not begin with a block that backward recomputes.
	onBlock func(block string, args []*trace.Tensor)
}

// newTrainer makes the training system of a task for a case. The error is a [*models.CaseError].
func newTrainer(task Task, c models.Case) (*taskTrainer, error) {
	castWeights(nn.NewTree(task.Model()), c.Weights)
	if c.On(models.HalfEmbeddingsSetting) {
		narrowEmbeddings(nn.NewTree(task.Model()), computeType(c))
	}
	t := &taskTrainer{task: task, c: c}
	t.graph, _ = task.(Graph)
	if err := fakeQuantize(task, c); err != nil {
		return nil, err
	}
	if err := multiplyInFloat8(task, c); err != nil {
		return nil, err
	}
	if c.LoRA != nil {
		var err error
		if t.adapters, err = addAdapters(task, c); err != nil {
			return nil, err
		}
	}
	if r, ok := task.(RecomputePreparer); ok && c.Checkpointing && c.Recompute != models.ReentrantTrained {
		r.PrepareRecomputation()
	}
	t.net = nn.NewTree(wholeModel(task, c))
	if r, ok := task.(ReferenceHolder); ok && r.ReferenceModel() != nil {
		t.reference = nn.NewTree(r.ReferenceModel())
		for _, p := range t.reference.Parameters {
			p.DType, p.Frozen = dtypeOf(referenceWeights(c)), true
		}
	}
	if err := trainOnly(t.net, c); err != nil {
		return nil, err
	}
	if c.Stage == "head" {
		for _, p := range t.net.Parameters {
			p.Frozen = true
		}
		for _, p := range nn.NewTree(task.Head()).Parameters {
			p.Frozen = false
		}
		t.net = nn.NewTree(wholeModel(task, c)) // the head's modules have their names again
	}
	return t, nil
}

// fakeQuantize makes linear layers round weights and inputs: all layers, or only layers with adapters.
func fakeQuantize(task Task, c models.Case) error {
	if c.QAT.IsZero() {
		return nil
	}
	wanted, excluded := func(string) bool { return true }, []nn.Layer(nil)
	if a, ok := task.(Adaptable); ok && c.LoRA != nil {
		wanted, excluded = c.LoRA.AdaptsPath(), a.Unadapted()
	}
	q := nn.FakeQuantization{Group: c.QAT.Group, Legacy: c.QAT.Name == models.QAT8da4w}
	replaced, undivided := nn.FakeQuantizeLinears(task.Model(), q, wanted, excluded...)
	if replaced == 0 && undivided > 0 || undivided > 0 && !q.Legacy {
		return c.Wrong("qat", "groups of %d do not divide the inputs of its linear layers; take another group", q.Group)
	}
	return nil
}

// multiplyInFloat8 makes linear layers except the output layer multiply in 8-bit floats.
func multiplyInFloat8(task Task, c models.Case) error {
	if c.Float8 == "" {
		return nil
	}
	var output []nn.Layer
	if a, ok := task.(Adaptable); ok {
		output = a.Unadapted()
	}
	if nn.Float8Linears(task.Model(), output...) == 0 {
		return c.Wrong("float8", "the model has no linear layer whose sizes are multiples of 16")
	}
	return nil
}

// trainOnly freezes the parameters that the case does not name.
func trainOnly(net *nn.Tree, c models.Case) error {
	if c.TrainOnly == "" {
		return nil
	}
	wanted, found := regexp.MustCompile(c.TrainOnly), false
	names := net.Names()
	for i, p := range net.Parameters {
		p.Frozen = p.Frozen || !wanted.MatchString(names[i])
		found = found || !p.Frozen
		if !p.Frozen && c.TrainedWeights != "" {
			p.DType = dtypeOf(c.TrainedWeights)
		}
	}
	if !found {
		return c.Wrong("train-only",
			"%s is in the name of no parameter; they are named like %s", c.TrainOnly, names[len(names)/2])
	}
	return nil
}

// defaultOptimizer is the optimizer of tasks.
var defaultOptimizer = optim.Config{Algorithm: optim.AdamW, WeightDecay: true}

// Counts implements [models.Trainer].
func (t *taskTrainer) Counts() models.Counts { return Counts(t.net, nil) }

// Record implements [models.Trainer].
func (t *taskTrainer) Record(tape *trace.Tape, steps int) error {
	return tape.Try(func() {
		t.spread(tape)
		t.place(tape)
		if t.reference != nil {
			Place(tape, t.c, func() { t.reference.To(tape) })
			t.reference.Train(false)
		}
		tape.Mark("model")
		s := NewSession(tape, t.c)
		if t.graph == nil && s.Scaler == nil && t.c.Objective.IsZero() {
			tape.AutocastAlone()
		}
		trained := Tensors(Trainable(t.net.Parameters))
		t.clipped = Tensors(t.net.Parameters)
		if t.c.Strategy != nil && t.c.Strategy.Name != models.DeviceMap {
			t.ranks = t.shareModel(s, t.net, false)
			trained, t.clipped = t.ranks.Parameters, t.ranks.Parameters
			if t.reference != nil && sharesReference(t.c) {
				t.shareModel(s, t.reference, true)
			}
		}
		opt := t.optimizer(s, trained)
		t.task.Load(tape, int64(t.c.Batch))
		tape.Mark("batch")
		names := s.LoopVariables(t.c, t.loop())
		for range tape.Steps(steps) {
			t.step(s, opt, names)
			tape.Mark("step_end")
		}
	})
}

// place brings the model to the device.
func (t *taskTrainer) place(tape *trace.Tape) {
	if t.graph != nil {
		t.graph.Begin(tape, t.net)
	}
	Place(tape, t.c, func() {
		if t.graph == nil && t.c.LoadsWeights() {
			t.net.Load(tape, t.loading())
		} else {
			t.net.To(tape)
		}
		nn.MoveAdapters(tape, t.net, t.adapters)
	})
	if t.graph != nil {
		t.graph.Moved(tape, t.net)
	}
}

// optimizer returns one optimizer of all trained parameters, or one for each of them.
func (t *taskTrainer) optimizer(s *Session, trained []*trace.Tensor) *optim.Optimizer {
	if own, err := optim.Named(t.c.Optimizer); err == nil && own.LowRank() {
		s.Linears = linearLayers(t.task)
	}
	err := s.CheckProjected(t.c, trained)
	var opt *optim.Optimizer
	if err == nil {
		opt, err = s.OptimizerOf(t.c, defaultOptimizer, t.ranks, t.ranks.Groups(trained)...)
	}
	if err == nil && t.c.InBackward {
		err = s.InBackward(t.c, defaultOptimizer, Tensors(Trainable(t.net.Parameters)))
	}
	if err != nil {
		s.Tape.Raise(err)
	}
	return opt
}

// loop returns the default training loop of a case: LoopFunction for graphs, and otherwise transformers' Trainer, which
// clips gradients.
func (t *taskTrainer) loop() models.Loop {
	if t.graph != nil {
		return models.LoopFunction
	}
	return models.LoopTrainer
}

// clips reports whether the norm of gradients is clipped.
func (t *taskTrainer) clips() bool {
	return t.c.Clip == models.ClipNorm || t.c.Clip == "" && t.loop() == models.LoopTrainer
}

// linearLayers returns the linear layers of a task's model by their weights.
func linearLayers(task Task) map[*trace.Tensor]Linear {
	all := map[*trace.Tensor]Linear{}
	var output []nn.Layer
	if a, ok := task.(Adaptable); ok {
		output = a.Unadapted()
	}
	for path, l := range nn.Linears(task.Model()) {
		all[l.Weight.Tensor] = Linear{path, slices.Contains(output, nn.Layer(l))}
	}
	return all
}

// step runs one update: micro-batches, then unscale, clip, step.
func (t *taskTrainer) step(s *Session, opt *optim.Optimizer, f *LoopVariables) {
	f.Begin(s.Tape, opt)
	t.net.Train(true)
	for i := range t.c.Accumulate {
		t.ranks.Begin(i, t.c.Accumulate)
		if i == 0 {
			t.prepare(f.Frame)
		}
		t.forward(s, func() {
			if t.graph != nil {
				t.graph.Compute(f.Frame, &f.Outputs, &f.Loss)
			} else {
				t.task.Loss(f.Frame, &f.Loss)
				peft.AddPenalty(f.Frame, t.adapters, f.Loss)
			}
			if f.KeepsLossAlone() || t.c.Accumulate > 1 { // which divides by the number of micro-batches, be it one
				f.Set(&f.Loss, f.Loss.DivScalar())
			}
			f.AfterLoss()
			s.Tape.Mark("loss")
		})
		if !f.Loss.RequiresGrad() {
			s.Tape.Raise(noGrad(t.c))
		}
		f.AfterForward(i, opt)
		s.Backward(f.Loss)
		if !t.c.Objective.IsZero() { // training_step of transformers' Trainer returns a copy
			f.Del(&f.Loss)
		} else if d, ok := t.task.(LossDetacher); ok && d.DetachesLoss() {
			f.Set(&f.Loss, f.Loss.Detach())
		}
		s.Tape.Mark("backward")
	}
	switch {
	case t.c.InBackward:
	case t.ranks.OwnsOptimizerStep():
		t.ranks.update(opt.Step)
	case t.clips():
		s.StepOver(opt, t.clipped)
	default:
		s.StepOver(opt, nil)
	}
	t.ranks.End(s.Tape)
	s.Tape.Mark("optimizer")
	f.EndStep(s.Tape, opt)
}

// noGrad returns the error that PyTorch raises in backward, with the reason if vprof knows it.
func noGrad(c models.Case) error {
	why := "the loss hangs on nothing that is trained; where an autograd.Function of the model trains parameters " +
		"that are not its arguments, record its steps: vprof capture --step"
	if c.Checkpointing && c.Recompute == models.Reentrant {
		why = "reentrant checkpointing differentiates nothing whose inputs do not require gradients, so use " +
			"--checkpointing non-reentrant"
	}
	return errors.New("RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn; " + why)
}

// prepare runs what a task does before the micro-batches of a step.
func (t *taskTrainer) prepare(f *trace.Frame) {
	if p, ok := t.task.(StepPreparer); ok {
		p.Prepare(f)
	}
}

// forward runs f, the forward pass, in the precision of training.
func (t *taskTrainer) forward(s *Session, f func()) {
	if c, ok := t.task.(AutocastTask); ok && c.Casts() {
		s.Saving(t.c, f)
		return
	}
	s.Forward(t.c, f)
}

// Trainable returns the parameters that are not frozen.
func Trainable(params []*nn.Parameter) []*nn.Parameter {
	return lists.Filter(params, func(p *nn.Parameter) bool { return !p.Frozen })
}
