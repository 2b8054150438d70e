package supervisor_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/supervisor"
)

// A folder is removed by the next process that makes one, once its own process is no more.
func TestFoldersOfKilledProcessesAreRemoved(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems do not tell which processes there are")
	}
	t.Setenv("TMPDIR", t.TempDir())
	ended := exec.Command("true")
	require.NoError(t, ended.Run())
	left := filepath.Join(os.TempDir(), fmt.Sprintf("a-%d-1", ended.Process.Pid))
	other := filepath.Join(os.TempDir(), "a-notes")
	for _, dir := range []string{left, other} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "inner"), 0o700))
	}
	mine, err := supervisor.Folder("a-")
	require.NoError(t, err)
	again, err := supervisor.Folder("a-")
	require.NoError(t, err)
	require.NoDirExists(t, left)
	for _, dir := range []string{other, mine, again} {
		require.DirExists(t, dir)
	}
}
