package stack_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

func TestReleasesOfLibrariesAreRead(t *testing.T) {
	l, err := stack.ParseLibraries("trl==1.16.0, transformers=v5.12.1")
	require.NoError(t, err)
	require.Equal(t, stack.Libraries{"transformers": "5.12", "trl": "1.16"}, l)
	require.Equal(t, "transformers=5.12,trl=1.16", l.String())
	require.Equal(t, "transformers 5.12, trl 1.16", l.Text())
	for _, text := range []string{"", "numpy=2.0", "transformers", "transformers=new", "trl=1,", "trl=1.1,trl=1.2"} {
		_, err := stack.ParseLibraries(text)
		require.Error(t, err, text)
	}
}

func TestRulesBeginWithReleases(t *testing.T) {
	of := func(release string) *stack.Stack {
		return stack.Default().WithLibraries(stack.Libraries{"transformers": release})
	}
	require.False(t, of("4.48").Rules().Libraries.ShiftsLabels)
	require.True(t, of("4.49").Rules().Libraries.ShiftsLabels)
	newest := of(stack.Newest("transformers"))
	require.Equal(t, stack.Default().Rules(), newest.Rules(), "a release that is not named is the newest")
	require.Empty(t, newest.Notes())
	require.Equal(t, []string{"nobody measured transformers 9.9: by the rules of " + stack.Newest("transformers") +
		", the nearest known"}, of("9.9").Notes())
	require.Equal(t, trace.SharedByStarcoder2, of("4.47").Rules().Libraries.SharedFunctions)
	for release, by := range map[string]trace.FusedAttentionModels{
		"3.0": trace.FusedByLlama, "4.41": trace.FusedByBERT, "4.44": trace.FusedByGPT, "4.45": trace.FusedByRoBERTa,
		"4.46": trace.FusedByOPT, "5.24": trace.FusedByOPT,
	} {
		require.Equal(t, by, of(release).Rules().Libraries.FusedAttention, release)
	}
	require.Equal(t, []string{
		"nobody measured all of transformers 4.39: values follow what is known of releases before 4.40",
	}, of("4.39").Notes())
	require.Equal(t, trace.SharedByLlama, of("4.43").Rules().Libraries.SharedAngles)
	require.False(t, of("4.57").Rules().Libraries.FusedExperts)
	older := stack.Default().WithLibraries(stack.Libraries{"trl": "1.6"})
	require.False(t, older.Rules().Libraries.ChunksLoss)
	require.Equal(t, []string{
		"nobody measured all of trl 1.6: values follow what is known of releases before 1.9",
	}, older.Notes())
	require.Equal(t, []string{"1.6", "1.7"}, stack.ReleasesWithChanges("trl")[:2])
	require.Equal(t, []string{"4.45", "4.46", "4.47"}, stack.ReleasesWithChanges("transformers")[:3])
}

func TestNVIDIAsLibrariesOfAStack(t *testing.T) {
	s := stack.Default().WithLibraries(stack.Libraries{"cuda": "12.8", "cudnn": "9.10"})
	require.Equal(t, "12.8", s.Versions().CUDA)
	oldest := stack.All()[0]
	require.Equal(t, oldest.Versions().CuDNN, s.Versions().CuDNN)
	require.Same(t, oldest.Rules().Convolutions, s.Rules().Convolutions)
}

func FuzzParseLibraries(f *testing.F) {
	f.Add("transformers=5.12,trl=1.16")
	f.Add("cudnn=9.10.2.21")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := stack.ParseLibraries(text)
		if err != nil {
			return
		}
		again, err := stack.ParseLibraries(l.String())
		require.NoError(t, err)
		require.Equal(t, l, again)
	})
}
