package spoter

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

var testGPU = trace.GPU{Name: "t4", Capability: 75, SMs: 40, ThreadsPerSM: 1024, Memory: 15_828_320_256}

// record returns the recording of the eight-layer network, and its highest requested bytes.
func record(t *testing.T, c models.Case) (classes map[program.Class]bool, peak int64) {
	r, err := Models()[0].Record(c, testGPU, models.Options{})
	require.NoError(t, err)
	require.NoError(t, r.Program.Validate())
	classes = map[program.Class]bool{}
	var now int64
	for _, i := range r.Program.Instructions {
		switch i.Kind {
		case program.Alloc:
			b := r.Program.Buffers[i.Arg]
			classes[b.Class] = true
			now += b.Bytes
			peak = max(peak, now)
		case program.Free:
			now -= r.Program.Buffers[i.Arg].Bytes
		}
	}
	return classes, peak
}

// Phase 5 evaluates without gradients: nothing of training is there, and what a batch needs is a fraction.
func TestInferenceKeepsNothing(t *testing.T) {
	_, training := record(t, models.Case{Batch: 16})
	for _, amp := range models.AutocastPrecisions() {
		classes, peak := record(t, models.Case{Batch: 16, Stage: "inference", AMP: amp})
		for _, c := range []program.Class{program.Gradients, program.OptimizerState, program.Activations} {
			require.False(t, classes[c], "%v in %q", c, amp)
		}
		require.Less(t, 3*peak, training, amp)
	}
	_, err := Models()[0].Complete(models.Case{Stage: "inference", Optimizer: "sgd"})
	require.EqualError(t, err, "bdslw-spoter: optimizer: stage inference has none")
}

// Head width 12 is no multiple of 8: in half precision the probabilities are
// materialized, and autocast needs more memory than fp32 does.
func TestHalfPrecisionNeedsMoreThanFP32(t *testing.T) {
	_, single := record(t, models.Case{Batch: 8})
	_, half := record(t, models.Case{Batch: 8, AMP: "fp16"})
	require.Greater(t, half, single)
}
