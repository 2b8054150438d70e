package bench

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/series"
	"github.com/vprof/vprof/bench/snapshot"
	"github.com/vprof/vprof/models"
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
	remedies, err := toyLab(t, models.Case{}, "").Remedies(t.Context(), card(800), 16)
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
	require.Empty(t, kinds(DiagnoseSeries(series.Series{Used: fills})))
	require.Equal(t, []string{"leak"}, kinds(DiagnoseSeries(series.Series{Used: grows})))
}
