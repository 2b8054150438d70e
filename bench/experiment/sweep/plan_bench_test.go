package sweep_test

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/sweep"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/tools/steptest"
)

// BenchmarkPlan measures the work of a plan behind its command line. On two cores with other work it took 20 ms for
// redimnet-b2 and 152 ms for gpt2 at two batch sizes.
func BenchmarkPlan(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as the program runs
	for name, batches := range map[string][]int{"redimnet-b2": {64}, "gpt2": {8, 16}} {
		b.Run(name, func(b *testing.B) {
			m, err := all.Models().Lookup(name)
			require.NoError(b, err)
			c := m.Default
			if name == "gpt2" {
				c.AMP = "bf16"
			}
			for b.Loop() {
				s, err := step.New(m, c, steptest.Exact())
				require.NoError(b, err)
				_, err = sweep.Plan(b.Context(), s, steptest.GPUs(b, "rtx-5060-ti")[0], batches)
				require.NoError(b, err)
			}
		})
	}
}
