package experiment

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/observe/series"
	"github.com/vprof/vprof/bench/observe/snapshot"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
)

func kinds(found []report.Finding) []string {
	var names []string
	for _, f := range found {
		names = append(names, f.Kind)
	}
	return names
}

// The toy's batch 16 needs 304 MiB allocated: 64 and 15 per sample. Batch 8
// needs 120 less, checkpointing 8 per sample, half precision 5 per sample; the
// cache and what lies in it may add to that.
func TestRemediesSaveWhatTheCaseWouldNeedLess(t *testing.T) {
	saves := map[string]int64{}
	remedies, err := toySetup(t, models.Case{}, "").Remedies(t.Context(), card(800), 16)
	require.NoError(t, err)
	for _, r := range remedies {
		saves[r.What] = r.Saves
	}
	require.Len(t, remedies, 6)
	require.GreaterOrEqual(t, saves["batch 8 instead of 16"], int64(120*mib))
	require.GreaterOrEqual(t, saves["gradient checkpointing"], int64(8*16*mib))
	require.GreaterOrEqual(t, saves["autocast in fp16"], int64(5*16*mib))
}

func TestRunsAreDiagnosed(t *testing.T) {
	board := report.Device{Memory: 1000 * mib}
	for _, c := range []struct {
		run  report.Run
		want []string
	}{
		{report.Run{Allocated: 700 * mib, Reserved: 750 * mib, Device: 800 * mib}, nil},
		{report.Run{Allocated: 300 * mib, Reserved: 330 * mib, Device: 400 * mib}, []string{"under-use"}},
		{report.Run{Allocated: 300 * mib, Reserved: 800 * mib, Device: 900 * mib}, []string{"fragmentation"}},
		{report.Run{Allocated: 900 * mib, Reserved: 920 * mib, Device: 990 * mib, Retries: 2}, []string{"cache given back", "nearly full"}},
		{report.Run{Allocated: 300 * mib, Reserved: 330 * mib, Device: 400 * mib, Others: 300 * mib}, []string{"other processes"}},
		{report.Run{OOM: &report.OOM{}}, []string{"out of memory"}},
	} {
		require.Equal(t, c.want, kinds(DiagnoseRun(board, &c.run)))
	}
}

func TestSnapshotsAreDiagnosed(t *testing.T) {
	require.Empty(t, DiagnoseSnapshot(snapshot.Summary{PeakAllocated: 900 * mib, PeakReserved: 1000 * mib}))
	require.Equal(t, []string{"out of memory", "fragmentation"},
		kinds(DiagnoseSnapshot(snapshot.Summary{PeakAllocated: 400 * mib, PeakReserved: 1000 * mib, LargestFree: 20 * mib, OOMs: 1})))
}

// A cache that fills and stays is no leak, however long it took.
func TestOnlyGrowthThatGoesOnIsALeak(t *testing.T) {
	var fills, grows []float64
	for i := range 200 {
		fills = append(fills, float64(min(8000, 2000+100*i))*mib)
		grows = append(grows, float64(4000+20*i)*mib)
	}
	require.Empty(t, kinds(DiagnoseSeries(series.Series{Mine: fills})))
	require.Equal(t, []string{"leak"}, kinds(DiagnoseSeries(series.Series{Mine: grows})))
	require.Empty(t, DiagnoseSeries(series.Series{}))
}

func steady(n int, mebibytes float64) []float64 { return slices.Repeat([]float64{mebibytes * mib}, n) }

// A T4 has 15 GiB in the catalog, if the log does not say.
func TestLogsOfProcessesShowWhoElseIsThere(t *testing.T) {
	s := series.Series{
		Product: "Tesla T4", Mine: steady(50, 10000), Peak: 12000 * mib,
		Others: []series.Process{{PID: 7, Name: "jupyter", Peak: 1900 * mib}, {PID: 8, Name: "nvtop", Peak: 2 * mib}},
	}
	found := DiagnoseSeries(s)
	require.Equal(t, []string{"other processes"}, kinds(found))
	require.Equal(t, []string{"process 7 (jupyter) had up to 1.86 GiB"}, found[0].Evidence)
	require.Contains(t, found[0].Advice[0], "end them, which frees 1.86 GiB")
	s.Others, s.Peak = nil, 14800*mib
	require.Equal(t, []string{"nearly full"}, kinds(DiagnoseSeries(s)))
	s.Peak = 7000 * mib
	require.Equal(t, []string{"under-use"}, kinds(DiagnoseSeries(s)))
	s.Product = "a board of tomorrow"
	require.Empty(t, DiagnoseSeries(s))
}

// Steps leave 10 MiB more each; stacks say which line keeps them.
func TestSnapshotsOfSeveralStepsShowWhatLeaks(t *testing.T) {
	var grows, stays []int64
	for i := range int64(12) {
		grows, stays = append(grows, (100+10*i)*mib), append(stays, (100+i%2)*mib)
	}
	s := snapshot.Summary{
		PeakAllocated: 900 * mib, PeakReserved: 1000 * mib, Troughs: grows,
		Sites: []snapshot.Site{{Where: "model.py:3 forward", Blocks: 2, Bytes: 400 * mib}, {Where: "train.py:12 main", Blocks: 11, Bytes: 110 * mib}},
	}
	found := DiagnoseSnapshot(s)
	require.Equal(t, []string{"leak"}, kinds(found))
	require.Contains(t, found[0].Evidence[0], "10 steps leave 90.00 MiB more and more, 10.00 MiB a step")
	require.Equal(t, []string{"11 blocks in use, 110.00 MiB, are of train.py:12 main"}, found[0].Evidence[1:])
	s.Troughs = stays
	require.Empty(t, DiagnoseSnapshot(s))
	s.Troughs = grows[:7]
	require.Empty(t, DiagnoseSnapshot(s), "five steps are no trend")
}

// 300 MiB are free and 100 are asked for, but no piece has more than 60.
func TestFreePiecesThatNoRequestFitsAreFragments(t *testing.T) {
	s := snapshot.Summary{PeakAllocated: 900 * mib, PeakReserved: 1000 * mib, OOMs: 1, Failed: 100 * mib, Free: 300 * mib, LargestFree: 60 * mib}
	found := DiagnoseSnapshot(s)
	require.Equal(t, []string{"out of memory", "fragmentation"}, kinds(found))
	require.Contains(t, found[1].Evidence, "100.00 MiB were asked for while 300.00 MiB were free in the cache, in pieces too small")
	s.LargestFree = 150 * mib
	require.Equal(t, []string{"out of memory"}, kinds(DiagnoseSnapshot(s)))
	run := report.Run{Allocated: 900 * mib, Reserved: 1000 * mib, OOM: &report.OOM{Want: 100 * mib}, Phases: []report.Phase{{Allocated: 700 * mib, Reserved: 1000 * mib}}}
	require.Equal(t, []string{"out of memory", "fragmentation"}, kinds(DiagnoseRun(report.Device{}, &run)))
}

// The guides lower the negatives of the NAICS embedder by a third.
func TestRemediesOfAModelIncludeItsOwn(t *testing.T) {
	m, err := all.Models().Lookup("naics-embedder-stage01")
	require.NoError(t, err)
	setup, err := NewSetup(m, models.Case{Batch: 1, Accumulate: 1}, Evidence{Residuals: exactly})
	require.NoError(t, err)
	gpu, err := device.Lookup("a100-40")
	require.NoError(t, err)
	remedies, err := setup.Remedies(t.Context(), gpu, 1)
	require.NoError(t, err)
	require.Equal(t, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", remedies[0].What, "what costs nothing comes first")
	own := slices.IndexFunc(remedies, func(r report.Remedy) bool { return r.What == "n-negatives 16 instead of 24" })
	require.Positive(t, own)
	require.Positive(t, remedies[own].Saves)
	more, err := setup.Enlarged(t.Context(), gpu, 1)
	require.NoError(t, err)
	require.Contains(t, more, "batch 2 instead of 1 needs ")
}
