package cudnn

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHalfPrecisionCopiesInputWeightAndOutput(t *testing.T) {
	c := Config{Dim: 2, N: 8, Ci: 64, Co: 64, In: [3]int64{28, 28}, K: [3]int64{3, 3},
		Stride: [3]int64{1, 1}, Pad: [3]int64{1, 1}, Dilation: [3]int64{1, 1}, Groups: 1, DType: F16}
	b := Board{Capability: 120, SMs: 36, ThreadsPerSM: 1536, Memory: 16 << 30}
	// 802816 of x, 73728 of w, 802816 of y, and 16 for alignment.
	require.Equal(t, []int64{1679376}, Workspaces(c, Forward, b))
}
