// Package optim records what the optimizers of torch.optim, GradScaler, gradient clipping and weight averaging allocate
// and free. Each function follows its PyTorch 2.11 original statement by statement, so temporaries live exactly as long
// as Python's names for them do.
package optim

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Algorithm is a class of torch.optim, bitsandbytes.optim, or another library, by its name.
type Algorithm string

// The optimizer algorithms.
const (
	SGD             Algorithm = "SGD"
	Adam            Algorithm = "Adam"
	AdamW           Algorithm = "AdamW"
	NAdam           Algorithm = "NAdam"
	Adamax          Algorithm = "Adamax"
	RMSprop         Algorithm = "RMSprop"
	Adagrad         Algorithm = "Adagrad"
	Adadelta        Algorithm = "Adadelta"
	Adafactor       Algorithm = "Adafactor"
	Muon            Algorithm = "Muon"
	AdamW8bit       Algorithm = "AdamW8bit"
	AdamW32bit      Algorithm = "AdamW32bit"
	Lion8bit        Algorithm = "Lion8bit"
	Lion32bit       Algorithm = "Lion32bit"
	AdamW4bit       Algorithm = "AdamW4bit"
	GaLoreAdamW     Algorithm = "GaLoreAdamW"
	GaLoreAdamW8bit Algorithm = "GaLoreAdamW8bit"
	GaLoreAdafactor Algorithm = "GaLoreAdafactor"
	AdafactorHF     Algorithm = "transformers.Adafactor"
	AdamW8bitAO     Algorithm = "torchao.AdamW8bit"
	AdamWFp8        Algorithm = "AdamWFp8"
	// None updates nothing: a step is forward and backward.
	None Algorithm = "none"
)

// Implementation selects one of PyTorch's loops over parameters: single-tensor, foreach or fused.
type Implementation uint8

// The implementations of PyTorch's optimizers.
const (
	// Foreach updates lists of tensors (foreach=True), PyTorch's default on CUDA except for Adafactor.
	Foreach Implementation = iota
	// SingleTensor works on one parameter after the other (foreach=False).
	SingleTensor
	// Fused updates parameters by fused kernels (fused=True).
	Fused
)

// Config is an optimizer and the options that affect memory. Coefficients only affect it by being zero or not.
type Config struct {
	Algorithm      Algorithm
	Implementation Implementation

	Momentum    bool // SGD: momentum != 0
	WeightDecay bool // weight_decay != 0
	AMSGrad     bool // Adam, AdamW
	Paged       bool // of bitsandbytes: state in managed memory

	// Rank is the rank of the matrices that project gradients. Target selects the layers by parts of their paths,
	// joined by plus signs; empty selects all linear layers but the output layer.
	Rank   int64
	Target string
}

// Moments returns the number of state tensors of a parameter's size, for an optimizer that steps on the host.
func (c Config) Moments() int64 {
	switch {
	case c.Algorithm == SGD && !c.Momentum, c.Algorithm == Adafactor, c.Algorithm == AdafactorHF, c.Algorithm == None:
		return 0
	case c.Algorithm == SGD, c.Algorithm == RMSprop, c.Algorithm == Adagrad, c.Algorithm == Muon:
		return 1
	case c.AMSGrad:
		return 3
	}
	return 2
}

// Optimizer owns the state of its parameters.
type Optimizer struct {
	config Config
	rule   rule
	tape   *trace.Tape
	held   *trace.Frame // keeps the state alive
	groups [][]*slot
	// share holds the parameters that this rank updates, in order, if others update the rest.
	share []*slot
	maps  int // tables of 8-bit values on the device
	// FP32States are parameters of bitsandbytes' 8-bit optimizers whose state is in fp32 (register_module_override).
	FP32States []*trace.Tensor
}

// slot is a parameter and its state (optimizer.state[p]).
type slot struct {
	param *trace.Tensor
	ready bool
	low   bool          // its gradients are projected
	count int           // of steps
	step  *trace.Tensor // the same on the device, nil where it lives on the host
	state [maxStates]*trace.Tensor
}

// maxStates is the largest number of state tensors of a parameter's size.
const maxStates = 5

// rule holds the functions that record an algorithm.
type rule struct {
	// init allocates the state of a parameter at its first step.
	init func(o *Optimizer, s *slot)
	// foreach and single take one step on parameters of one group and type.
	foreach, single, fused func(o *Optimizer, f *trace.Frame, l *batch)
	// eager reports whether the constructor allocates the state, matrices whether only matrices are updated.
	eager, matrices bool
	// whole reports whether a step needs whole parameters and gradients, so that sharded ones do not suffice.
	whole bool
}

var rules = map[Algorithm]rule{
	SGD:       {init: initNothing, foreach: foreachSGD, single: singleSGD, fused: fusedSGD},
	Adam:      {init: initAdam, foreach: foreachAdam, single: singleAdam, fused: fusedAdam},
	AdamW:     {init: initAdam, foreach: foreachAdam, single: singleAdam, fused: fusedAdam},
	NAdam:     {init: initMoments, foreach: foreachNAdam, single: singleNAdam},
	Adamax:    {init: initMoments, foreach: foreachAdamax, single: singleAdamax},
	RMSprop:   {init: initRMSprop, foreach: foreachRMSprop, single: singleRMSprop},
	Adagrad:   {init: initAdagrad, foreach: foreachAdagrad, single: singleAdagrad, fused: fusedAdagrad, eager: true},
	Adadelta:  {init: initMoments, foreach: foreachAdadelta, single: singleAdadelta},
	Adafactor: {init: initAdafactor, foreach: foreachAdafactor, single: singleAdafactor},
	Muon:      {init: initMuon, single: singleMuon, matrices: true},

	AdamW8bit:  {init: initBits8, single: stepBits8},
	AdamW32bit: {init: initBits8, single: stepBits8},
	Lion8bit:   {init: initBits8, single: stepBits8},
	AdamW4bit:  {init: initTorchao, single: stepBits8},

	Lion32bit: {init: initBits8, single: stepBits8},

	GaLoreAdamW:     {init: initNothing, single: singleGaLore},
	GaLoreAdamW8bit: {init: initNothing, single: singleGaLore8bit},
	GaLoreAdafactor: {init: initNothing, single: singleAdafactorHF},
	AdafactorHF:     {init: initNothing, single: singleAdafactorHF, whole: true},
	AdamW8bitAO:     {init: initTorchao, single: stepBits8},
	AdamWFp8:        {init: initTorchao, single: stepBits8},
	None:            {init: initNothing, single: func(*Optimizer, *trace.Frame, *batch) {}},
}

// initNothing leaves the state empty, for algorithms without state on the device, or whose step allocates it.
func initNothing(*Optimizer, *slot) {}

// New returns the optimizer of the given configuration over groups of parameters. It updates, and has state for, only
// the parameters in share, in that order, as one of several ranks does; a nil share means all parameters.
func New(t *trace.Tape, c Config, share []*trace.Tensor, groups ...[]*trace.Tensor) (*Optimizer, error) {
	r, known := rules[c.Algorithm]
	if !known {
		return nil, fmt.Errorf("there is no optimizer %q; this is a bug of vprof (please report it)", c.Algorithm)
	}
	o := &Optimizer{config: c, rule: r, tape: t, held: t.Frame()}
	fused := o.rule.fused != nil && (c.Algorithm != Adagrad || t.Rules().Operators.FusedAdagrad)
	if c.Implementation == Fused && !fused {
		return nil, fmt.Errorf("PyTorch has no fused %v; use SGD, Adam or AdamW, or leave out fused", c.Algorithm)
	}
	if share != nil {
		o.share = make([]*slot, len(share))
	}
	for _, params := range groups {
		params = c.AcceptedParams(params)
		group := make([]*slot, len(params))
		for i, p := range params {
			group[i] = &slot{param: p}
			at := slices.Index(share, p)
			if at >= 0 {
				o.share[at] = group[i]
			}
			if o.rule.eager && (share == nil || at >= 0) {
				o.rule.init(o, group[i])
				group[i].ready = true
			}
		}
		o.groups = append(o.groups, group)
	}
	return o, nil
}

// Updates reports whether a step changes parameters; true for all optimizers except [None].
func (o *Optimizer) Updates() bool { return o.config.Algorithm != None }

// Params returns all parameters, group by group.
func (o *Optimizer) Params() []*trace.Tensor {
	var out []*trace.Tensor
	for _, g := range o.groups {
		for _, s := range g {
			out = append(out, s.param)
		}
	}
	return out
}

// ZeroGrad records zero_grad(set_to_none=True).
func (o *Optimizer) ZeroGrad() {
	for _, g := range o.groups {
		for _, s := range g {
			s.param.ZeroGrad()
		}
	}
}

// NeedsWholeParams reports whether a step needs parameters and gradients as a whole, not the shards of a rank.
func (c Config) NeedsWholeParams() bool { return rules[c.Algorithm].whole }

// AcceptedParams returns the parameters that the optimizer accepts: only matrices for Muon, all for any other.
func (c Config) AcceptedParams(params []*trace.Tensor) []*trace.Tensor {
	if !rules[c.Algorithm].matrices {
		return params
	}
	return slices.DeleteFunc(slices.Clone(params), func(p *trace.Tensor) bool { return p.NDim() != 2 })
}

// Step records step(): it updates every parameter that has a gradient and allocates missing state.
func (o *Optimizer) Step() {
	o.tape.NoGrad(func() {
		if o.share != nil {
			o.stepGroup(o.share)
			return
		}
		for _, g := range o.groups {
			o.stepGroup(g)
		}
	})
}

func (o *Optimizer) stepGroup(group []*slot) {
	batches := o.collectGradients(group)
	for i := range batches {
		l := &batches[i]
		f := o.tape.Frame()
		switch o.config.Implementation {
		case Fused:
			o.rule.fused(o, f, l)
		case SingleTensor:
			o.rule.single(o, f, l)
		default:
			o.rule.foreach(o, f, l)
		}
		f.End()
	}
}

// collectGradients allocates missing state and lists the parameters with gradients by dtype (_init_group and
// _group_tensors_by_device_and_dtype, a std::unordered_map: what came last is first).
func (o *Optimizer) collectGradients(group []*slot) []batch {
	var out []batch
	for _, s := range group {
		if s.param.Grad() == nil {
			continue
		}
		if !s.ready {
			s.ready = true
			s.param.OnItsGPU(func() { o.rule.init(o, s) })
		}
		s.count++
		k := 0
		for k < len(out) && !inSameGroup(out[k].params[0], s.param) && o.config.Implementation != SingleTensor {
			k++
		}
		if k == len(out) {
			out = append(out, batch{})
		}
		out[k].add(s)
	}
	slices.Reverse(out)
	return out
}

// inSameGroup reports whether two tensors belong to the same group of an operator on lists.
func inSameGroup(x, y *trace.Tensor) bool { return x.DType() == y.DType() && x.SameGPU(y) }

// keep adds the tensor that f computes to the optimizer's state.
func (o *Optimizer) keep(f func() *trace.Tensor) *trace.Tensor {
	var x *trace.Tensor
	o.tape.WithClass(program.OptimizerState, func() { x = o.held.Bind(f()) })
	return x
}

// addZeros allocates zeroed state tensors of the parameter's shape.
func (o *Optimizer) addZeros(s *slot, states ...int) {
	for _, k := range states {
		s.state[k] = o.keep(s.param.ZerosLike)
	}
}

// addStateLike allocates a state tensor of the parameter's shape by operator op.
func (o *Optimizer) addStateLike(op string, s *slot, k int) {
	s.state[k] = o.keep(func() *trace.Tensor { return trace.Pointwise(op, 0, s.param) })
}

// deviceStep allocates the step counter on the device if the kernels need it there; otherwise it is on the host.
func (o *Optimizer) deviceStep(s *slot) {
	if o.config.Implementation == Fused {
		s.step = o.keep(func() *trace.Tensor { return o.tape.Zeros(trace.F32) })
	}
}

// batch holds the arguments of an optimizer's functional API: lists with one element for each parameter.
type batch struct {
	slots                []*slot
	params, grads, steps []*trace.Tensor
	state                [maxStates][]*trace.Tensor
}

func (l *batch) add(s *slot) {
	l.slots = append(l.slots, s)
	l.params = append(l.params, s.param)
	l.grads = append(l.grads, s.param.Grad())
	if s.step != nil {
		l.steps = append(l.steps, s.step)
	}
	for k, x := range s.state {
		if x != nil {
			l.state[k] = append(l.state[k], x)
		}
	}
}

func (l *batch) incrementSteps() { trace.ForeachUpdate("_foreach_add__Scalar", 1, l.steps) }
