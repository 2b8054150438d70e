package stack

import "github.com/vprof/vprof/profiler/trace"

// transformers has what begins with releases of transformers, as recorded steps show it (models/hfconfig/testdata).
var transformers = libraryReleases{
	name: "transformers", oldest: "4.45", first: "4.45", newest: "5.24",
	changes: []ruleChange{
		{"4.41", func(r *trace.Libraries) { r.FusedAttention = trace.FusedByBERT }}, // _supports_sdpa
		{"4.42", func(r *trace.Libraries) { r.FusedAttention = trace.FusedByGPT }},
		{"4.45", func(r *trace.Libraries) { r.FusedAttention = trace.FusedByRoBERTa }},
		{"4.46", func(r *trace.Libraries) { // and loss_function of CausalLM classes
			r.FusedAttention, r.SharedFunctions = trace.FusedByOPT, trace.SharedByLlama
		}},
		sharerChange("4.47", trace.SharedByStarcoder2),
		sharerChange("4.48", trace.SharedByMistral), // ALL_ATTENTION_FUNCTIONS
		{"4.49", func(r *trace.Libraries) { r.SharedFunctions, r.ShiftsLabels = trace.SharedByNeoX, true }},
		{"4.50", func(r *trace.Libraries) { r.PlainScores = true }},      // eager_attention_forward of OPT
		{"4.52", func(r *trace.Libraries) { r.LayersCheckpoint = true }}, // modeling_layers.py
		{"4.53", func(r *trace.Libraries) { r.ReadsPositions = true }},   // masking_utils.py
		{"4.54", func(r *trace.Libraries) { r.GroupedHeads = true }},     // use_gqa_in_sdpa of sdpa_attention.py
		{"4.56", func(r *trace.Libraries) { r.ViewedHeads = true }},      // sdpa_attention_forward
		{"5.0", func(r *trace.Libraries) { r.SkipsMasks = true }},        // find_packed_sequence_indices
		{"5.2", func(r *trace.Libraries) { r.NoCausalBuffers = true }},   // GPT2Attention
		{"5.17", func(r *trace.Libraries) { r.SolvesDelta = true }},      // torch_chunk_gated_delta_rule
		{"5.21", func(r *trace.Libraries) { r.EagerCaps = true }},        // _supports_sdpa of Gemma2PreTrainedModel
		{"5.23", func(r *trace.Libraries) { r.RemapsPositions = true }},  // packed_sequence_compatibility_function
	},
}

// sharerChange returns the change after which a group of models and all groups before it share functions.
func sharerChange(since string, by trace.Sharers) ruleChange {
	return ruleChange{since, func(r *trace.Libraries) { r.SharedFunctions = by }}
}
