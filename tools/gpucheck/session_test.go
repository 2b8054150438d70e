//go:build cuda && linux && cgo

package main

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/tools/fakecuda"
	"github.com/vprof/vprof/tools/sample"
)

// The session of tools/evidence/session.py runs to its end with a driver without a GPU. With VPROF_PYTHON, a Python
// with PyTorch, the parts that train run, too. A call that hangs costs its part the time limit and leaves the GPU free.
func TestASessionOnAGPUIsRehearsed(t *testing.T) {
	if os.Getenv(sample.Variable) != "nightly" && os.Getenv("VPROF_PYTHON") == "" {
		t.Skip("minutes")
	}
	gpu, err := device.Lookup("h100")
	require.NoError(t, err)
	gpu.Memory = 16 << 30
	python := os.Getenv("VPROF_PYTHON")
	for _, hang := range []string{"", "cuMemAlloc:60"} {
		setup := fakecuda.Genuine(gpu)
		setup.Quiet, setup.Hang = true, hang
		c, driver := on(t, setup)
		out, err := exec.Command("go", "build", "-o", filepath.Join(c.bin, "gpucheck"), ".").CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NoError(t, os.CopyFS(filepath.Join(c.bin, "tools", "record"), os.DirFS("../record")))
		require.NoError(t, os.CopyFS(filepath.Join(c.bin, "models", "capture"), os.DirFS("../../models/capture")))
		args := []string{"../evidence/session.py", "--bin", c.bin, "--out", c.out}
		if python != "" {
			args = append(args, "--python", python, "--rehearse", "h100")
		}
		if hang != "" {
			args = append(args, "--minutes", "0.2")
		}
		out, err = exec.Command("python3", args...).CombinedOutput()
		text, failed := os.ReadFile(filepath.Join(c.out, "session.jsonl"))
		require.NoError(t, failed, "%s", out)
		ended := map[string]string{}
		for line := range strings.Lines(string(text)) {
			var part struct{ Part, Ended string }
			require.NoError(t, json.Unmarshal([]byte(line), &part))
			ended[part.Part] = part.Ended
		}
		require.Equal(t, hang == "" && python == "", err == nil, "%s", out)
		require.Equal(t, "finished", ended["doctor"])
		last := map[string]string{"": "finished", "cuMemAlloc:60": "skipped"}
		require.Equal(t, last[hang], cmp.Or(ended["kernels"], "lost"), "%s", out)
		if hang == "" {
			require.FileExists(t, filepath.Join(c.out, "gpu-check.tar.gz"))
			require.FileExists(t, filepath.Join(c.out, "coefficients.yaml"))
			requireFree(t, driver)
		}
	}
}
