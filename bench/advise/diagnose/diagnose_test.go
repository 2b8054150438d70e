package diagnose

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/observe/series"
	"github.com/vprof/vprof/bench/observe/snapshot"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/tools/steptest"
)

func kinds(found []report.Finding) []string {
	var names []string
	for _, f := range found {
		names = append(names, f.Kind)
	}
	return names
}

func TestRunsAreDiagnosed(t *testing.T) {
	gpu := report.Device{Memory: 1000 * steptest.MiB}
	for _, c := range []struct {
		run  report.Run
		want []string
	}{
		{report.Run{Allocated: 700 * steptest.MiB, Reserved: 750 * steptest.MiB, Device: 800 * steptest.MiB}, nil},
		{
			report.Run{Allocated: 300 * steptest.MiB, Reserved: 330 * steptest.MiB, Device: 400 * steptest.MiB},
			[]string{"under-use"},
		},
		{
			report.Run{Allocated: 300 * steptest.MiB, Reserved: 800 * steptest.MiB, Device: 900 * steptest.MiB},
			[]string{"fragmentation"},
		},
		{report.Run{
			Allocated: 900 * steptest.MiB, Reserved: 920 * steptest.MiB, Device: 990 * steptest.MiB,
			Retries: 2,
		}, []string{"cache given back", "nearly full"}},
		{report.Run{
			Allocated: 300 * steptest.MiB, Reserved: 330 * steptest.MiB, Device: 400 * steptest.MiB,
			OtherProcessBytes: 300 * steptest.MiB,
		}, []string{"other processes"}},
		{report.Run{OOM: &report.OOM{}}, []string{"out of memory"}},
	} {
		require.Equal(t, c.want, kinds(FindInRun(gpu, &c.run)))
	}
}

func TestSnapshotsAreDiagnosed(t *testing.T) {
	healthy := FindInSnapshot(snapshot.Summary{PeakAllocated: 900 * steptest.MiB, PeakReserved: 1000 * steptest.MiB})
	require.Equal(t, []string{"no problem"}, kinds(healthy))
	require.False(t, healthy[0].Problem)
	require.Equal(t, "tensors held 900.00 MiB at most, the allocator 1000.00 MiB", healthy[0].What)
	require.Equal(t, []string{"out of memory", "fragmentation"},
		kinds(FindInSnapshot(snapshot.Summary{
			PeakAllocated: 400 * steptest.MiB, PeakReserved: 1000 * steptest.MiB,
			LargestFree: 20 * steptest.MiB, OOMs: 1,
		})))
}

// A cache that fills and stays is no leak, however long it took.
func TestOnlyGrowthThatGoesOnIsALeak(t *testing.T) {
	var fills, grows []float64
	for i := range 200 {
		fills = append(fills, float64(min(8000, 2000+100*i))*steptest.MiB)
		grows = append(grows, float64(4000+20*i)*steptest.MiB)
	}
	require.Empty(t, kinds(FindInSeries(series.Series{WatchedBytes: fills})))
	require.Equal(t, []string{"leak"}, kinds(FindInSeries(series.Series{WatchedBytes: grows})))
	require.Empty(t, FindInSeries(series.Series{}))
}

func steady(n int, mebibytes float64) []float64 {
	return slices.Repeat([]float64{mebibytes * steptest.MiB}, n)
}

// A T4 has 15 GiB in the catalog, if the log does not say.
func TestLogsOfProcessesShowWhoElseIsThere(t *testing.T) {
	s := series.Series{
		Product: "Tesla T4", WatchedBytes: steady(50, 10000), Peak: 12000 * steptest.MiB,
		Others: []series.Process{
			{PID: 7, Name: "jupyter", Peak: 1900 * steptest.MiB},
			{PID: 8, Name: "nvtop", Peak: 2 * steptest.MiB},
		},
	}
	found := FindInSeries(s)
	require.Equal(t, []string{"other processes"}, kinds(found))
	require.Equal(t, []string{"process 7 (jupyter) had up to 1.86 GiB"}, found[0].Evidence)
	require.Contains(t, found[0].Advice[0], "end them, which frees 1.86 GiB")
	s.Others, s.Peak = nil, 14800*steptest.MiB
	require.Equal(t, []string{"nearly full"}, kinds(FindInSeries(s)))
	s.Peak = 7000 * steptest.MiB
	require.Equal(t, []string{"under-use"}, kinds(FindInSeries(s)))
	s.Product = "a GPU of tomorrow"
	require.Empty(t, FindInSeries(s))
}

// Steps leave 10 MiB more each; stacks say which line keeps them.
func TestSnapshotsOfSeveralStepsShowWhatLeaks(t *testing.T) {
	var grows, stays []int64
	for i := range int64(12) {
		grows, stays = append(grows, (100+10*i)*steptest.MiB), append(stays, (100+i%2)*steptest.MiB)
	}
	s := snapshot.Summary{
		PeakAllocated: 900 * steptest.MiB, PeakReserved: 1000 * steptest.MiB, Troughs: grows,
		Sites: []snapshot.Site{
			{Where: "model.py:3 forward", Blocks: 2, Bytes: 400 * steptest.MiB},
			{Where: "train.py:12 main", Blocks: 11, Bytes: 110 * steptest.MiB},
		},
	}
	found := FindInSnapshot(s)
	require.Equal(t, []string{"leak"}, kinds(found))
	require.Contains(t, found[0].Evidence[0], "10 steps leave 90.00 MiB more and more, 10.00 MiB a step")
	require.Equal(t, []string{"11 blocks in use, 110.00 MiB, come from train.py:12 main"}, found[0].Evidence[1:])
	s.Troughs = stays
	require.Equal(t, []string{"no problem"}, kinds(FindInSnapshot(s)))
	s.Troughs = grows[:7]
	require.Equal(t, []string{"no problem"}, kinds(FindInSnapshot(s)), "five steps are no trend")
}

// 300 MiB are free and 100 are asked for, but no piece has more than 60.
func TestFreePiecesThatNoRequestFitsAreFragments(t *testing.T) {
	s := snapshot.Summary{
		PeakAllocated: 900 * steptest.MiB, PeakReserved: 1000 * steptest.MiB, OOMs: 1,
		Failed: 100 * steptest.MiB, Free: 300 * steptest.MiB, LargestFree: 60 * steptest.MiB,
	}
	found := FindInSnapshot(s)
	require.Equal(t, []string{"out of memory", "fragmentation"}, kinds(found))
	require.Contains(t, found[1].Evidence,
		"100.00 MiB were requested while 300.00 MiB were free in the cache, in blocks too small")
	s.LargestFree = 150 * steptest.MiB
	require.Equal(t, []string{"out of memory"}, kinds(FindInSnapshot(s)))
	run := report.Run{
		Allocated: 900 * steptest.MiB, Reserved: 1000 * steptest.MiB,
		OOM:    &report.OOM{Requested: 100 * steptest.MiB},
		Phases: []report.Phase{{Allocated: 700 * steptest.MiB, Reserved: 1000 * steptest.MiB}},
	}
	require.Equal(t, []string{"out of memory", "fragmentation"}, kinds(FindInRun(report.Device{}, &run)))
}
