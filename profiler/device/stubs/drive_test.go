//go:build linux && (amd64 || arm64)

package stubs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program in C opens the libraries and drives them as PyTorch does: memory until there is
// none, copies, events, streams and the recording of a graph.
func TestDrive(t *testing.T) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	dir := t.TempDir()
	libraries, err := Unpack(dir)
	require.NoError(t, err)
	program, gpu := filepath.Join(dir, "drive"), filepath.Join(dir, "board")
	out, err := exec.Command(compiler, "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/drive.c", "-ldl").
		CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.WriteFile(gpu,
		[]byte("name GPU\nmemory 1073741824\ncontext 268435456\ncount 2\n"), 0o600))

	cmd := exec.Command(program, filepath.Join(libraries, "13"))
	log := filepath.Join(dir, "log")
	cmd.Env = append(os.Environ(), "VPROF_STUB_GPU="+gpu, "VPROF_STUB_LOG="+log, "CUDA_VISIBLE_DEVICES=0,1")
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	called, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, "default cusparseCreate\n", string(called), "a function of the table is named once")
}
