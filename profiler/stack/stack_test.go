package stack_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/stack"
)

func TestReleasesAreFoundByWhatPeopleAndFilesWrite(t *testing.T) {
	for _, name := range []string{"2.11", "v2.11", "2.11.0", "2.11.0+cu130", "2.11+cu130", "2.11.1a0+git1234"} {
		s, err := stack.Lookup(name)
		require.NoError(t, err, name)
		require.Equal(t, "2.11", s.Release(), name)
		require.Empty(t, s.Notes(), name)
	}
}

func TestReleasesThatNobodyMeasuredSaySo(t *testing.T) {
	all := stack.All()
	first, last := all[0], all[len(all)-1]
	for name, want := range map[string]*stack.Stack{"1.13.1": first, "2.99": last, "3.0": last} {
		s, err := stack.Lookup(name)
		require.NoError(t, err, name)
		require.Equal(t, want.Rules(), s.Rules(), name)
		require.Len(t, s.Notes(), 1, name)
		require.Contains(t, s.Notes()[0], "by the rules of "+want.Release(), name)
		require.Equal(t, stack.Versions{Torch: s.Release()}, s.Versions(), "the libraries of %s are not known", name)
	}
}

func TestTextThatNamesNoReleaseIsRefused(t *testing.T) {
	for _, name := range []string{"", "2", "2.", "two.eleven", "2.x", "-2.11", "2.11rc", "99999999.1", "latest"} {
		_, err := stack.Lookup(name)
		require.ErrorContains(t, err, ": write it like 2.11; known are", name)
		unknown := (*stack.UnknownError)(nil)
		require.ErrorAs(t, err, &unknown)
		require.True(t, unknown.Usage())
	}
}

func TestEveryKnownReleaseIsFound(t *testing.T) {
	all := stack.All()
	require.Contains(t, all, stack.Default())
	for _, s := range all {
		have, err := stack.Lookup(s.Release())
		require.NoError(t, err)
		require.Same(t, s, have)
	}
}

func FuzzLookup(f *testing.F) {
	for _, name := range []string{"2.11", "2.15.0+cu132", "v3.0", "2.", "x"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		s, err := stack.Lookup(name)
		if err != nil {
			return
		}
		again, err := stack.Lookup(s.Release())
		require.NoError(t, err)
		require.Equal(t, s.Versions(), again.Versions())
	})
}

func TestAllocatorSettingsAreThoseOfTheRelease(t *testing.T) {
	for conf, first := range map[string]string{
		"expandable_segments:True":        "2.8",
		"max_split_size_mb:21":            "2.8",
		"max_split_size_mb:20":            "2.9",
		"per_process_memory_fraction:0.5": "2.10",
		"large_segment_size_mb:30":        "2.11",
		"throw_on_cudamalloc_oom:True":    "2.12",
		"pinned_free_catch_all:True":      "2.12",
		"pinned_max_cached_size_mb:64":    "2.13",
		"expandable_segments_reserve:0.5": "2.15",
	} {
		known := false
		for _, s := range stack.All() {
			known = known || s.Release() == first
			_, err := s.Allocator().Parse(conf)
			require.Equal(t, known, err == nil, "%s on %s: %v", conf, s.Release(), err)
		}
		require.True(t, known)
	}
}
