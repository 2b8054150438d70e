package trainers

import (
	"cmp"
	"strconv"

	"github.com/vprof/vprof/internal/phrase"
)

// addGeneration adds the settings of training on generated answers (GRPO): the lengths of prompts and answers, the
// log-probabilities computed before the step, and the memory that vLLM leaves to training.
func (c *Config) addGeneration() error {
	if o := c.facts["objective"].value; o != "grpo" && o != "gkd" {
		return nil
	}
	answer, err := c.integerFact("answer", 1, 1)
	if err != nil {
		return err
	}
	late := false
	if c.facts["objective"].value != "gkd" {
		if late, err = c.isOutdated(); err != nil {
			return err
		}
	}
	list := phrase.List{"completion=" + strconv.Itoa(answer)}
	list.If(c.facts["compared"].value == "true", "reference")
	list.If(late, "old")
	c.facts.appendOptions("objective", list...)
	if f, ok := c.facts["prompt"]; ok {
		prompt, err := c.integerFact("prompt", 1, 1)
		if err != nil {
			return err
		}
		c.facts.set("seq-len", strconv.Itoa(prompt+answer), f.from)
	}
	f, ok := c.facts["vllm-share"]
	if !ok {
		return nil
	}
	share, err := strconv.ParseFloat(f.value, 64)
	if err != nil || !(share >= 0 && share < 1) {
		return c.malformedError(f, "is not a part of the GPU from 0 to 1")
	}
	left := strconv.FormatFloat(100-100*share, 'f', -1, 64)
	c.facts.set("gpu-memory", left+"%", f.from)
	c.Notes.Add("%v: vLLM holds %s of the same GPU; planned is with the other %s%%", c.withFile(f.from), f.value, left)
	return nil
}

// isOutdated reports whether answers may come from an earlier state of the model. Then several steps train on the same
// answers, or the losses of vLLM's answers are weighted.
func (c *Config) isOutdated() (bool, error) {
	if c.facts["old"].value == "true" {
		return true, nil
	}
	steps, err := c.integerFact("accumulate", 1, 1)
	if err != nil {
		return false, err
	}
	each, err := c.integerFact("generated-steps", steps, 1)
	if err != nil {
		return false, err
	}
	again, err := c.integerFact("iterations", 1, 1)
	return steps%(each*again) != 0, err
}

func (c *Config) malformedError(f fact, reason string) error {
	return c.withFile(f.from).fault("%q %s", f.value, reason)
}

// withFile returns the key, with the trainer's own configuration file if the key names none.
func (c *Config) withFile(k Key) Key {
	k.File = cmp.Or(k.File, c.File)
	return k
}
