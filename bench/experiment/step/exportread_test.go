package step_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/observe/snapshot"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/tools/sample"
	"github.com/vprof/vprof/tools/steptest"
)

// What a replay writes as a snapshot is read back with its peaks, to the byte, although events say what was asked for
// and not what was given; and with the ends of both steps.
func TestPeaksOfSnapshotsAreThoseOfTheReplay(t *testing.T) {
	gpu, err := device.Lookup("t4")
	require.NoError(t, err)
	for _, name := range sample.Of([]string{"redimnet-b2", "patch-vqvae", "gpt2", "bdslw-spoter"}) {
		for _, conf := range []string{"", "expandable_segments:True", "max_split_size_mb:32"} {
			m, err := all.Models().Lookup(name)
			require.NoError(t, err)
			setup, err := step.New(m, models.Case{Stage: "full", Accumulate: 1, AllocConf: conf}, steptest.Exact())
			require.NoError(t, err)
			p, err := setup.Profile(t.Context(), gpu, 4)
			require.NoError(t, err)
			var b bytes.Buffer
			require.NoError(t, p.WriteMemoryViz(&b))
			s, err := snapshot.Read(&b, "export")
			require.NoError(t, err)
			sum, err := s.SummarizeOnlyDevice("export")
			require.NoError(t, err)
			require.Equal(t, p.Run.Max.Allocated, sum.PeakAllocated, "%s %s", name, conf)
			require.Equal(t, p.Run.Max.Reserved, sum.PeakReserved, "%s %s", name, conf)
			require.NotEmpty(t, s.SimulatedBy)
			require.GreaterOrEqual(t, len(sum.Troughs), 2, "%s %s", name, conf)
			// A recorder that began late does not know the blocks from before.
			s.Traces[0] = s.Traces[0][len(s.Traces[0])/2:]
			late, err := s.SummarizeOnlyDevice("export")
			require.NoError(t, err)
			require.LessOrEqual(t, late.PeakAllocated, sum.PeakAllocated)
			require.InEpsilon(t, sum.PeakAllocated, late.PeakAllocated, 0.02, "%s %s", name, conf)
		}
	}
}
