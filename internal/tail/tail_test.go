package tail_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/internal/tail"
)

// However the text is cut into writes, its end is kept, in whole lines.
func TestTheEndIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,200}`), 1, 100).Draw(t, "lines")
		text := strings.Join(lines, "\n") + "\n"
		var kept tail.Tail
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "written")
			_, err := kept.Write([]byte(rest[:n]))
			require.NoError(t, err)
			rest = rest[n:]
		}
		require.Equal(t, lines[len(lines)-1], kept.Last())
		end := strings.Split(kept.String(), "\n")
		require.Equal(t, lines[len(lines)-len(end):], end)
		require.Equal(t, len(text) < 4096, len(end) == len(lines) && len(text) < 4096)
	})
}

func TestEmpty(t *testing.T) {
	var none tail.Tail
	require.Empty(t, none.String())
	require.Empty(t, none.Last())
}
