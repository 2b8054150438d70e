package trace

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Three sizes of 2^21 are 2^63 elements, more than an int64 counts.
func TestTensorsTooLargeRaise(t *testing.T) {
	for _, shape := range [][]int64{{1 << 21, 1 << 21, 1 << 21}, {1 << 46, 2}, {1 << 62, 1 << 62}} {
		tape := New(GPU{}, Rules{}, Options{})
		require.ErrorContains(t, tape.Try(func() { tape.Zeros(F32, shape...) }), "Storage size calculation overflowed")
	}
	tape := New(GPU{}, Rules{}, Options{})
	require.NoError(t, tape.Try(func() { tape.Zeros(F32, 1<<40, 0, 1<<40) }))
}
