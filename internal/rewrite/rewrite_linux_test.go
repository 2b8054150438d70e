package rewrite

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A disk that fills in the middle of a write is a limit on the size of files: half of the text gets through. The limit
// leaves room for what the testing package writes meanwhile.
func TestNothingIsLeftOfAWriteThatStopsHalfway(t *testing.T) {
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 20, Max: was.Max}))
	dir := t.TempDir()
	_, err := ReplaceFiles(t.Context(), []File{{filepath.Join(dir, "c"), nil, make([]byte, 2<<20)}})
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))
	require.ErrorIs(t, err, syscall.EFBIG)
	require.Empty(t, contents(t, dir))
}

// Names, owner, mode and attributes are the file's, not its content's.
func TestFileStaysTheFileItIs(t *testing.T) {
	dir, files := three(t)
	path, link := files[0].Path, filepath.Join(dir, "link")
	require.NoError(t, os.Link(files[1].Path, link))
	require.NoError(t, os.Chmod(path, 0o751))
	if os.Getuid() == 0 {
		require.NoError(t, os.Chown(path, 1234, 5678))
	}
	attributes := syscall.Setxattr(path, "user.note", []byte("kept"), 0) == nil // not every file system has them
	was, err := os.Stat(path)
	require.NoError(t, err)
	_, err = ReplaceFiles(t.Context(), files)
	require.NoError(t, err)
	for _, name := range []string{path, path + ".backup"} {
		is, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, was.Mode(), is.Mode(), name)
		require.Equal(t, was.Sys().(*syscall.Stat_t).Uid, is.Sys().(*syscall.Stat_t).Uid, name)
		require.Equal(t, was.Sys().(*syscall.Stat_t).Gid, is.Sys().(*syscall.Stat_t).Gid, name)
	}
	if attributes {
		value := make([]byte, 10)
		n, err := syscall.Getxattr(path, "user.note", value)
		require.NoError(t, err)
		require.Equal(t, "kept", string(value[:n]))
	}
	require.Equal(t, "new b", contents(t, dir)["link"])
}
