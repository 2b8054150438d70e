package models

// Loop names the tensors of a step that a training loop keeps. A model's output holds, besides the loss, the logits,
// which are often the largest tensor of the step.
type Loop string

const (
	// LoopTrainer keeps only the loss: loss = model(**batch).loss, as transformers' Trainer and TRL do.
	LoopTrainer Loop = "trainer"
	// LoopFunction keeps the output until a function with "outputs = model(**batch); loss = outputs.loss" returns
	// after the optimizer's step. In a pipeline, the last stage passes logits to a loss_fn, and the schedule keeps
	// them until the micro-batch's backward ends.
	LoopFunction Loop = "function"
	// LoopPlain is a loop at the top level of a script or in main: output and loss live until the next forward returns.
	LoopPlain Loop = "plain"
)

// LoopNames returns the values of the option loop.
func LoopNames() []string {
	return []string{string(LoopTrainer), string(LoopFunction), string(LoopPlain)}
}

// ZeroGrad is when the training loop frees or zeroes gradients.
type ZeroGrad string

const (
	// ZeroGradAfter frees gradients after the optimizer's step; the zero value does the same.
	ZeroGradAfter ZeroGrad = "after"
	// ZeroGradBefore frees gradients before forward, so that they live until the next step begins.
	ZeroGradBefore ZeroGrad = "before"
	// ZeroGradBetween frees gradients after forward and before backward, as Lightning does.
	ZeroGradBetween ZeroGrad = "between"
	// ZeroGradKeep fills gradients with zeros (set_to_none=False).
	ZeroGradKeep ZeroGrad = "keep"
)

// ZeroGradModes returns the values of the option zero-grad.
func ZeroGradModes() []string {
	return []string{string(ZeroGradAfter), string(ZeroGradBefore), string(ZeroGradBetween), string(ZeroGradKeep)}
}

const (
	yesValue = "true"
	noValue  = "false"
)

func cacheValues() []string { return []string{yesValue, noValue} }

// UsesCache reports whether the model returns keys and values. Models of transformers return them by default
// (use_cache) unless layers are recomputed. Its Trainer and trainers derived from it disable the cache.
func (c *Case) UsesCache() bool {
	if c.UseCache != "" {
		return c.UseCache == yesValue
	}
	if s := c.Strategy; s != nil && (s.CP > 1 && s.CPStyle != TorchRing || s.Name == PP) {
		return false // context-parallel trainers and pipeline stages compute the loss elsewhere
	}
	return (c.Loop == LoopFunction || c.Loop == LoopPlain) && !c.Checkpointing && c.Objective.IsZero()
}

// LargestLoopCase returns a complete case with the plain loop, which keeps the most tensors of a step. It returns
// false if the case sets a loop or the model has its own.
func (m *Model) LargestLoopCase(c Case) (Case, bool) {
	if c.Loop != "" {
		return c, false
	}
	c.Loop = LoopPlain
	_, reason := newSubject(m, &c).firstConflict(loopConflicts)
	return c, reason == ""
}

// passesLogitsToLoss reports whether the last stage of a pipeline passes logits to a loss_fn although the model can
// compute its own loss.
func passesLogitsToLoss(m *Model, c *Case) bool {
	return m.Supports.Loop == LoopTrainer && c.Strategy != nil && c.Strategy.Name == PP && c.Loop == LoopFunction
}
