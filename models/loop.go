package models

// Loop is what a training loop keeps of a step: what the model returned, beside the loss, holds the
// scores, which are often the largest tensor there is.
type Loop string

const (
	// LoopTrainer keeps the loss alone: loss = model(**batch).loss, as transformers' Trainer and TRL do.
	LoopTrainer Loop = "trainer"
	// LoopFunction keeps the output through the step: outputs = model(**batch); loss = outputs.loss in
	// a function that returns after the optimizer's step.
	LoopFunction Loop = "function"
	// LoopPlain is the same at the top level of a script, or in its main function: output and loss of a step live
	// until the next forward pass has returned.
	LoopPlain Loop = "plain"
)

// Loops are the names of loops.
func Loops() []string { return []string{string(LoopTrainer), string(LoopFunction), string(LoopPlain)} }

// ZeroGrad is when gradients go.
type ZeroGrad string

const (
	// ZeroGradAfter frees them after the optimizer's step; so does the zero value.
	ZeroGradAfter ZeroGrad = "after"
	// ZeroGradBefore frees them before forward, so that they live until the next step begins.
	ZeroGradBefore ZeroGrad = "before"
	// ZeroGradKeep fills them with zeros (set_to_none=False).
	ZeroGradKeep ZeroGrad = "keep"
)

// ZeroGrads are the names of the ways to zero gradients.
func ZeroGrads() []string {
	return []string{string(ZeroGradAfter), string(ZeroGradBefore), string(ZeroGradKeep)}
}

// checkLoop finds what does not go together with a choice of the loop.
func (l Levers) checkLoop(m *Model, c *Case) (field, reason string) {
	field = "loop"
	if l.Loop == "" {
		field = "zero-grad"
	}
	switch {
	case l.Loop == "" && l.ZeroGrad == "":
		return "", ""
	case !m.Levers.Loop:
		return field, ownLoop
	case !c.Objective.IsZero():
		return field, "the loop of the trainer that has the objective " + c.Objective.Name + " is recorded"
	case c.Strategy != nil && c.Strategy.Name == PP:
		return field, "the schedule of a pipeline is its loop"
	case l.InBackward && l.ZeroGrad != "":
		return "zero-grad", "gradients are freed as soon as the optimizer has stepped in backward"
	}
	return "", ""
}
