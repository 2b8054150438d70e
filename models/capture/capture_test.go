package capture_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/capture"
)

// interpreter returns a program that takes Python's place: the script is its first
// argument, the file for the result its third.
func interpreter(t *testing.T, body string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	path := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o700))
	return path
}

func TestScriptGetsTheOptionsAndItsResultComesBack(t *testing.T) {
	log := filepath.Join(t.TempDir(), "args")
	python := interpreter(t, `
grep -q torch.export "$1" || exit 9
shift; shift; result=$1; shift
echo "$*" > `+log+`
echo 'chatter of the model'
echo '{"file": "m.pt2", "bytes": 12, "nodes": 3, "symbols": ["batch"], "batch": true, "notes": ["n"]}' > $result`)
	made, err := capture.Run(t.Context(), capture.Options{
		Spec: "a.py:f", Output: "m.pt2", Inputs: []string{"x=int64[batch]"}, InputsFrom: "a.py:g", Seq: 8,
		Python: python,
	})
	require.NoError(t, err)
	require.Equal(t, &capture.Outcome{
		File: "m.pt2", Bytes: 12, Nodes: 3, Symbols: []string{"batch"}, AnyBatch: true,
		Notes: []string{"n"},
	}, made)
	args, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, "--output m.pt2 --input=x=int64[batch] --inputs-from=a.py:g --seq=8 -- a.py:f\n", string(args))
}

func TestRefusalsNameTheCommandThatRecordsAStep(t *testing.T) {
	require.Contains(t, capture.Script(), capture.SameCommand)
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	var refused *capture.RefusedError
	_, err := capture.Run(t.Context(),
		capture.Options{Spec: "m", Python: interpreter(t, `echo '{"error": "no", "do": "yes"}' > $3; exit 2`)})
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "no\n  yes", err.Error())

	_, err = capture.Run(t.Context(), capture.Options{Spec: "m", Python: "python-of-nobody"})
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "there is no Python called python-of-nobody")
}

func TestPythonThatDiesIsAFailureWithItsLastLine(t *testing.T) {
	_, err := capture.Run(t.Context(),
		capture.Options{Spec: "m", Python: interpreter(t, `seq 9999 >&2; echo "Killed by nobody" >&2; exit 7`)})
	require.ErrorContains(t, err, "exit status 7: Killed by nobody")
	require.False(t, errors.As(err, new(*capture.RefusedError)))
	_, err = capture.Run(t.Context(), capture.Options{Spec: "m", Python: interpreter(t, `echo "[1" > $3`)})
	require.ErrorContains(t, err, "capture: the result of the Python script cannot be read: unexpected end of JSON input\nunexpected end of JSON input; run the command again with --verbose")
}

func TestInterruptEndsPython(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := capture.Run(ctx, capture.Options{Spec: "m", Python: interpreter(t, "exec sleep 60")})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// The script must at least be Python, and say what is missing where torch is.
func TestScriptRunsInAnyPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	require.Less(t, strings.Count(capture.Script(), "\n"), 700, "the script is meant to be read")
	// A torch that is none, so that the test does not depend on the machine.
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "torch.py"), []byte(`__version__ = "1.13.1"`), 0o600))
	t.Setenv("PYTHONPATH", dir)
	_, err = capture.Run(t.Context(), capture.Options{Spec: "a.py:f", Output: "m.pt2", Python: python})
	require.ErrorAs(t, err, new(*capture.RefusedError))
	require.ErrorContains(t, err, "has PyTorch 1.13.1\n  need 2.6 or newer")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "torch.py"), []byte(`raise ImportError("broken")`), 0o600))
	_, err = capture.Run(t.Context(), capture.Options{Spec: "a.py:f", Output: "m.pt2", Python: python})
	require.ErrorContains(t, err, "cannot import torch: broken")
}
