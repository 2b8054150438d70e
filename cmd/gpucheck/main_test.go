package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// machine is a folder with programs that say what vprof and the tests would.
func machine(t *testing.T, vprof, tests string) *check {
	bin := t.TempDir()
	for name, script := range map[string]string{"vprof": vprof, "cuda.test": tests} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script), 0o700))
	}
	return &check{bin: bin, out: filepath.Join(t.TempDir(), "out"), screen: &bytes.Buffer{}}
}

const (
	doctor = `[ "$1" != doctor ] || { echo '{"driver":"580.65.06","gpus":[{"name":"NVIDIA H200"}]}'; exit 0; }
`
	works = doctor + `
while [ $# -gt 1 ]; do [ "$1" != --export ] || file="$2"; shift; done
case "$file" in
*/sweep.json) cat "$(dirname "$0")/sweep.json" >"$file" ;;
*/calibration.json) echo '{"errors":{"after":{"max":0.01}}}' >"$file" ;;
esac
`
	fast = `echo "VPROF_GPU is $VPROF_GPU"; cat "$(dirname "$0")/kernels.txt"`
)

func TestEveryStepLeavesItsOutput(t *testing.T) {
	c := machine(t, works, fast)
	for _, name := range []string{"sweep.json", "kernels.txt"} {
		text, err := os.ReadFile(filepath.Join(folder(t, 8), name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(c.bin, name), bytes.ReplaceAll(text, []byte("49.9"), []byte("50")), 0o600))
	}
	require.NoError(t, c.run(t.Context()), "%s", c.screen)
	require.Equal(t, "NVIDIA H200", c.result.GPU)
	for _, s := range c.result.Steps {
		require.FileExists(t, filepath.Join(c.out, s.Name+".txt"))
		require.Zero(t, s.Exit)
	}
	for _, name := range []string{"doctor.json", "result.json", "summary.md"} {
		require.FileExists(t, filepath.Join(c.out, name))
	}
	text, err := os.ReadFile(filepath.Join(c.out, "tests.txt"))
	require.NoError(t, err)
	require.Contains(t, string(text), "VPROF_GPU is 1")
}

func TestAFailureDoesNotEndTheCheck(t *testing.T) {
	c := machine(t, doctor+"exit 3\n", "exit 1\n")
	err := c.run(t.Context())
	require.ErrorContains(t, err, "tests failed; kernels failed; sweep failed")
	require.ErrorContains(t, err, "8 of 8 figures are missing")
	require.FileExists(t, filepath.Join(c.out, "summary.md"))
	require.Len(t, c.result.Steps, 1+len(c.steps()))
}

func TestWithoutAGPUThereIsNothingToCheck(t *testing.T) {
	c := machine(t, "echo '{\"gpus\":[]}'; exit 4\n", "")
	var none noGPU
	require.ErrorAs(t, c.run(t.Context()), &none)
	require.FileExists(t, filepath.Join(c.out, "doctor.txt"))
	require.Len(t, c.result.Steps, 1)
}
