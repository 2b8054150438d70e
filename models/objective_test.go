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
			o.LikeTrainer = rapid.SampledFrom(append(o.otherTrainers(), "")).Draw(t, "as")
		}
		if o.Name == GKD {
			o.Completion = rapid.Int64Range(0, maxCompletion).Draw(t, "completion")
		}
		o.Precomputed = o.UsesReference() && rapid.Bool().Draw(t, "precomputed")
		o.Packed = o.Name == DPO && rapid.Bool().Draw(t, "packed")
		if o.Generates() {
			o.Completion, o.Reference, o.OldLogProbs = rapid.Int64Range(0, maxCompletion).Draw(t, "completion"),
				rapid.Bool().Draw(t, "reference"), rapid.Bool().Draw(t, "old")
		}
		again, err := ParseObjective(o.String())
		require.NoError(t, err)
		require.Equal(t, o, again)
	})
}

func TestBadObjectivesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"":                           `there is no objective ""; all: cpo, dpo, gkd`,
		"dpp":                        `there is no objective "dpp"; near it: dpo`,
		"dpo:":                       `"" is not key=value; the options of dpo are precomputed, packed, as`,
		"dpo:as=verl":                `as: "verl" is none of axolotl, llama-factory, ms-swift, torchtune`,
		"dpo:old":                    `dpo has no option "old", only grpo; the options of dpo are precomputed`,
		"grpo:reference,precomputed": `grpo has no option "precomputed", only dpo, kto`,
		"grpo:as=torchtune":          `as: "torchtune" is none of ms-swift`,
		"grpo:completion=-1":         `completion: "-1" is not a whole number`,
		"gkd:as=torchtune":           `gkd has no option "as"`,
		"grpo:old,old":               "old: given twice",
		"orpo:precomputed":           `orpo has no option "precomputed"`,
		"apo_zero":                   `apo_zero is a loss_type of DPO, with the same memory as the others; use --objective dpo`,
	} {
		_, err := ParseObjective(text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestRareObjectivesNameTheCommandThatAnswers(t *testing.T) {
	for _, name := range append(unplannedObjectives, "kd:chunks=8") {
		_, err := ParseObjective(name)
		require.ErrorContains(t, err, `"vprof run -- python train.py", which reports exactly what it needs`, name)
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
		Default: Case{Stage: "full", Batch: 1, Task: "causal-lm"}, SupportsLoRA: true, SupportsRanks: true,
		Supports: MemoryOptionSupport{Liger: true, Objective: true},
	}
	dpo := MemoryOptions{Objective: Objective{Name: DPO}}
	for want, c := range map[string]Case{
		"it: objective: a reward model gives a whole answer":                             {MemoryOptions: MemoryOptions{Objective: Objective{Name: Reward}}},
		"it: objective: the objective dpo trains a language model; use --task causal-lm": {Task: "classification", MemoryOptions: dpo},
		"it: liger: vprof does not support the preference losses of liger-kernel; leave out --liger": {MemoryOptions: MemoryOptions{
			Liger:     true,
			Objective: dpo.Objective,
		}},
		"vprof does not support an objective's reference model under tensor parallelism (tp) or fsdp1; train adapters (--lora), whose reference is the model itself, or use another --strategy": {
			MemoryOptions: MemoryOptions{Objective: dpo.Objective, Clip: ClipNone},
			GPUs:          4, Strategy: &Strategy{Name: TP, TP: 2},
		},
	} {
		_, err := m.Complete(c)
		require.ErrorContains(t, err, want)
	}
	_, err := m.Complete(Case{MemoryOptions: dpo, LoRA: &LoRA{Rank: 8}, GPUs: 2, Strategy: &Strategy{Name: FSDP2}})
	require.NoError(t, err, "the reference is the model without its adapters")
	m.Supports.Objective = false
	_, err = m.Complete(Case{MemoryOptions: dpo})
	require.ErrorContains(t, err, "an exported graph (.pt2) contains its own loss")
}
