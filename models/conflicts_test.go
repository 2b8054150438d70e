package models

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each name in braces is a value that a reason can be filled with, and each field is one that a case has.
func TestReasonsOfConflictsCanBeFilled(t *testing.T) {
	for _, c := range Conflicts() {
		require.NotNil(t, FieldNamed(c.Field), c.ExcludedBy)
		reason := newSubject(&Model{}, &Case{GPUs: 1}).fillTemplate(c.Reason)
		require.NotRegexp(t, `[{}]`, reason)
		require.NotEmpty(t, c.ExcludedBy)
	}
}

func TestConflictsOfACompleteCaseComeInTheirOrder(t *testing.T) {
	m := Model{
		Name: "it", Stages: []string{"full"}, Default: Case{Stage: "full", Batch: 1}, SupportsRanks: true,
		Supports: MemoryOptionSupport{Loop: LoopTrainer, Quantize: true},
	}
	for want, c := range map[string]Case{
		`it: stage: the model has no freeze stage "half"; use one of full`: {
			Stage:         "half",
			MemoryOptions: MemoryOptions{Quantize: "nf4"},
		},
		"it: quantize: quantized layers cannot be trained": {MemoryOptions: MemoryOptions{Quantize: "nf4"}},
		"it: strategy: 6 GPUs cannot be divided into 4 replicas": {
			GPUs:     6,
			Strategy: &Strategy{Name: FSDP2, Replicate: 4},
		},
		"it: strategy: 3 GPUs of a stage cannot be divided by the": {
			GPUs:     6,
			Strategy: &Strategy{Name: PP, PP: 2, Replicate: 2},
		},
		"it: strategy: 0 is not a number of GPUs from 1 to 1048576": {Strategy: &Strategy{Name: PP, EP: 2}},
	} {
		_, err := m.Complete(c)
		require.ErrorContains(t, err, want)
	}
}
