package capture_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/capture"
	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

func TestOracleAsksOnceAndRemembers(t *testing.T) {
	if query.Stubs() == nil {
		t.Skip("no cuDNN to ask here")
	}
	folder := t.TempDir()
	nobody := &capture.LocalCuDNN{Folder: folder}
	require.Nil(t, nobody.Answers("9.26", 86), "no Python was remembered")

	log := filepath.Join(t.TempDir(), "asked")
	python := interpreter(t, `echo 9.26; while read q; do echo "$q" >> `+log+`; echo 4096; done`)
	question := cudnn.Config{
		Dim: 2, N: 1, Ci: 3, Co: 8, Groups: 1, In: [3]int64{8, 8}, Out: [3]int64{8, 8}, K: [3]int64{3, 3},
		Stride: [3]int64{1, 1}, Dilation: [3]int64{1, 1},
	}
	for range 2 { // the second time from the folder
		o := &capture.LocalCuDNN{Folder: folder}
		require.NoError(t, o.Remember(python))
		for range 2 {
			n, known := o.Answers("9.26", 86)(question, cudnn.Forward)
			require.True(t, known)
			require.Equal(t, int64(4096), n)
		}
		_, known := o.Answers("9.19", 86)(question, cudnn.Forward)
		require.False(t, known, "another version says nothing")
		require.NoError(t, o.Close(t.Context()))
	}
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, query.Question{Operation: cudnn.Forward, Config: question}.String()+"\n", string(text))
}
