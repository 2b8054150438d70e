package rewrite

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A disk that fills in the middle of a write is a limit on the size of files:
// half of the text gets through.
func TestNothingIsLeftOfAWriteThatStopsHalfway(t *testing.T) {
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 50, Max: was.Max}))
	dir := t.TempDir()
	_, err := Files(t.Context(), []File{{filepath.Join(dir, "c"), nil, make([]byte, 100)}})
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))
	require.ErrorIs(t, err, syscall.EFBIG)
	require.Empty(t, contents(t, dir))
}
