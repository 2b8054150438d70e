package capture_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/capture"
	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

// The script that asks must at least be Python, and say what is missing: CI has no cuDNN.
func TestAskingSaysWhatIsMissing(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || runtime.GOOS != "linux" || query.Stubs() == nil {
		t.Skip("needs Linux with python3")
	}
	question := query.NewQuestion(cudnn.Config{
		Dim: 2, N: 1, Ci: 3, Co: 8, Groups: 1, In: [3]int64{8, 8}, K: [3]int64{3, 3}, Stride: [3]int64{1, 1},
		Dilation: [3]int64{1, 1},
	}, cudnn.Forward)
	library := filepath.Join(t.TempDir(), "libcudnn.so.9")
	require.NoError(t, os.WriteFile(library, []byte("no library"), 0o600))
	_, _, err = capture.Asking{Python: python, Library: library}.Ask(t.Context(), 86, []query.Question{question})
	require.ErrorAs(t, err, new(*capture.RefusedError))
	require.ErrorContains(t, err, "cannot load "+library)
}

func TestAnswersMustBeAsManyAsQuestions(t *testing.T) {
	if query.Stubs() == nil {
		t.Skip("no cuDNN to ask here")
	}
	_, _, err := capture.Asking{Python: interpreter(t, `echo '{"cudnn": "9.19", "bytes": [1, 2]}' > $3`)}.Ask(
		t.Context(), 86, nil)
	require.ErrorContains(t, err, "cuDNN answered 2 of 0 questions about convolutions; run \"vprof capture ask\" again with --verbose, which shows the output of Python")
}
