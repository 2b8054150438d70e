package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

// Peaks in the second step of torchtune 0.7's LoRALinear and DoRALinear in the place of
// three layers of transformers 5.23, with torch 2.11 on an A100, allocations in blocks of
// 512 bytes; and of attention whose keys and values are repeated.
func TestAsTorchtuneComputesIt(t *testing.T) {
	for name, want := range map[string]struct {
		lora              string
		checkpointing     bool
		repeated          int64
		forward, backward int64
	}{
		"repeated heads": {"", false, 1, 194057728, 202429440},
		"adapters":       {"r=8,dtype=weights,target=q_proj+v_proj+down_proj", false, 0, 133842432, 141165568},
		"DoRA": {
			"r=8,dtype=weights,dora=torchtune,target=q_proj+v_proj+down_proj", false, 0,
			149620224, 156943360,
		},
		"DoRA with dropout": {
			"r=8,dropout=0.1,dtype=weights,dora=torchtune,target=q_proj+v_proj+down_proj", false, 0,
			158008832, 165331968,
		},
		"DoRA, checkpointed": {
			"r=8,dtype=weights,dora=torchtune,target=q_proj+v_proj+down_proj", true, 0,
			88516096, 95839232,
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := models.Case{
				Batch: 2, Weights: "bf16", Optimizer: "adamw-fused", Checkpointing: want.checkpointing,
				Settings:      models.Settings{"seq-len": 512, "packed": 0, "repeated-heads": want.repeated},
				MemoryOptions: models.MemoryOptions{Clip: models.ClipNone},
			}
			if want.lora != "" {
				l, err := models.ParseLoRA(want.lora)
				require.NoError(t, err)
				k.LoRA = &l
			}
			m := model(t, smallLlama)
			r, err := m.Record(complete(t, m, k), trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048},
				models.Options{Steps: 2})
			require.NoError(t, err)
			forward, backward := secondStep(r.Program)
			require.Equal(t, want.forward, forward)
			require.Equal(t, want.backward, backward)
		})
	}
}
