package models

// Loop is what a training loop keeps of a step: what the model returned, besides the loss, holds the
// scores, which are often the largest tensor there is.
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

// ZeroGrad is when gradients go.
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
	yes = "true"
	no  = "false"
)

func cacheWords() []string { return []string{yes, no} }

// Caches tells whether keys and values are a part of what the model returns: transformers' models do that by
// default (use_cache), unless layers are recomputed; its Trainer, and those that stand on it, turn it off.
func (c *Case) Caches() bool {
	if c.UseCache != "" {
		return c.UseCache == yes
	}
	if s := c.Strategy; s != nil && (s.CP > 1 && s.CPBy != RingOfTorch || s.Name == PP) {
		return false // trainers whose ranks share rows turn it off, with the loss outside of the model, as stages do
	}
	return (c.Loop == LoopFunction || c.Loop == LoopPlain) && !c.Checkpointing && c.Objective.IsZero()
}

// KeepingMost returns a complete case with the plain loop, which keeps most of a step alive; false where the case
// names its loop, or the model has no choice.
func (m *Model) KeepingMost(c Case) (Case, bool) {
	if c.Loop != "" {
		return c, false
	}
	c.Loop = LoopPlain
	_, reason := c.checkLoop(m, &c)
	return c, reason == ""
}

// scoresOfStages reports whether the last stage of a pipeline gives scores to a loss_fn, of a model that computes its
// loss itself where it is asked to.
func scoresOfStages(m *Model, c *Case) bool {
	return m.Levers.Loop == LoopTrainer && c.Strategy != nil && c.Strategy.Name == PP && c.Loop == LoopFunction
}

// checkLoop finds what does not go together with a choice of the loop.
func (l Levers) checkLoop(m *Model, c *Case) (field, reason string) {
	field = "loop"
	switch {
	case l.Loop != "" && l.Loop != m.Levers.Loop && !scoresOfStages(m, c): // which is what is recorded anyway
	case l.ZeroGrad != "":
		field = "zero-grad"
	case l.UseCache != "":
		field = "use-cache"
	case l.EmptyCache != 0:
		field = "empty-cache"
	default:
		return "", ""
	}
	switch {
	case m.Levers.Loop == "":
		return field, ownLoop
	case !c.Objective.IsZero():
		return field, "the loop of the trainer that has the objective " + c.Objective.Name + " is recorded"
	case c.Strategy != nil && c.Strategy.Name == PP && (field != "use-cache" || l.UseCache == yes):
		return field, "the schedule of a pipeline is its loop"
	case l.UseCache == yes && m.Levers.Loop == LoopFunction:
		return "use-cache", "an exported model returns what it was exported with; export it with use_cache"
	case l.UseCache == yes && !m.Levers.Cache:
		return "use-cache",
			"vprof records the cache of decoders of transformers that have attention in every layer; this is none"
	case l.UseCache == yes && c.Checkpointing:
		return "use-cache", "transformers leaves the cache out while layers are recomputed; leave out one of the two"
	case l.InBackward && l.ZeroGrad != "":
		return "zero-grad", "gradients are freed as soon as the optimizer has stepped in backward"
	}
	return "", ""
}
