package cudnnanswers_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/pt2/cudnnanswers"
	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

var config = cudnn.Config{
	Dim: 2, N: 8, Ci: 3, Co: 64, Groups: 1, In: [3]int64{224, 224}, K: [3]int64{7, 7}, Stride: [3]int64{2, 2},
	Pad: [3]int64{3, 3}, Dilation: [3]int64{1, 1},
}

func TestAnswersAreFoundByVersionArchitectureAndCall(t *testing.T) {
	path := cudnnanswers.FileOf(filepath.Join(t.TempDir(), "m.pt2"))
	none, err := cudnnanswers.Read(path)
	require.NoError(t, err)
	require.Empty(t, none)
	question := query.NewQuestion(config, cudnn.GradWeight).String()
	for _, s := range []cudnnanswers.Set{
		{CuDNN: "9.19", Capability: 86, Bytes: map[string]int64{question: 1, "other": 7}},
		{CuDNN: "9.26", Capability: 86, Bytes: map[string]int64{question: 2}},
		{CuDNN: "9.19", Capability: 80, Bytes: map[string]int64{question: 3}},
		{CuDNN: "9.19", Capability: 86, Bytes: map[string]int64{question: 4}}, // once more
	} {
		require.NoError(t, cudnnanswers.Save(t.Context(), path, s))
	}
	all, err := cudnnanswers.Read(path)
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Equal(t, int64(7), all[1].Bytes["other"])
	for _, tt := range []struct {
		version    string
		generation int
		direction  cudnn.Direction
		want       int64
		asked      bool
	}{
		{"9.19", 86, cudnn.GradWeight, 4, true},
		{"9.26", 86, cudnn.GradWeight, 2, true},
		{"9.19", 80, cudnn.GradWeight, 3, true},
		{"9.19", 86, cudnn.Forward, 0, false},
		{"9.26", 80, cudnn.GradWeight, 0, false},
	} {
		n, ok := all.For(tt.version, tt.generation)(cudnn.Canonical(config, tt.direction))
		require.Equal(t, tt.asked, ok, "%+v", tt)
		require.Equal(t, tt.want, n, "%+v", tt)
	}
	beside, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, beside, 1, "no backups of what is only kept to save time")
}

func TestDamagedAnswersAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.cudnn.json")
	for text, want := range map[string]string{
		`{"format": "vprof.cudnn/v1", "answers": [{]}`:                                 "is damaged",
		`{"format": "vprof.cudnn/v9"}`:                                                 "is in the format \"vprof.cudnn/v9\"",
		`{"format": "vprof.cudnn/v1", "answers": [{"bytes": {"0 0": -5}}]}`:            "has -5 bytes for \"0 0\"",
		`{"format": "vprof.cudnn/v1", "answers": [{"bytes": {"0 0": 1e99}}]}`:          "is damaged",
		`{"format": "vprof.cudnn/v1", "answers": {"cudnn": "9.19", "capability": 86}}`: "is damaged",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := cudnnanswers.Read(path)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "ask again with vprof capture ask")
		require.ErrorContains(t, cudnnanswers.Save(t.Context(), path, cudnnanswers.Set{}), want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(
		`{"format": "vprof.cudnn/v1", "answers": [{"cudnn": "9.19", "capability": 86, "bytes": {"0 0 0 2": 5}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := cudnnanswers.Parse("m.cudnn.json", text)
		if err != nil {
			return
		}
		for _, s := range all {
			for question, n := range s.Bytes {
				require.GreaterOrEqual(t, n, int64(0), question)
			}
		}
		all.For("9.19", 86)(config, cudnn.Forward)
		require.NotEmpty(t, all.Add(cudnnanswers.Set{CuDNN: "9.19", Capability: 86}))
	})
}
