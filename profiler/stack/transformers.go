package stack

import "github.com/vprof/vprof/profiler/trace"

// transformers has what begins with releases of transformers, as recorded steps show it (models/hfconfig/testdata).
var transformers = library{
	name: "transformers", first: "4.44", newest: "5.24",
	changes: []change{
		{"4.49", func(r *trace.Libraries) { r.ShiftsLabels = true }}, // ForCausalLMLoss of loss_utils.py
	},
}
