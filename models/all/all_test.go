package all

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

var board = trace.Board{Name: "rtx-5060-ti", Capability: 120, SMs: 36, ThreadsPerSM: 1536, Memory: 16_615_079_936}

// liveAtStepEnds is what is requested and not freed when each step ends.
func liveAtStepEnds(p *program.Program) []int64 {
	var now int64
	var ends []int64
	for _, i := range p.Instructions {
		switch i.Kind {
		case program.Alloc:
			now += p.Buffers[i.Arg].Bytes
		case program.Free:
			now -= p.Buffers[i.Arg].Bytes
		case program.Mark:
			if p.Phases[i.Arg].Name == "step_end" {
				ends = append(ends, now)
			}
		}
	}
	return ends
}

// TestStepsLeaveNothingBehind: once the optimizer's state is there, a step
// gives back all it allocates, in every precision, with and without
// checkpointing, with and without accumulation, and with adapters.
func TestStepsLeaveNothingBehind(t *testing.T) {
	for _, m := range Models().All() {
		for _, amp := range models.Precisions() {
			cases := []models.Case{{}, {Checkpointing: true}, {Accumulate: 2}}
			if m.Adapts {
				cases = append(cases, models.Case{LoRA: &models.LoRA{Rank: 8, Dropout: 0.1}, Checkpointing: true})
			}
			for _, c := range cases {
				c.Batch, c.AMP = 2, amp
				r, err := m.Record(c, board, models.Options{Steps: 3})
				require.NoError(t, err, "%s %+v", m.Name, c)
				require.NoError(t, r.Program.Validate(), "%s %+v", m.Name, c)
				ends := liveAtStepEnds(r.Program)
				require.Len(t, ends, 3)
				require.Equal(t, ends[1], ends[2], "%s %+v: the third step left %d bytes behind", m.Name, c, ends[2]-ends[1])
			}
		}
	}
}
