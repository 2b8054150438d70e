package diagnose

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/observe/oomtext"
	"github.com/vprof/vprof/bench/observe/snapshot"
)

const gib = 1 << 30

// A snapshot of an allocation that failed says who asked, who holds, what would have fitted and what to do.
func TestSnapshotsSayWhoAskedAndWhoHolds(t *testing.T) {
	data, err := os.ReadFile("../../observe/snapshot/testdata/requester.pickle")
	require.NoError(t, err)
	s, err := snapshot.Parse(data, "requester.pickle")
	require.NoError(t, err)
	f := FindInSnapshot(s.Summarize(0))[0]
	require.Equal(t, "out of memory", f.Kind)
	said := strings.Join(f.Evidence, "\n")
	for _, want := range []string{
		"asked for 1.00 GiB at /home/me/model.py:40 MLP.forward",
		"87.00 MiB were free on the device and 1.09 GiB in PyTorch's cache, in pieces of up to 600.00 MiB",
		"an allocation of up to 600.00 MiB would have fitted",
		"with the cache in one piece, it would have fitted",
		"activations: 11.00 GiB", "weights: 2.00 GiB",
		"line /home/me/model.py:40 MLP.forward holds 11.00 GiB in 2 tensors",
		"module forward of torch/nn/modules/linear.py holds 11.00 GiB",
	} {
		require.Contains(t, said, want)
	}
	require.Contains(t, f.Advice[0], "expandable_segments:True: the free memory is in pieces")
}

func TestErrorsSayWhatWouldHaveFitted(t *testing.T) {
	m := oomtext.Message{
		Rank: -1, GPU: 0, Requested: 2 * gib, Total: 16 * gib, Free: gib / 2, Process: 15 * gib,
		Allocated: 13 * gib, Cached: gib / 2,
	}
	found := FindInErrors([]oomtext.Message{m, m})
	require.Len(t, found, 1, "a log repeats itself")
	said := strings.Join(found[0].Evidence, "\n")
	require.Contains(t, said, "with the cache in one piece, 1.00 GiB would still have been missing")
	require.Contains(t, said, "1.50 GiB of the process are outside PyTorch's allocator")
	// 1 of 15 GiB.
	require.Contains(t, strings.Join(found[0].Advice, "\n"), "smaller by 7 % or more")

	m.Allowed, m.Others, m.Rank = 13.75*gib, gib, 2
	found = FindInErrors([]oomtext.Message{m})
	require.Len(t, found, 2)
	require.Equal(t, "rank 2", found[0].GPU)
	require.Contains(t, strings.Join(found[0].Evidence, "\n"), "an allocation of up to 256.00 MiB would have fitted")
	require.Equal(t, "other processes", found[1].Kind)

	found = FindInErrors([]oomtext.Message{{Rank: -1, GPU: -1}})
	require.Contains(t, found[0].What, "outside PyTorch's allocator")
}

func TestRanksThatDifferAreFound(t *testing.T) {
	require.Empty(t, CompareRanks([]string{"a"}, []int64{gib}))
	require.Empty(t, CompareRanks([]string{"a", "b"}, []int64{gib, gib + gib/50}))
	require.Equal(t, []string{"b peaks at 2.00 GiB, a at 1.00 GiB"},
		CompareRanks([]string{"a", "b"}, []int64{gib, 2 * gib})[0].Evidence)
}
