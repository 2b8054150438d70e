package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

// Checkpointing knows the arguments by place, and those alone go to the host: the mask and the
// rotary angles of Llama come by name. Bytes beyond those before a
// step, after its forward pass and at most in backward, under torch.autograd.graph.save_on_cpu:
// transformers 5.23, torch 2.11, two rows of 1024 tokens in bf16.
func TestWhatCheckpointsSaveOnTheHost(t *testing.T) {
	for _, want := range []struct {
		recompute       string
		packed          int64
		after, backward int64
	}{
		{"", 0, 270848, 61701120},
		{"", 1, 2368000, 70088704},
		{models.Reentrant, 0, 270848, 65895424},
		{models.Reentrant, 1, 2368000, 74283008},
	} {
		m := model(t, shortLlama)
		c := complete(t, m, models.Case{
			Batch: 2, Weights: "bf16", Optimizer: "sgd", Checkpointing: true,
			Settings: models.Settings{"seq-len": 1024, "packed": want.packed},
			Levers:   models.Levers{Recompute: want.recompute, Offload: true, Clip: models.ClipNone},
		})
		r, err := m.Record(c, trace.Board{Capability: 80, SMs: 108, ThreadsPerSM: 2048}, models.Options{Steps: 2})
		require.NoError(t, err)
		all := phases(r.Program, inBlocks)
		before := all[phase(0, "step_end")].end
		require.Equal(t, want.after, all[phase(1, "loss")].end-before, "%+v", want)
		require.Equal(t, want.backward, all[phase(1, "backward")].peak-before, "%+v", want)
	}
}
