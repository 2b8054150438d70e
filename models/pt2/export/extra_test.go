package export

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A count is never below zero nor above the elements, whatever a file says, and reads as it is written.
func TestCountsAreAmongTheElements(t *testing.T) {
	require.EqualValues(t, 12, MaskCount{Linear: -1, Square: 1, Among: 1}.TrueElements(16, 4))
	require.EqualValues(t, 5, MaskCount{Least: 2, True: 3, Among: 8}.TrueElements(9, 4))
	require.EqualValues(t, math.MaxInt64/8*7, MaskCount{True: 7, Among: 8}.TrueElements(math.MaxInt64/8*8, 4))
	rapid.Check(t, func(rt *rapid.T) {
		number := rapid.Int64()
		c := MaskCount{
			1, number.Draw(rt, "least"), number.Draw(rt, "linear"), number.Draw(rt, "square"),
			number.Draw(rt, "true"), number.Draw(rt, "among"),
		}
		n := rapid.Int64Min(0).Draw(rt, "elements")
		got := c.TrueElements(n, rapid.Int64Min(1).Draw(rt, "batch"))
		require.True(rt, got >= 0 && got <= n)
		var read MaskCount
		text := fmt.Appendf(nil, "[%d, %d, %d, %d, %d, %d]", c.Node, c.Least, c.Linear, c.Square, c.True, c.Among)
		require.NoError(rt, json.Unmarshal(text, &read))
		require.Equal(rt, c, read)
	})
}
