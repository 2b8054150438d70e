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

// Task is a model with its batch and one loss, trained by AdamW with gradients clipped to a norm.
type Task interface {
	// Model returns the argument of [nn.NewTree]. Head returns the layer that freeze stage "head" trains.
	Model() any
	Head() any
	// Load copies a batch of n samples to the GPU, where it stays.
	Load(t *trace.Tape, n int64)
	// Loss sets *loss to the loss of the batch. It marks phase "forward" when the model has returned.
	Loss(f *trace.Frame, loss **trace.Tensor)
}

// Adaptable is a task whose model can have adapters.
type Adaptable interface {
	Task
	// OutputLayers returns the output layers, which get adapters only if they are named, and are not quantized.
	OutputLayers() []nn.Layer
	// LayersToSave returns pointers to the layers that peft adds to modules_to_save for the kind of task: a copy of
	// them is trained, and they get no adapters.
	LayersToSave() []*nn.Layer
	// RequireInputGrads makes the model's input embeddings require gradients.
	RequireInputGrads()
}

// EmbeddingAdapter is a task on tokens whose input embeddings peft's methods can adapt.
type EmbeddingAdapter interface {
	// AdaptEmbeddings adds a peft method at the input embeddings. The error names what the method does not support.
	AdaptEmbeddings(c peft.Config) (nn.Adapter, error)
}

// LossDetacher is a task whose trainer can keep the losses of micro-batches without their autograd graphs.
type LossDetacher interface {
	DetachesLoss() bool
}

// CheckpointPreparer is a task whose model needs preparation for checkpointing.
type CheckpointPreparer interface {
	// PrepareCheckpointing records what transformers' activation_checkpointing_enable does besides recomputing
	// layers: the output of the input embeddings requires gradients, even if they are frozen. LLaMA-Factory, which
	// recomputes only layers with trained parameters, does not.
	PrepareCheckpointing()
}

// ReferenceHolder is a task that compares the trained model with a frozen reference model.
type ReferenceHolder interface {
	// ReferenceModel returns the reference model as an argument of [nn.NewTree]; nil if there is none.
	ReferenceModel() any
}

// ValueHeadHolder is a task with a value head, which is trained as a whole in fp32, in addition to any adapters.
type ValueHeadHolder interface {
	// ValueHead returns the model with the value head, and the head, as arguments of [nn.NewTree]; nil without one.
	ValueHead() (model, head any)
}

// wholeModel returns the module that contains everything that a task trains.
func wholeModel(task Task, c models.Case) any {
	v, ok := task.(ValueHeadHolder)
	if !ok {
		return task.Model()
	}
	model, head := v.ValueHead()
	if model == nil {
		return task.Model()
	}
	if c.Strategy.IsDeepSpeed() { // DeepSpeed converts the model to one data type
		for _, p := range nn.NewTree(head).Parameters {
			p.DType = dtypeOf(c.Weights)
		}
	}
	return model
}

// StepPreparer is a task with work before the micro-batches of each step.
type StepPreparer interface {
	// Prepare records that work and marks its own phase.
	Prepare(f *trace.Frame)
}

// Graph is a task whose model is a graph of operator calls, such as an exported one. Its modules hold parameters and
// the layers that memory-saving options replace, but are never called as a whole; the task itself reports where calls
// of its modules begin and end.
type Graph interface {
	Adaptable
	// UnquantizedLayers returns the layers that are not quantized, in addition to OutputLayers.
	UnquantizedLayers() []nn.Layer
	// Blocks returns the modules that are wrapped, or begin stages, by default.
	Blocks() []string
	// Sharing maps the names of tied parameters to the other modules that use them.
	Sharing() map[string][]string
	// BeforeMove runs before the model moves to the GPU, and Moved after it.
	BeforeMove(t *trace.Tape, net *nn.Tree)
	AfterMove(t *trace.Tape, net *nn.Tree)
	// Wrap adds a strategy's wrappers around the calls of modules.
	Wrap(t *trace.Tape, net *nn.Tree, r *Ranks) error
	// OnBlock makes the graph call enter before each block.
	OnBlock(blocks []string, enter func(block string)) error
	// Compute computes the loss as Loss does, and returns the output of which it is computed. It stores the model's
	// outputs in results unless that is nil.
	Compute(f *trace.Frame, results *[]*trace.Tensor, loss **trace.Tensor) (of *trace.Tensor)
}

// AutocastTask is a task that can enter autocast itself.
type AutocastTask interface {
	// EntersAutocast reports whether the task enters autocast itself for each call of a model, as accelerate's wrapper
	// of forward does. Code after the call then runs outside of autocast.
	EntersAutocast() bool
}

// CompleteModel completes the registry's entry of a model that is trained as a task. Its freeze stages train the whole
// model ("full") or only its last layer ("head").
func CompleteModel(m models.Model, batch int, task func(models.Case) Task) models.Model {
	m.Stages, m.SupportsRanks = []string{"full", "head"}, true
	m.Default.Model, m.Default.Stage, m.Default.Batch, m.Default.Accumulate = m.Name, m.Stages[0], batch, 1
	m.Build = func(c models.Case) (models.Trainer, error) { return NewTrainer(task(c), c) }
	return m
}

// NewTrainer returns the trainer of a task for a case. The error is a [*models.CaseError].
func NewTrainer(task Task, c models.Case) (models.Trainer, error) {
	t, err := newTrainer(task, c)
	if err != nil {
		return nil, err
	}
	if c.Strategy != nil && c.Strategy.Name == models.PP {
		return pipelineTrainer{t}, nil
	}
	return t, nil
}

type taskTrainer struct {
	task Task
	// graph is the task if its model is a graph; nil otherwise.
	graph Graph
	c     models.Case
	net   *nn.Tree
	// adapters move to the GPU after the model.
	adapters []nn.Adapter
	// ranks is the model on one of several ranks; nil on one GPU. clipped are the parameters with clipped gradients.
	ranks   *Ranks
	clipped []*trace.Tensor
	// reference is a frozen reference model; nil if there is none.
	reference *nn.Tree
	// onBlock is called before each block, with the block's arguments, on a pipeline rank. It is nil between passes:
	// stages do not begin with a block that backward recomputes.
	onBlock func(block string, args []*trace.Tensor)
}

func newTrainer(task Task, c models.Case) (*taskTrainer, error) {
	castWeights(nn.NewTree(task.Model()), c.Weights)
	if c.IsSwitchOn(models.HalfEmbeddingsSetting) {
		castNamed(nn.NewTree(task.Model()), castToBF16Names, computeType(c))
	}
	if c.IsSwitchOn(models.FP32EmbeddingsSetting) {
		castNamed(nn.NewTree(task.Model()), axolotlFP32Names, trace.F32)
	}
	t := &taskTrainer{task: task, c: c}
	t.graph, _ = task.(Graph)
	if err := fakeQuantize(task, c); err != nil {
		return nil, err
	}
	if err := useFloat8Layers(task, c); err != nil {
		return nil, err
	}
	if c.LoRA != nil {
		var err error
		if t.adapters, err = addCaseAdapters(task, c); err != nil {
			return nil, err
		}
	}
	if r, ok := task.(CheckpointPreparer); ok && c.RequiresInputGrads() && c.Recompute != models.ReentrantTrained {
		r.PrepareCheckpointing()
	}
	t.net = nn.NewTree(wholeModel(task, c))
	if r, ok := task.(ReferenceHolder); ok && r.ReferenceModel() != nil {
		t.reference = nn.NewTree(r.ReferenceModel())
		for _, p := range t.reference.Parameters {
			p.DType, p.Frozen = dtypeOf(referenceWeights(c)), true
		}
		if c.IsSwitchOn(models.FP32EmbeddingsSetting) {
			castNamed(t.reference, axolotlFP32Names, trace.F32)
		}
	}
	if err := freezeUnselected(t.net, c); err != nil {
		return nil, err
	}
	if c.Stage == "head" {
		for _, p := range t.net.Parameters {
			p.Frozen = true
		}
		for _, p := range nn.NewTree(task.Head()).Parameters {
			p.Frozen = false
		}
		t.net = nn.NewTree(wholeModel(task, c)) // now with the head's modules
	}
	return t, nil
}

// fakeQuantize makes linear layers round weights and inputs: all of them, or only those with adapters.
func fakeQuantize(task Task, c models.Case) error {
	if c.QAT.IsZero() {
		return nil
	}
	wanted, excluded := func(string) bool { return true }, []nn.Layer(nil)
	if a, ok := task.(Adaptable); ok && c.LoRA != nil {
		wanted, excluded = c.LoRA.AdaptsPath(), a.OutputLayers()
	}
	q := nn.FakeQuantization{Group: c.QAT.Group, Legacy: c.QAT.Name == models.QAT8da4w}
	replaced, undivided := nn.FakeQuantizeLinears(task.Model(), q, wanted, excluded...)
	if replaced == 0 && undivided > 0 || undivided > 0 && !q.Legacy {
		return c.FieldError("qat", "groups of %d do not divide the inputs of its linear layers; take another group",
			q.Group)
	}
	return nil
}

// useFloat8Layers replaces linear layers, except the output layer, by float8 layers.
func useFloat8Layers(task Task, c models.Case) error {
	if c.Float8 == "" {
		return nil
	}
	var output []nn.Layer
	if a, ok := task.(Adaptable); ok {
		output = a.OutputLayers()
	}
	if nn.ReplaceByFloat8(task.Model(), output...) == 0 {
		return c.FieldError("float8", "the model has no linear layer whose sizes are multiples of 16")
	}
	return nil
}

// freezeUnselected freezes the parameters that the case does not select.
func freezeUnselected(net *nn.Tree, c models.Case) error {
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
		return c.FieldError("train-only",
			"%s is in the name of no parameter; they are named like %s", c.TrainOnly, names[len(names)/2])
	}
	return nil
}

// defaultOptimizer is the optimizer of tasks whose case sets none.
var defaultOptimizer = optim.Config{Algorithm: optim.AdamW, WeightDecay: true}

func (t *taskTrainer) Counts() models.Counts { return Counts(t.net, nil) }

func (t *taskTrainer) Record(tape *trace.Tape, steps int) error {
	return tape.Try(func() {
		t.applyDeviceMap(tape)
		t.placeModel(tape)
		if t.reference != nil {
			PlaceModel(tape, t.c, func() { t.reference.MoveToDevice(tape) })
			t.reference.SetTraining(false)
		}
		tape.Mark("model")
		s := NewSession(tape, t.c)
		if t.graph == nil && s.Scaler == nil && t.c.Objective.IsZero() {
			tape.AutocastAlone()
		}
		trained := Tensors(Trainable(t.net.Parameters))
		t.clipped = Tensors(t.net.Parameters)
		if t.c.Strategy != nil && t.c.Strategy.Name != models.DeviceMap {
			t.ranks = t.applyStrategy(s, t.net, false)
			trained, t.clipped = t.ranks.Parameters, t.ranks.Parameters
			if t.reference != nil && shardsReference(t.c) {
				t.applyStrategy(s, t.reference, true)
			}
		}
		opt := t.optimizer(s, trained)
		t.task.Load(tape, int64(t.c.Batch))
		tape.Mark("batch")
		names := s.LoopVariables(t.c, t.defaultLoop())
		for range tape.Steps(steps) {
			t.step(s, opt, names)
			tape.Mark("step_end")
		}
	})
}

func (t *taskTrainer) placeModel(tape *trace.Tape) {
	if t.graph != nil {
		t.graph.BeforeMove(tape, t.net)
	}
	PlaceModel(tape, t.c, func() {
		if t.graph == nil && t.c.LoadsOnGPU() {
			t.net.Load(tape, t.loadingOptions())
		} else {
			t.net.MoveToDevice(tape)
		}
		nn.MoveAdapters(tape, t.net, t.adapters)
	})
	if t.graph != nil {
		t.graph.AfterMove(tape, t.net)
	}
}

// optimizer returns one optimizer of all trained parameters or, with InBackward, one for each of them.
func (t *taskTrainer) optimizer(s *Session, trained []*trace.Tensor) *optim.Optimizer {
	if own, err := optim.Named(t.c.Optimizer); err == nil && own.LowRank() {
		s.Linears = linearLayers(t.task)
	}
	err := s.CheckProjected(t.c, trained)
	var opt *optim.Optimizer
	if err == nil {
		opt, err = s.OptimizerOfTensors(t.c, defaultOptimizer, t.ranks, t.ranks.Groups(trained)...)
	}
	if err == nil && t.c.Loop == models.LoopTrainer && s.Linears == nil { // Trainer.create_optimizer
		opt.FP32States = Tensors(lists.Filter(t.net.Parameters, func(p *nn.Parameter) bool { return p.IsEmbedding }))
	}
	if err == nil && t.c.InBackward {
		err = s.InBackward(t.c, defaultOptimizer, Tensors(Trainable(t.net.Parameters)))
	}
	if err != nil {
		s.Tape.Raise(err)
	}
	return opt
}

// defaultLoop returns the default training loop: LoopFunction for graphs, and otherwise that of transformers' Trainer,
// which clips gradients.
func (t *taskTrainer) defaultLoop() models.Loop {
	if t.graph != nil {
		return models.LoopFunction
	}
	return models.LoopTrainer
}

func (t *taskTrainer) clipsGradients() bool {
	return t.c.Clip == models.ClipNorm || t.c.Clip == "" && t.defaultLoop() == models.LoopTrainer
}

func linearLayers(task Task) map[*trace.Tensor]Linear {
	all := map[*trace.Tensor]Linear{}
	var output []nn.Layer
	if a, ok := task.(Adaptable); ok {
		output = a.OutputLayers()
	}
	for path, l := range nn.Linears(task.Model()) {
		all[l.Weight.Tensor] = Linear{path, slices.Contains(output, nn.Layer(l))}
	}
	return all
}

// step runs the micro-batches of one step, and then unscale, clip and the optimizer's step.
func (t *taskTrainer) step(s *Session, opt *optim.Optimizer, f *LoopVariables) {
	f.Begin(s.Tape, opt)
	t.net.SetTraining(true)
	for i := range t.c.Accumulate {
		t.ranks.Begin(i, t.c.Accumulate)
		if i == 0 {
			t.prepareStep(f.Frame)
		}
		t.forward(s, func() {
			if t.graph != nil {
				t.graph.Compute(f.Frame, &f.Outputs, &f.Loss)
			} else {
				t.task.Loss(f.Frame, &f.Loss)
				peft.AddPenalty(f.Frame, t.adapters, f.Loss)
			}
			// the Trainer divides by the number of micro-batches, even if it is 1
			if f.KeepsLossAlone() || t.c.Accumulate > 1 {
				f.Set(&f.Loss, f.Loss.DivScalar())
			}
			f.AfterLoss()
			s.Tape.Mark("loss")
		})
		if !f.Loss.RequiresGrad() {
			s.Tape.Raise(noGradError(t.c))
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
	case t.clipsGradients():
		s.StepOver(opt, t.clipped)
	default:
		s.StepOver(opt, nil)
	}
	t.ranks.End(s.Tape)
	s.Tape.Mark("optimizer")
	f.EndStep(s.Tape, opt)
}

// noGradError returns PyTorch's error of a backward without trained parameters, with the cause if it is known.
func noGradError(c models.Case) error {
	why := "the loss hangs on nothing that is trained; where an autograd.Function of the model trains parameters " +
		"that are not its arguments, record its steps: vprof capture --step"
	if c.Checkpointing && c.Recompute == models.Reentrant {
		why = "reentrant checkpointing differentiates nothing whose inputs do not require gradients, so use " +
			"--checkpointing non-reentrant"
	}
	return errors.New("RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn; " + why)
}

// prepareStep runs a task's work before the micro-batches of a step.
func (t *taskTrainer) prepareStep(f *trace.Frame) {
	if p, ok := t.task.(StepPreparer); ok {
		p.Prepare(f)
	}
}

// forward runs f, the forward pass, under autocast.
func (t *taskTrainer) forward(s *Session, f func()) {
	if c, ok := t.task.(AutocastTask); ok && c.EntersAutocast() {
		s.WithOffload(t.c, f)
		return
	}
	s.Forward(t.c, f)
}

// Trainable returns the parameters that are not frozen.
func Trainable(params []*nn.Parameter) []*nn.Parameter {
	return lists.Filter(params, func(p *nn.Parameter) bool { return !p.Frozen })
}
