package models

import (
	"maps"

	"github.com/vprof/vprof/profiler/stack"
)

// libraries say on which packages beside PyTorch a step depends.
var libraries = map[string]func(m Model, c Case) bool{
	"transformers": func(m Model, _ Case) bool { return m.Transformers },
	"trl": func(m Model, c Case) bool {
		o := c.Objective
		return m.Transformers && (c.Settings["trl-loss"] > 0 || !o.IsZero() && !o.Distills() && o.As == "")
	},
	"peft":         func(_ Model, c Case) bool { return c.LoRA != nil },
	"bitsandbytes": func(_ Model, c Case) bool { return c.Quantize != "" },
	"liger-kernel": func(_ Model, c Case) bool { return c.Liger },
	"deepspeed":    func(_ Model, c Case) bool { return c.Strategy != nil && c.Strategy.Engine != "" },
	"accelerate":   func(_ Model, c Case) bool { return c.Strategy != nil },
	"cuda":         func(Model, Case) bool { return true },
	"cudnn":        func(Model, Case) bool { return true },
}

// stackOf returns the releases of a case that change what it needs. Of a model from a configuration, releases that are
// not named are the newest known.
func (m Model) stackOf(c Case) stack.Libraries {
	all := maps.Clone(c.Stack)
	maps.DeleteFunc(all, func(name, _ string) bool {
		matters, known := libraries[name]
		return known && !matters(m, c)
	})
	for name, matters := range libraries {
		newest := stack.Newest(name)
		if newest != "" && m.Description.Text() != "" && all[name] == "" && matters(m, c) {
			if all == nil {
				all = stack.Libraries{}
			}
			all[name] = newest
		}
	}
	return all
}
