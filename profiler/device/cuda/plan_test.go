package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/kernels"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// Both sides number their words by themselves; what they are called is the
// same.
func TestKernelsAndProgramsMeanTheSame(t *testing.T) {
	for w, kind := range works {
		require.Equal(t, program.Work(w).String(), kind.String())
	}
	require.Equal(t, "unknown", program.Work(len(works)).String(), "there are no more")
	for p, precision := range precisions {
		require.Equal(t, program.Precision(p).String(), precision.String())
	}
	require.Equal(t, "unknown", program.Precision(len(precisions)).String())
}

func TestAnOpIsPassedOnWhole(t *testing.T) {
	k := device.Kernel{
		Work: program.Convolution, Precision: program.BF16, FLOPs: 5, M: 1, N: 2, K: 3, Batch: 4,
		Reads: []device.Range{{Addr: 1, Bytes: 2}, {Addr: 3, Bytes: 4}}, Writes: []device.Range{{Addr: 5, Bytes: 6}},
	}
	want := kernels.Work{
		Kind: kernels.ConvolutionWork, Precision: kernels.BF16Precision, FLOPs: 5, M: 1, N: 2, K: 3, Batch: 4,
		Reads: []kernels.Range{{Addr: 1, Bytes: 2}, {Addr: 3, Bytes: 4}}, Writes: []kernels.Range{{Addr: 5, Bytes: 6}},
	}
	first := workOf(kernels.Work{}, k)
	require.Equal(t, want, first)
	require.Equal(t, want, workOf(first, k), "slices are used again")
}
