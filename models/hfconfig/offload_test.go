package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
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
		before, after, backward := lastStep(r.Program)
		require.Equal(t, []int64{want.after, want.backward}, []int64{after - before, backward - before}, "%+v", want)
	}
}

// lastStep is what is allocated before the last step, after its forward pass, and at most in
// backward.
func lastStep(p *program.Program) (before, after, backward int64) {
	var now, peak int64
	for _, i := range p.Instructions {
		switch i.Kind {
		case program.Alloc:
			now += (p.Buffers[i.Arg].Bytes + 511) / 512 * 512
			peak = max(peak, now)
		case program.Free:
			now -= (p.Buffers[i.Arg].Bytes + 511) / 512 * 512
		case program.Mark:
			switch p.Phases[i.Arg].Name {
			case "step_end":
				if p.Phases[i.Arg].Step == 0 {
					before = now
				}
			case "loss":
				after = now
			case "backward":
				backward = peak
			}
			peak = now
		}
	}
	return before, after, backward
}
