package compare_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/bench/experiment/compare"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
)

// amounts returns the byte counts of a made-up step of batch 8 on a T4.
func amounts(of string, allocated int64) compare.StepMemory {
	return compare.StepMemory{
		MemoryCounts: report.MemoryCounts{
			GPU: "t4", Torch: "2.15", Kind: "simulated", Allocated: allocated, Reserved: 2 * allocated,
		},
		Subject: of, AnyRelease: of, Batch: 8, Identity: "sim:t4",
	}
}

func side(label string, steps ...compare.StepMemory) *compare.ComparedFile {
	return &compare.ComparedFile{Label: label, Steps: steps}
}

func TestDifferencesAreRelativeToA(t *testing.T) {
	c, err := compare.Compare(side("old", amounts("x", 1000)), side("new", amounts("x", 1060)), 0.05, 0, nil)
	require.NoError(t, err)
	require.Equal(t, "old", c.A)
	require.Equal(t, "new", c.B)
	require.Len(t, c.Rows, 2, "the device's bytes were not seen")
	require.Equal(t, []string{"allocated", "reserved"}, []string{c.Rows[0].Count, c.Rows[1].Count})
	require.InDelta(t, 0.06, c.Rows[0].Difference, 1e-12)
	require.True(t, c.Rows[0].Over)
	require.Equal(t, 2, c.Over)

	c, err = compare.Compare(side("old", amounts("x", 1000)), side("new", amounts("x", 1050)), 0.05, 0, nil)
	require.NoError(t, err)
	require.Zero(t, c.Over, "the tolerance itself counts as no difference")
}

func TestStepsOfOneSideAreNamed(t *testing.T) {
	c, err := compare.Compare(side("a", amounts("x", 1), amounts("y", 1)),
		side("b", amounts("y", 1), amounts("z", 1)), 0, 0, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"x"}, c.OnlyA)
	require.Equal(t, []string{"z"}, c.OnlyB)
	require.Equal(t, "y", c.Rows[0].Step)

	_, err = compare.Compare(side("a", amounts("x", 1)), side("b", amounts("z", 1)), 0, 0, nil)
	require.ErrorContains(t, err, `a has "x", b has "z"`)
	_, err = compare.Compare(side("a", amounts("x", 1)), side("b", amounts("x", 1)), 0, 16, nil)
	require.ErrorContains(t, err, "none of that batch size")
}

// With several GPUs a step is compared on the same one, else on one of its kind, and
// never on another kind; where each side has one GPU, these are compared.
func TestGPUsAreMatchedByNearness(t *testing.T) {
	on := func(gpu, identity, uuid string, allocated int64) compare.StepMemory {
		a := amounts("x", allocated)
		a.GPU, a.Identity, a.UUID = gpu, identity, uuid
		return a
	}
	c, err := compare.Compare(
		side("a", on("t4", "cuda:0", "GPU-1", 100), on("t4", "cuda:1", "GPU-2", 200),
			on("h100", "cuda:2", "GPU-3", 300)),
		side("b", on("t4", "cuda:1", "GPU-1", 100), on("t4", "cuda:0", "GPU-2", 200),
			on("l4", "cuda:2", "GPU-4", 300)), 0, 0, nil)
	require.NoError(t, err)
	require.Zero(t, c.Over, "the driver's names of the GPUs decide, not their numbers")
	require.Equal(t, []string{"x on cuda:2"}, c.OnlyA)
	require.Equal(t, []string{"x on cuda:2"}, c.OnlyB)

	c, err = compare.Compare(side("a", on("t4", "cuda:0", "GPU-1", 100)),
		side("b", on("h100", "cuda:0", "GPU-9", 150)), 0, 0, nil)
	require.NoError(t, err)
	require.Equal(t, 2, c.Over)
}

// Releases of PyTorch are compared where each side has one.
func TestReleasesAreComparedWhereEachSideIsOfOne(t *testing.T) {
	of := func(release string) compare.StepMemory {
		a := amounts("x, PyTorch "+release, 100)
		a.AnyRelease, a.Torch = "x", release
		return a
	}
	c, err := compare.Compare(side("a", of("2.11")), side("b", of("2.15")), 0, 0, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"2.11", "2.15"}, []string{c.Rows[0].TorchA, c.Rows[0].TorchB})
	_, err = compare.Compare(side("a", of("2.11"), of("2.12")), side("b", of("2.15")), 0, 0, nil)
	require.ErrorContains(t, err, "the two files have no step in common")
}

// Whatever the steps are, each is in a row or named as one side's, and swapping the sides swaps these.
func TestEveryStepIsAccountedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drawn := func(label string) *compare.ComparedFile {
			names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"u", "v", "w", "x", "y"}), 1, 5,
				rapid.ID[string]).Draw(t, label)
			s := side(label)
			for _, n := range names {
				s.Steps = append(s.Steps, amounts(n, rapid.Int64Range(1, 1000).Draw(t, n)))
			}
			return s
		}
		a, b := drawn("a"), drawn("b")
		c, err := compare.Compare(a, b, 0, 0, nil)
		d, swapped := compare.Compare(b, a, 0, 0, nil)
		require.Equal(t, err == nil, swapped == nil)
		if err != nil {
			return
		}
		require.Len(t, a.Steps, len(c.Rows)/2+len(c.OnlyA))
		require.Len(t, b.Steps, len(c.Rows)/2+len(c.OnlyB))
		require.ElementsMatch(t, c.OnlyA, d.OnlyB)
		require.ElementsMatch(t, c.OnlyB, d.OnlyA)
		require.Equal(t, c.Over, d.Over)
	})
}

// Runs count before estimates, and what did not fit is no step.
func TestReadTakesRunsBeforeEstimates(t *testing.T) {
	r := report.Report{
		Schema: report.Schema, Kind: report.Sweep,
		Case:    report.Case{Case: models.Case{Model: "toy", Stage: "full", Accumulate: 1}},
		Devices: []report.Device{{Name: "sim:t4", GPU: "t4", Simulated: true, Memory: 1 << 34}},
		Points: []report.Point{
			{
				Batch: 8, Device: "sim:t4", Estimate: estimate(5),
				Run: &report.Run{Simulated: true, Fits: true, Allocated: 7, Reserved: 8, Device: 9},
			},
			{Batch: 16, Device: "sim:t4", Estimate: estimate(6)},
			{
				Batch: 32, Device: "sim:t4", Estimate: estimate(6),
				Run: &report.Run{Simulated: true, Allocated: 7, Reserved: 8, Device: 9},
			},
		},
	}
	text, err := json.Marshal(r)
	require.NoError(t, err)
	s, err := compare.Read(bytes.NewReader(text), "run.json", "run")
	require.NoError(t, err)
	require.Len(t, s.Steps, 2)
	require.Equal(t, []string{"simulated", "estimate"}, []string{s.Steps[0].Kind, s.Steps[1].Kind})
	require.EqualValues(t, 7, s.Steps[0].Allocated)
	require.EqualValues(t, 6, s.Steps[1].Allocated)
}

func TestReadNamesTheFileThatIsNone(t *testing.T) {
	for _, text := range []string{"", "{}", "hello"} {
		_, err := compare.Read(strings.NewReader(text), "mine.txt", "mine")
		var format *input.FormatError
		require.ErrorAs(t, err, &format, text)
		require.ErrorContains(t, err, "mine.txt")
	}
}

func estimate(n int64) *report.Estimate {
	at := report.Interval{Bytes: n, Low: n, High: n}
	return &report.Estimate{
		Allocated: at, Reserved: at, Device: at,
		Components: []report.Component{{Name: "weights", Bytes: n}}, Verdict: report.Fits,
	}
}
