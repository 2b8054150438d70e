package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/kernels"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

func TestAnOpIsPassedOnWhole(t *testing.T) {
	k := device.Kernel{
		Work: program.Convolution, Precision: program.BF16, FLOPs: 5, M: 1, N: 2, K: 3, Batch: 4,
		Reads: []device.Range{{Addr: 1, Bytes: 2}, {Addr: 3, Bytes: 4}}, Writes: []device.Range{{Addr: 5, Bytes: 6}},
	}
	want := kernels.Work{
		Kind: program.Convolution, Precision: program.BF16, FLOPs: 5, M: 1, N: 2, K: 3, Batch: 4,
		Reads: []kernels.Range{{Addr: 1, Bytes: 2}, {Addr: 3, Bytes: 4}}, Writes: []kernels.Range{{Addr: 5, Bytes: 6}},
	}
	first := workOf(kernels.Work{}, k)
	require.Equal(t, want, first)
	require.Equal(t, want, workOf(first, k), "slices are used again")
}
