package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/tools/golden"
)

const mib = 1 << 20

func around(n int64) Interval { return Interval{n * mib, (n - 2) * mib, (n + 3) * mib} }

func toyEstimate(allocated int64, v Verdict) *Estimate {
	return &Estimate{
		Allocated: around(allocated), Reserved: around(allocated + 10), Device: around(allocated + 110),
		PeakPhase: "1:backward", Verdict: v,
		Components: []Component{
			{"weights", 100 * mib},
			{"optimizer state", (allocated - 100) * mib},
			{"allocator slack", 10 * mib},
			{"context", 100 * mib},
		},
	}
}

// toySweep returns a sweep that ran two of four batch sizes on a GPU of 500 MiB.
func toySweep() *Report {
	return &Report{
		Schema: Schema, Kind: Sweep, Tool: Tool{Version: "v1.0.0"},
		Started: time.Date(2026, 11, 5, 6, 7, 8, 0, time.UTC),
		Case: Case{Case: models.Case{
			Model: "toy", Stage: "full", AMP: "fp16", Accumulate: 4,
			Checkpointing: true, AllocConf: "expandable_segments:True",
		}, BatchUnit: "clip"},
		Parameters: Parameters{Total: 3, Trainable: 2},
		Devices: []Device{{
			Name: "sim:card", GPU: "card", Title: "Card | 500", Simulated: true, Memory: 500 * mib,
			Context: 100 * mib,
		}},
		Coefficients: []Coefficient{{"allocated_residual", 0.01, 0.002, "30 reference records of toy"}},
		Points: []Point{
			{Batch: 8, Device: "sim:card", Estimate: toyEstimate(200, Fits), Run: &Run{
				Simulated: true, Fits: true, Requested: 199 * mib, Allocated: 200 * mib, Reserved: 212 * mib,
				Device: 312 * mib, Retries: 2, PeakPhase: "1:backward",
				Classes: []Component{{"weights", 100 * mib}, {"optimizer state", 100 * mib}},
				Phases: []Phase{{
					Step: 0, Name: "forward", Allocated: 1, PeakAllocated: 2, Reserved: 3,
					PeakReserved: 4,
				}},
			}},
			{Batch: 16, Device: "sim:card", Estimate: toyEstimate(400, DoesNotFit), Run: &Run{
				Simulated: true, Requested: 300 * mib, Allocated: 301 * mib, Reserved: 380 * mib, Device: 480 * mib,
				Retries: 1, PeakPhase: "0:forward",
				Classes: []Component{}, Phases: []Phase{},
				OOM: &OOM{
					Requested: 24 * mib, Free: 20 * mib, Class: "activations", Op: "conv2d", Module: "stem.conv",
					Phase: "0:forward",
				},
			}},
		},
		Stopped:  &Stopped{Batch: 16, Left: []int{32, 64}, Reason: "out of memory at batch 16"},
		Warnings: []Warning{{What: "the GPU is small", Hint: "take a larger one"}},
	}
}

// toyPlan returns a plan for one GPU, or for two.
func toyPlan(gpus int) *Report {
	r := toySweep()
	r.Kind, r.Stopped = Plan, nil
	r.Points = nil
	r.Devices = append(r.Devices, Device{
		Name: "sim:other", GPU: "other", Title: "Other", Simulated: true,
		Memory: 1000 * mib,
	})[:gpus]
	for i, d := range r.Devices {
		verdicts := [][]Verdict{{Fits, Tight}, {Tight, DoesNotFit}}[i]
		r.Points = append(r.Points,
			Point{Batch: 8, Device: d.Name, Estimate: toyEstimate(200, verdicts[0])},
			Point{Batch: 16, Device: d.Name, Estimate: toyEstimate(400, verdicts[1])})
	}
	return r
}

// claimed gives the report a guide that says something of its first batch size, and a data set on the GPU.
func claimed(r *Report) *Report {
	r.Case.Dataset = 64 * mib
	for i := range r.Points {
		p := &r.Points[i]
		streamed := around(p.Estimate.Device.Bytes/mib - 64)
		p.Streamed = &streamed
		if p.Batch == 8 {
			p.Claims = []Claim{
				{
					Guide: "Memory", Project: "me/toy", Where: "section 1", Quantity: "device", Quote: "~300-320 MB",
					Bytes: &ByteRange{300 * mib, 320 * mib}, Batch: "8",
				},
				{
					Guide: "Memory", Project: "me/toy", Where: "section 2", Quantity: "allocated", Quote: "1 GB",
					Bytes: &ByteRange{1024 * mib, 1024 * mib}, Batch: "4-8", Note: "another figure",
				},
			}
		}
	}
	return r
}

// toyAccuracy returns a record that is right, one that is off, one OOM missed, one refused and one unknown.
func toyAccuracy() *Accuracy {
	fp16 := "fp16"
	row := func(line int, amp *string, ref, est AccuracySide, e *RelativeError) AccuracyRow {
		return AccuracyRow{AccuracyCase: AccuracyCase{
			File: "toy.jsonl", Line: line, Case: "toy", Stage: "full",
			Batch: 8, AMP: amp, Accumulate: 1, GPU: "card", Torch: "2.11",
		}, Reference: ref, Estimate: est, Error: e}
	}
	side := func(n int64) AccuracySide { return AccuracySide{Allocated: n * mib, Reserved: 2 * n * mib} }
	a := &Accuracy{Schema: AccuracySchema, Rows: []AccuracyRow{
		row(2, nil, side(100), side(100), &RelativeError{}),
		row(3, &fp16, side(100), side(90), &RelativeError{-0.1, -0.1}),
		row(4, &fp16, AccuracySide{OOM: true, Allocated: 400 * mib, Reserved: 450 * mib}, side(420), nil),
		row(5, nil, AccuracySide{Refused: "Expected more than 1 value"},
			AccuracySide{Refused: "norm: Expected more than 1 value"}, nil),
	}}
	a.Rows[1].Phases = []AccuracyPhase{{
		Step: 0, Name: "forward", Reference: PhaseBytes{100 * mib, 200 * mib},
		Estimate: PhaseBytes{90 * mib, 180 * mib}, Error: RelativeError{-0.1, -0.1},
	}}
	a.Unknown = []UnknownRecord{{a.Rows[0].AccuracyCase, `unknown model "toy"`}}
	a.Summarize()
	return a
}

func TestEveryFormatOfEveryDocument(t *testing.T) {
	for name, d := range map[string]Document{
		"sweep": toySweep(), "plan": toyPlan(1), "boards": toyPlan(2), "claimed-sweep": claimed(toySweep()),
		"claimed-plan": claimed(toyPlan(1)), "claimed-boards": claimed(toyPlan(2)), "accuracy": toyAccuracy(),
		"empty": &Report{
			Schema: Schema, Kind: Sweep, Devices: []Device{}, Coefficients: []Coefficient{},
			Points: []Point{},
		},
	} {
		for _, f := range Formats() {
			t.Run(name+"."+f, func(t *testing.T) {
				var b bytes.Buffer
				require.NoError(t, Write(&b, Format(f), d))
				golden.Equal(t, filepath.Join("testdata", name+"."+f), b.Bytes())
			})
		}
	}
}

func TestJSONIsValidAndReadsBack(t *testing.T) {
	for _, r := range []*Report{toySweep(), toyPlan(1), toyPlan(2), claimed(toySweep())} {
		var b bytes.Buffer
		require.NoError(t, Write(&b, JSON, r))
		require.NoError(t, validate(t, "report", b.Bytes()))
		var back Report
		require.NoError(t, json.Unmarshal(b.Bytes(), &back))
		require.Equal(t, r, &back)
	}
	var b bytes.Buffer
	require.NoError(t, Write(&b, JSON, toyAccuracy()))
	require.NoError(t, validate(t, "accuracy", b.Bytes()))
}

func TestEveryJSONLineIsAReportOfItsOwn(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Write(&b, JSONL, toyPlan(2)))
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Len(t, lines, 4)
	for _, line := range lines {
		require.NoError(t, validate(t, "report", []byte(line)))
		var r Report
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		require.Len(t, r.Points, 1)
		require.Len(t, r.Devices, 1)
		require.Equal(t, r.Points[0].Device, r.Devices[0].Name)
	}
}

func TestCSVRowsAreAsWideAsTheHeader(t *testing.T) {
	noEstimate := toySweep()
	noEstimate.Points[0].Estimate, noEstimate.Points[1].Run = nil, nil
	for _, d := range []Document{
		toySweep(), toyPlan(2), claimed(toySweep()), claimed(toyPlan(2)), toyAccuracy(),
		noEstimate,
		Sweeps{toySweep(), toyPlan(2), claimed(toySweep())},
	} {
		var b bytes.Buffer
		require.NoError(t, Write(&b, CSV, d))
		rows, err := csv.NewReader(&b).ReadAll() // fails on ragged rows
		require.NoError(t, err)
		require.Greater(t, len(rows), 1)
	}
}

func TestSimulatedRunsAreNeverCalledMeasured(t *testing.T) {
	for _, f := range Formats() {
		var b bytes.Buffer
		require.NoError(t, Write(&b, Format(f), toySweep()))
		require.Contains(t, b.String(), "simulated", f)
		require.NotContains(t, b.String(), "measured", f)
	}
	real := toySweep()
	real.Devices[0].Simulated = false
	var b bytes.Buffer
	require.NoError(t, Write(&b, Table, real))
	require.Contains(t, b.String(), "measured MiB")
	require.NotContains(t, b.String(), "simulated")
}

func TestWritersReportTheirErrors(t *testing.T) {
	for _, f := range Formats() {
		require.ErrorContains(t, Write(full{}, Format(f), toySweep()), "disk full", f)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestFormatNamesAndSuffixesAreKnown(t *testing.T) {
	for _, name := range Formats() {
		f, err := ParseFormat(name)
		require.NoError(t, err)
		require.EqualValues(t, name, f)
	}
	f, err := ParseFormat("md")
	require.NoError(t, err)
	require.Equal(t, Markdown, f)
	_, err = ParseFormat("yaml")
	require.ErrorContains(t, err, `unknown output format "yaml"; use one of table, json, jsonl, csv, markdown`)
	for path, want := range map[string]Format{
		"a.json": JSON, "b/c.JSONL": JSONL, "x.csv": CSV, "x.md": Markdown,
		"x.txt": Table,
	} {
		got, err := FormatOf(path)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err = FormatOf("report.html")
	require.ErrorContains(t, err, "report.html: the suffix is no known format; use one of .txt .json")
}

// A process that is killed, or a later file that is refused, leaves no empty files.
func TestExportsAreNotThereBeforeTheyAreWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	_, err := Exports([]string{path, "r.bogus"})
	require.Error(t, err)
	require.NoFileExists(t, path)
	exports, err := Exports([]string{path})
	require.NoError(t, err)
	require.NoFileExists(t, path)
	require.NoError(t, exports[0].Write(toySweep()))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, validate(t, "report", text))

	_, err = Exports([]string{filepath.Join(t.TempDir(), "no", "such", "folder.json")})
	require.Error(t, err)
	_, err = Exports([]string{"report.html"})
	require.Error(t, err)
}

func TestExportKeepsTheOldContentUntilAResult(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.csv")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	exports, err := Exports([]string{path})
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(text))
	require.NoError(t, exports[0].Write(toySweep()))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	text, err = os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(text), "old")
}

// A device must not be replaced by a file of its name.
func TestExportToADeviceWritesThrough(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "null.csv")
	if err := os.Symlink(os.DevNull, path); err != nil {
		t.Skip("no symbolic links here")
	}
	exports, err := Exports([]string{path})
	require.NoError(t, err)
	require.True(t, exports[0].direct)
	require.NoError(t, exports[0].Write(toySweep()))
	info, err := os.Stat(os.DevNull)
	require.NoError(t, err)
	require.False(t, info.Mode().IsRegular())
}

// A limit on one side alone is shown as such.
func TestClaimsOfLimitsShowThem(t *testing.T) {
	r := claimed(toyPlan(1))
	show := func(says string, low, high int64) string {
		r.Points[0].Claims = []Claim{{Quantity: "device", Quote: says, Bytes: &ByteRange{low * mib, high * mib}}}
		var b bytes.Buffer
		require.NoError(t, Write(&b, Table, r))
		for line := range strings.Lines(b.String()) {
			if rest, ok := strings.CutPrefix(line, " guide "); ok {
				return strings.Join(strings.Fields(rest), " ")
			}
		}
		return ""
	}
	require.Equal(t, "≤ 400.00 -", show("400 MB or less", 0, 400))
	require.Equal(t, "≥ 300.00–400.00 -", show("≥ 300-400 MB", 300, 400))
	require.Equal(t, "≥ 300.00 -", show("≥ 300 MB", 300, 300))
	require.Equal(t, "300.00 -", show("~300 MB", 300, 300))
}

// Every cell of a report stands under its own head beside other reports.
func TestSeveralReportsKeepTheirCells(t *testing.T) {
	reports := Sweeps{toySweep(), toyPlan(2), claimed(toySweep())}
	all := reports.Data().CSV
	at := 1
	for _, r := range reports {
		own := r.Data().CSV
		for _, row := range own[1:] {
			for i, cell := range row {
				require.Equal(t, cell, all[at][slices.Index(all[0], own[0][i])])
			}
			at++
		}
	}
	require.Len(t, all, at)
}

func TestCoefficientsHaveUnits(t *testing.T) {
	for name, want := range map[string]string{
		"context_bytes:rtx-5060-ti": "190.00 MiB", "context:t4": "190.00 MiB", "library_workspace:t4": "190.00 MiB",
		"nccl_bytes:t4": "190.00 MiB",
	} {
		require.Equal(t, want, FormatCoefficient(name, 190<<20))
	}
	require.Equal(t, "1.500 %", FormatCoefficient("allocated_residual", 0.015))
	require.Equal(t, "60.0 %", FormatCoefficient("efficiency:matmul", 0.6))
	require.Equal(t, "28.00 µs", FormatCoefficient("synthetic efficiency:dispatch", 28e-6))
}
