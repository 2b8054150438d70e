package models

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestObjectivesComeBackFromTheirText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Objective{Name: rapid.SampledFrom(Objectives()).Draw(t, "name")}
		if objectiveOptions.Has(o.Name, "as") {
			o.As = rapid.SampledFrom(append(o.trainers(), "")).Draw(t, "as")
		}
		if o.Name == GKD {
			o.Completion = rapid.Int64Range(0, mostCompletion).Draw(t, "completion")
		}
		if o.Name == KD {
			o.Chunks = rapid.Int64Range(0, mostChunks).Draw(t, "chunks")
		}
		o.Precomputed = o.Refers() && !o.Weighs() && rapid.Bool().Draw(t, "precomputed")
		o.Packed = o.Name == DPO && rapid.Bool().Draw(t, "packed")
		if o.Matches() {
			o.Negatives, o.Unpadded = rapid.Int64Range(0, mostNegatives).Draw(t, "negatives"),
				rapid.Bool().Draw(t, "unpadded")
			o.Pairs = o.Name == Embedding && rapid.Bool().Draw(t, "pairs")
		}
		if o.Generates() {
			o.Completion, o.Reference, o.Old = rapid.Int64Range(0, mostCompletion).Draw(t, "completion"),
				rapid.Bool().Draw(t, "reference"), rapid.Bool().Draw(t, "old")
		}
		again, err := ParseObjective(o.String())
		require.NoError(t, err)
		require.Equal(t, o, again)
	})
}

func TestBadObjectivesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"":                           `there is no objective ""; all: asft, cpo, dft, dpo`,
		"dpp":                        `there is no objective "dpp"; near it: dpo`,
		"dpo:":                       `"" is not key=value; the options of dpo are precomputed, packed, as`,
		"dpo:as=verl":                `as: "verl" is none of llama-factory, ms-swift, torchtune`,
		"dpo:old":                    `dpo has no option "old", only grpo, ebft; the options of dpo are precomputed`,
		"grpo:reference,precomputed": `grpo has no option "precomputed", only dpo, kto`,
		"grpo:as=torchtune":          `as: "torchtune" is none of ms-swift`,
		"grpo:completion=-1":         `completion: "-1" is not a whole number`,
		"ebft:as=ms-swift":           `ebft has no option "as"`,
		"kd:chunks=0":                `chunks: "0" is not a whole number from 1`,
		"kd:as=torchtune":            `kd has no option "as"`,
		"kd:old":                     `kd has no option "old", only grpo, ebft; the options of kd are chunks`,
		"grpo:old,old":               "old: given twice",
		"asft:precomputed":           `asft has no option "precomputed", only dpo, kto; asft takes no options`,
		"dft:as=axolotl":             `as: "axolotl" is none of ms-swift, trl`,
		"dft:old":                    `dft has no option "old"`,
		"eaft:as=torchtune":          `as: "torchtune" is none of axolotl`,
		"embedding:negatives=0":      `negatives: "0" is not a whole number from 1 to 4096`,
		"embedding:as=ms-swift":      `embedding has no option "as"`,
		"reranker:pairs":             `reranker has no option "pairs", only embedding; the options of reranker are negatives`,
		"embedding:old":              `embedding has no option "old"`,
		"orpo:precomputed":           `orpo has no option "precomputed"`,
	} {
		_, err := ParseObjective(text)
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzParseObjective(f *testing.F) {
	f.Add("dpo:precomputed,as=torchtune")
	f.Fuzz(func(t *testing.T, text string) {
		o, err := ParseObjective(text)
		if err != nil {
			return
		}
		again, err := ParseObjective(o.String())
		require.NoError(t, err)
		require.Equal(t, o, again)
	})
}

func TestObjectivesThatCannotBeAreExplained(t *testing.T) {
	m := Model{
		Name: "it", Stages: []string{"full"}, Tasks: []string{"causal-lm", "classification"},
		Default: Case{Stage: "full", Batch: 1, Task: "causal-lm"}, Adapts: true, Distributes: true,
		Levers: LeverSet{Liger: true, Objective: true},
	}
	dpo := Levers{Objective: Objective{Name: DPO}}
	for want, c := range map[string]Case{
		"it: objective: a reward is a score of a whole answer": {Levers: Levers{Objective: Objective{Name: Reward}}},
		"it: objective: dpo is learnt by a language model":     {Task: "classification", Levers: dpo},
		"it: liger: vprof does not describe liger-kernel's":    {Levers: Levers{Liger: true, Objective: dpo.Objective}},
		"would be two models beside the one": {
			Levers: Levers{Objective: Objective{Name: EBFT, Reference: true}},
		},
		"vprof does not plan a reference model under tensor": {
			Levers: Levers{Objective: dpo.Objective, Clip: ClipNone},
			GPUs:   4, Strategy: &Strategy{Name: TP, TP: 2},
		},
	} {
		_, err := m.Complete(c)
		require.ErrorContains(t, err, want)
	}
	_, err := m.Complete(Case{Levers: dpo, LoRA: &LoRA{Rank: 8}, GPUs: 2, Strategy: &Strategy{Name: FSDP2}})
	require.NoError(t, err, "the reference is the model without its adapters")
	m.Levers.Objective = false
	_, err = m.Complete(Case{Levers: dpo})
	require.ErrorContains(t, err, "a graph has its loss in it")
}
