package models

// Loop names which tensors of a step a training loop keeps. Besides the loss, the model's output holds the logits,
// which are often the largest tensor of the step.
type Loop string

const (
	// LoopTrainer keeps the loss alone: loss = model(**batch).loss, as transformers' Trainer and TRL do.
	LoopTrainer Loop = "trainer"
	// LoopFunction keeps the output through the step: outputs = model(**batch); loss = outputs.loss in
	// a function that returns after the optimizer's step. The last stage of a pipeline then sends its scores to a
	// loss_fn, and its schedule keeps them until the micro-batch's backward is over.
	LoopFunction Loop = "function"
	// LoopPlain is the same at the top level of a script, or in its main function: output and loss of a step live
	// until the next forward pass has returned.
	LoopPlain Loop = "plain"
)

// Loops returns the names of loops.
func Loops() []string { return []string{string(LoopTrainer), string(LoopFunction), string(LoopPlain)} }

// ZeroGrad names when the loop frees or zeroes gradients.
type ZeroGrad string

const (
	// ZeroGradAfter frees them after the optimizer's step; so does the zero value.
	ZeroGradAfter ZeroGrad = "after"
	// ZeroGradBefore frees them before forward, so that they live until the next step begins.
	ZeroGradBefore ZeroGrad = "before"
	// ZeroGradBetween frees them after forward, before backward, as Lightning does.
	ZeroGradBetween ZeroGrad = "between"
	// ZeroGradKeep fills them with zeros (set_to_none=False).
	ZeroGradKeep ZeroGrad = "keep"
)

// ZeroGrads returns the names of the ways to zero gradients.
func ZeroGrads() []string {
	return []string{string(ZeroGradAfter), string(ZeroGradBefore), string(ZeroGradBetween), string(ZeroGradKeep)}
}

const (
	yesValue = "true"
	noValue  = "false"
)

func cacheValues() []string { return []string{yesValue, noValue} }

// UsesCache reports whether the model returns keys and values. Models of transformers do so by default (use_cache)
// unless layers are recomputed. Its Trainer, and trainers based on it, turn the cache off.
func (c *Case) UsesCache() bool {
	if c.UseCache != "" {
		return c.UseCache == yesValue
	}
	if s := c.Strategy; s != nil && (s.CP > 1 && s.CPBy != TorchRing || s.Name == PP) {
		return false // trainers whose ranks share rows turn it off, with the loss outside of the model, as stages do
	}
	return (c.Loop == LoopFunction || c.Loop == LoopPlain) && !c.Checkpointing && c.Objective.IsZero()
}

// LargestLoopCase returns a complete case with the plain loop, which keeps most tensors of a step; false if the case
// names its loop or the model has no choice.
func (m *Model) LargestLoopCase(c Case) (Case, bool) {
	if c.Loop != "" {
		return c, false
	}
	c.Loop = LoopPlain
	_, reason := newConflictInput(m, &c).firstConflict(loopConflicts)
	return c, reason == ""
}

// passesLogitsToLoss reports whether the last stage of a pipeline passes logits to a loss_fn although the model can
// compute its own loss.
func passesLogitsToLoss(m *Model, c *Case) bool {
	return m.Levers.Loop == LoopTrainer && c.Strategy != nil && c.Strategy.Name == PP && c.Loop == LoopFunction
}
