package trace

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// A walk through the graph reads one line of the cache for each node, on processors of 64 bits.
func TestNodesBeginWithALineOfTheCacheThatIsEnoughForAWalk(t *testing.T) {
	const line = 64
	var n Node
	require.Less(t, unsafe.Offsetof(n.flags), uintptr(line))
	require.Zero(t, unsafe.Sizeof(n)%line)
	var s slab[Node]
	for range 3 * slabPiece {
		require.Zero(t, uintptr(unsafe.Pointer(s.take()))%line)
	}
}
