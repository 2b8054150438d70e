package reference_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/reference"
)

func TestPublishedFiguresHaveASourceAndAPlan(t *testing.T) {
	rows, ok, err := reference.OpenPublished("data/published/loops.jsonl.gz")
	require.NoError(t, err)
	require.True(t, ok)
	require.Len(t, rows, 359)
	for _, r := range rows {
		require.NotEmpty(t, r.Source)
		require.True(t, strings.Contains(r.Command, " --model hf:configs/"), r.Command)
	}
}

func TestRecordsAreNoPublishedFigures(t *testing.T) {
	_, ok, err := reference.OpenPublished("data/finetune/loops.jsonl")
	require.NoError(t, err)
	require.False(t, ok)
}

func FuzzReadPublished(f *testing.F) {
	f.Add(`{"source": "a paper", "kind": "device", "published_bytes": 7, "missing": "it"}`)
	f.Add(`{"source": "a paper", "kind": "reserved", "published_bytes": -7, "command": "plan --model gpt2"}`)
	f.Fuzz(func(t *testing.T, text string) {
		rows, ok, err := reference.ReadPublished(strings.NewReader(text), "rows")
		if err != nil || !ok {
			return
		}
		for _, r := range rows {
			require.True(t, slices.Contains(reference.Kinds(), r.Kind))
			require.True(t, r.Command != "" || r.Missing != "")
		}
	})
}
