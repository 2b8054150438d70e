package calibrate

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
)

const mib = 1 << 20

// replayed returns a step of 100 MiB and 20 MiB per sample, with a tenth of cache.
func replayed(batch int) planner.Sample {
	s := planner.Sample{Batch: batch}
	s.Classes[program.Weights] = 100 * mib
	s.Classes[program.Activations] = 20 * mib * int64(batch)
	s.Reserved = s.Allocated() + s.Allocated()/10
	s.Segments = s.Reserved / (20 * mib)
	return s
}

// truth returns what coefficients make of a replay: the run that they describe.
func truth(c planner.Coefficients, batch int) Observation {
	s := replayed(batch)
	t := c.Totals(s)
	return Observation{Label: "run", Sample: s, Allocated: t.Allocated, Reserved: t.Reserved, Device: t.Device}
}

func coefficients(context, workspace, allocated, reserved, device float64) planner.Coefficients {
	c := planner.Coefficients{Context: planner.Coefficient{Value: context}}
	c.Learned[planner.LibraryWorkspace].Value = workspace
	c.Learned[planner.AllocatedSlack].Value = allocated
	c.Learned[planner.ReservedSlack].Value = reserved
	c.Learned[planner.DeviceSlack].Value = device
	return c
}

func TestFitRecoversWhatMadeTheRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share := rapid.Float64Range(0, 0.2)
		bytes := rapid.Float64Range(0, 2e9)
		want := coefficients(bytes.Draw(t, "context"), bytes.Draw(t, "workspace"), share.Draw(t, "allocated"),
			share.Draw(t, "reserved"), share.Draw(t, "device"))
		r, err := Fit([]Observation{truth(want, 8), truth(want, 32), truth(want, 64)}, planner.Coefficients{})
		require.NoError(t, err)
		for _, batch := range []int{1, 16, 256} {
			o := truth(want, batch)
			got := r.Coefficients.Totals(o.Sample)
			require.InEpsilon(t, o.Allocated, got.Allocated, 1e-6)
			require.InEpsilon(t, o.Reserved, got.Reserved, 1e-6)
			require.InEpsilon(t, o.Device, got.Device, 1e-6)
		}
		for _, p := range r.Points {
			require.InEpsilon(t, p.Observed, p.HeldOut, 1e-6)
		}
	})
}

// Nothing is ever fitted below zero, so a corrected estimate is at least the replay.
func TestFitTakesNothingAway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var seen []Observation
		for _, batch := range []int{4, 16, 64} {
			s := replayed(batch)
			allocated := rapid.Int64Range(s.Allocated()/2, 2*s.Allocated()).Draw(t, "allocated")
			reserved := allocated + rapid.Int64Range(0, s.Reserved).Draw(t, "reserved")
			seen = append(seen, Observation{
				Label: "run", Sample: s, Allocated: allocated, Reserved: reserved,
				Device: reserved + rapid.Int64Range(0, 1e9).Draw(t, "device"),
			})
		}
		r, err := Fit(seen, planner.Coefficients{})
		require.NoError(t, err)
		for _, term := range r.Terms {
			k := r.Coefficients.Term(term)
			require.GreaterOrEqual(t, k.Value, 0.0)
			require.False(t, math.IsNaN(k.StdErr))
		}
		for a := range r.Coefficients.Correlation {
			for b, rho := range r.Coefficients.Correlation[a] {
				require.InDelta(t, r.Coefficients.Correlation[b][a], rho, 0)
				require.LessOrEqual(t, math.Abs(rho), 1.0)
			}
		}
	})
}

// 4 runs with different numbers of segments for as many bytes determine what the driver adds to one.
func TestGranularityNeedsSegmentsThatDiffer(t *testing.T) {
	want := coefficients(3e8, 0, 0, 0, 0)
	var seen []Observation
	for i, batch := range []int{4, 8, 16, 64, 96} {
		o := truth(want, batch)
		o.Sample.Segments = int64(10 + 300*(i%2))
		o.Device += 65536 * o.Sample.Segments
		seen = append(seen, o)
	}
	r, err := Fit(seen, planner.Coefficients{})
	require.NoError(t, err)
	require.Empty(t, r.Undetermined)
	require.InEpsilon(t, 65536, r.Coefficients.Term(planner.Granularity).Value, 1e-3)

	r, err = Fit(seen[:3], planner.Coefficients{})
	require.NoError(t, err)
	require.Equal(t, []string{"granularity: needs 4 runs, there are 3"}, r.Undetermined)
	require.NotContains(t, r.Terms, planner.Granularity)
}

func TestRunsThatDoNotDetermineTheTermsAreRefused(t *testing.T) {
	c := coefficients(3e8, 0, 0, 0, 0.1)
	for want, batches := range map[string][]int{
		"batch 8 alone cannot tell what is constant from what grows with the batch": {8},
		"batch 16 alone cannot tell": {16, 16, 16},
		"batches 64, 65 are too close to tell what is constant from what grows with the batch (condition number 2": {
			64,
			65,
		},
	} {
		var seen []Observation
		for _, b := range batches {
			seen = append(seen, truth(c, b))
		}
		_, err := Fit(seen, planner.Coefficients{})
		require.ErrorAs(t, err, new(*ConditionError))
		require.ErrorContains(t, err, want)
	}
}

// The smallest batch that does it well; nothing if all are like the one there.
func TestAdviceIsABatchThatWouldDo(t *testing.T) {
	ran := []planner.Sample{replayed(64)}
	var candidates []planner.Sample
	for b := 1; b <= 256; b *= 2 {
		candidates = append(candidates, replayed(b))
	}
	require.Equal(t, 1, AdviseRun(ran, candidates))
	require.Equal(t, 128, AdviseRun(ran, candidates[6:]))
	require.Zero(t, AdviseRun(ran, candidates[6:7]))
	c := coefficients(3e8, 0, 0, 0, 0)
	_, err := Fit([]Observation{truth(c, 64), truth(c, 128)}, planner.Coefficients{})
	require.NoError(t, err)
}

// Two runs of a batch that differ by far more than runs do widen the interval.
func TestDisagreementWidensIntervals(t *testing.T) {
	c := coefficients(3e8, 0, 0, 0, 0.05)
	seen := []Observation{truth(c, 8), truth(c, 32), truth(c, 64)}
	calm, err := Fit(seen, planner.Coefficients{})
	require.NoError(t, err)
	seen[1].Device += 500 * mib
	wild, err := Fit(seen, planner.Coefficients{})
	require.NoError(t, err)
	require.Greater(t, wild.Coefficients.Context.StdErr, 20*calm.Coefficients.Context.StdErr)
}

func TestImpossibleRunsAreNamed(t *testing.T) {
	good := truth(coefficients(3e8, 0, 0, 0, 0), 8)
	for want, spoil := range map[string]func(*Observation){
		"run: this run cannot be replayed; leave it out":                                                          func(o *Observation) { o.Sample.Batch = 0 },
		"the run has no measured bytes":                                                                           func(o *Observation) { o.Allocated, o.Reserved, o.Device = 0, 0, 0 },
		"run: the measured bytes are negative; measure the run again":                                             func(o *Observation) { o.Allocated = -1 },
		"run: the run has more allocated bytes (299892737) than reserved bytes (299892736); measure it again":     func(o *Observation) { o.Allocated = o.Reserved + 1 },
		"run: the run has more reserved bytes (299892736) than device bytes in use (299892735); measure it again": func(o *Observation) { o.Device = o.Reserved - 1 },
	} {
		o := good
		spoil(&o)
		_, err := Fit([]Observation{o}, planner.Coefficients{})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "run: ")
	}
	_, err := Fit(nil, planner.Coefficients{})
	require.ErrorContains(t, err, "needs at least one run")
}

// What NCCL takes is told from the context by runs of one GPU and of several, and where
// there are none of one, the context stands as it was, with its error.
func TestFitTellsNCCLFromTheContext(t *testing.T) {
	want := coefficients(500*mib, 0, 0, 0, 0.01)
	ranks := func(batch int) Observation {
		o := truth(want, batch)
		o.Communication = 400 * mib
		o.Device += 1000 * mib
		return o
	}
	r, err := Fit([]Observation{truth(want, 8), truth(want, 64), ranks(8), ranks(64)}, planner.Coefficients{})
	require.NoError(t, err)
	require.InEpsilon(t, 500*mib, r.Coefficients.Context.Value, 1e-6)
	require.InEpsilon(t, 2.5, r.Coefficients.Term(planner.CommunicationShare).Value, 1e-6)

	assumed := planner.Coefficients{Context: planner.Coefficient{Value: 400 * mib, StdErr: 80 * mib}}
	r, err = Fit([]Observation{ranks(8), ranks(64)}, assumed)
	require.NoError(t, err)
	require.Equal(t, assumed.Context, r.Coefficients.Context)
	share := r.Coefficients.Term(planner.CommunicationShare)
	require.InDelta(t, 2.75, share.Value, 0.1)
	require.GreaterOrEqual(t, share.StdErr, 0.2)
}
