package cli

import (
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/tools/conformal"
	"github.com/vprof/vprof/tools/golden"
	"github.com/vprof/vprof/tools/sample"
	"github.com/vprof/vprof/tools/steptest"
)

const (
	publishedFolder = "../bench/reference/data/published"
	// plansOfPublished has the plan of each published figure, in their order, with intervals of replays alone.
	plansOfPublished = publishedFolder + "/plans.csv"
)

// knownLoops are the sources whose loops and releases are known.
var knownLoops = []string{"fitcheck", "can-i-finetune-this", "PEFT MetaMathQA", "FakeGPU"}

// publishedRows returns the published figures with the plans of the table.
func publishedRows(t *testing.T) []report.PublishedRow {
	t.Helper()
	rows, ok, err := reference.OpenPublished(publishedFolder + "/loops.jsonl.gz")
	require.NoError(t, err)
	require.True(t, ok)
	f, err := os.Open(plansOfPublished)
	require.NoError(t, err)
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	require.Len(t, lines, len(rows)+1)
	var all []report.PublishedRow
	for i, r := range rows {
		var n [3]int64
		for k := range n {
			n[k], err = strconv.ParseInt(lines[i+1][2+k], 10, 64)
			require.NoError(t, err)
		}
		require.Equal(t, []string{r.Group, r.Kind}, lines[i+1][:2])
		r.Estimate = &report.Interval{Bytes: n[0], Low: n[1], High: n[2]}
		all = append(all, r.PublishedRow)
	}
	return all
}

// TestPlansOfPublishedFiguresAreCurrent plans published figures again: some, in CI figures of known loops and some
// others, or all with -update.
func TestPlansOfPublishedFiguresAreCurrent(t *testing.T) {
	sample.Alone(t)
	rows, _, err := reference.OpenPublished(publishedFolder + "/loops.jsonl.gz")
	require.NoError(t, err)
	of := func(i int) bool {
		known := slices.Contains(knownLoops, rows[i].Group) || strings.Contains(rows[i].Command, "half-embeddings")
		return golden.Updating() || sample.All() && known && rows[i].Kind != "device" || i%64 == 0
	}
	var chosen []reference.Published
	for i, r := range rows {
		if of(i) {
			chosen = append(chosen, r)
		}
	}
	a := newSystemApp()
	a.residuals = steptest.Exactly
	planned, err := a.publishedRows(t.Context(), chosen, publishedFolder, func(string, int, int) {})
	require.NoError(t, err)
	if golden.Updating() {
		var text strings.Builder
		fmt.Fprintln(&text, "group,kind,estimate_bytes,low_bytes,high_bytes")
		for _, r := range planned {
			require.NotNil(t, r.Estimate, "%s: %s", r.Subject, r.Refused)
			fmt.Fprintf(&text, "%s,%s,%d,%d,%d\n", r.Group, r.Kind, r.Estimate.Bytes, r.Estimate.Low, r.Estimate.High)
		}
		golden.Equal(t, plansOfPublished, []byte(text.String()))
	}
	table := publishedRows(t)
	for i, n := 0, 0; i < len(rows); i++ {
		if of(i) {
			require.Equal(t, table[i].Estimate, planned[n].Estimate, rows[i].Subject)
			n++
		}
	}
}

// TestMarginsAreThoseOfPublishedFigures computes the margins of published figures, and how often they hold sources that
// are left out: of known loops beyond replays, of other runs beyond the intervals that have those margins. The printed
// sentence and docs/lab/evidence.md have the counts.
func TestMarginsAreThoseOfPublishedFigures(t *testing.T) {
	rows := publishedRows(t)
	of := func(known bool, outside float64, beyond conformal.Margin, kinds ...string) conformal.Margin {
		var groups [][]conformal.Miss
		for _, source := range lists.Groups(lists.Filter(rows, func(r report.PublishedRow) bool {
			return slices.Contains(knownLoops, r.Group) == known && slices.Contains(kinds, r.Kind)
		}), func(r report.PublishedRow) string { return r.Group }) {
			groups = append(groups, lists.Map(source, func(r report.PublishedRow) conformal.Miss {
				e := r.Estimate
				v := float64(e.Bytes)
				low, high := e.Low+int64(v*beyond.Low), e.High+int64(v*beyond.High)
				return conformal.MissOf(r.Bytes, r.Rounding, low, e.Bytes, high)
			}))
		}
		return conformal.Of(outside, groups)
	}
	described := conformal.Group{
		Group: "others' loops on real GPUs", Apart: "their source",
		Allocated: of(true, conformal.Middle95, conformal.Margin{}, "allocated"),
		// Reserved bytes of equal runs differ by up to 7 %.
		Reserved: of(true, conformal.Middle90, conformal.Margin{}, "reserved"),
	}
	reported := conformal.Group{
		Group: "runs that others report", Apart: "their source",
		Allocated: of(false, conformal.Middle95, described.Allocated, "allocated"),
		Reserved:  of(false, conformal.Middle95, described.Reserved, "reserved", "device"),
	}
	// Of these groups docs/lab/models.md and docs/lab/compile.md have the ranges, whose records are not in the
	// repository.
	fixed := func(name string, records int, a, r [2]float64) conformal.Group {
		return conformal.Group{
			Group: name, Allocated: conformal.Margin{Low: a[0], High: a[1], Records: records},
			Reserved: conformal.Margin{Low: r[0], High: r[1], Records: records},
		}
	}
	data, err := conformal.Encode("bench/reference/data/published; docs/lab/models.md and compile.md",
		[]conformal.Group{
			described, reported,
			fixed("41 captured models", 153, [2]float64{-.0038, .0061}, [2]float64{-.0001, .0001}),
			fixed("73 captured models without cuDNN's answers", 335, [2]float64{-.0084, .0063},
				[2]float64{-.0335, .0147}),
			fixed("compiled steps", 34, [2]float64{-.0173, .0112}, [2]float64{-.0170, .0538}),
		})
	require.NoError(t, err)
	golden.Equal(t, "../profiler/planner/published.json", data)

	// What users plan themselves stays narrow.
	var widths []float64
	for _, r := range rows {
		if slices.Contains(knownLoops, r.Group) && r.Kind == "reserved" {
			width := float64(r.Estimate.High-r.Estimate.Low) / float64(r.Estimate.Bytes)
			widths = append(widths, width+described.Reserved.High-described.Reserved.Low)
		}
	}
	slices.Sort(widths)
	n := len(widths)
	require.LessOrEqual(t, (widths[(n-1)/2]+widths[n/2])/2, 0.1)

	page, err := os.ReadFile("../docs/lab/evidence.md")
	require.NoError(t, err)
	text := strings.Join(strings.Fields(string(page)), " ")
	a, r := described.Allocated, described.Reserved
	require.Contains(t, text,
		fmt.Sprintf("held %d of %d allocated and %d of %d reserved peaks", a.Held, a.Records, r.Held,
			r.Records))
	allocated, reserved, err := planner.Residuals(planner.ResidualSubject{Model: "hf:any.json", Release: "2.15"})
	require.NoError(t, err)
	require.Contains(t, allocated.Source(),
		fmt.Sprintf("held in %d of %d with their source left out", a.Held, a.Records))
	require.Contains(t, reserved.Source(),
		fmt.Sprintf("held in %d of %d with their source left out", r.Held, r.Records))
	a, r = reported.Allocated, reported.Reserved
	require.Contains(t, text, fmt.Sprintf("held %d of %d allocated and %d of %d reserved and device peaks", a.Held,
		a.Records, r.Held, r.Records))
}

// The page has the errors of plans of published figures. Its counts of intervals are not compared: these plans lack the
// margins.
func TestErrorsOfPublishedFiguresInThePage(t *testing.T) {
	preface := pageWords(t, "../tools/evidence/preface.md")
	page := pageWords(t, "../docs/lab/evidence.md")
	require.True(t, strings.HasPrefix(page, preface), "tools/evidence/evidence.py writes the page with this preface")
	digits := func(share float64) string {
		switch percent := 100 * share; {
		case percent < 1:
			return fmt.Sprintf("%.2f %%", percent)
		case percent < 10:
			return fmt.Sprintf("%.1f %%", percent)
		default:
			return fmt.Sprintf("%.0f %%", percent)
		}
	}
	for _, g := range report.PublishedOf(publishedRows(t)).Groups {
		if g.Group != "fitcheck" || g.Kind != "device" { // which differ from reserved bytes by the context alone
			row := fmt.Sprintf("| %s | %d | %s | %s |", g.Kind, g.Figures, digits(g.Errors.Median),
				digits(g.Errors.P95))
			require.Contains(t, page, row, g.Group)
		}
	}
}

// TestActiveBytesAreAtLeastTheAllocatedOnes compares active bytes with what plans say of them, their bounds.
func TestActiveBytesAreAtLeastTheAllocatedOnes(t *testing.T) {
	n := 0
	for _, r := range publishedRows(t) {
		if r.Kind == "active" {
			require.GreaterOrEqual(t, r.Bytes+r.Rounding, r.Estimate.Low, r.Subject)
			require.LessOrEqual(t, r.Bytes, r.Estimate.High, r.Subject)
			n++
		}
	}
	require.Equal(t, 13, n)
}

// TestLoadedModelsNeedWhatPyTorchSays plans steps of a small Llama that from_pretrained brought to the GPU. The
// expected bytes are from the third step of a loop in a function under vprof run: transformers 5.24, bitsandbytes 0.50,
// peft 0.21, PyTorch 2.15 for CUDA on a simulated T4.
func TestLoadedModelsNeedWhatPyTorchSays(t *testing.T) {
	const adapters = " --lora r=32,alpha=64,target=q_proj,k_proj,v_proj,o_proj --optimizer adamw --clip none" +
		" --checkpointing non-reentrant --loop function --set shared-labels=1 --seq-len 512"
	for how, want := range map[string][2]int64{
		"--batch 1 --weights fp32 --quantize nf4":     {616_804_352, 696_254_464},
		"--batch 2 --weights fp16 --quantize nf4":     {685_326_336, 734_003_200},
		"--batch 3 --weights fp32 --quantize int8":    {1_510_076_416, 1_619_001_344},
		"--batch 2 --weights fp16 --set device-map=1": {815_976_448, 861_929_472},
	} {
		e, err := newSystemApp().estimateCommand(t.Context(),
			"plan --model hf:llama-8x1024.json --gpu t4 --torch 2.15 "+how+adapters,
			"../bench/reference/data/finetune")
		require.NoError(t, err, how)
		require.InDelta(t, want[0], e.Allocated.Bytes, 512<<10, how)
		require.Equal(t, want[1], e.Reserved.Bytes, how)
	}
}

// TestStepsOfQwen35NeedWhatAGPUShowed has steps of Qwen3.5 that FakeGPU's authors measured on an RTX PRO 5000 with
// PyTorch 2.8.0 and transformers 5.12.1 (docs/llm-sft-memory-estimation.md), to the three digits that they print.
func TestStepsOfQwen35NeedWhatAGPUShowed(t *testing.T) {
	n := 0
	for _, r := range publishedRows(t) {
		if r.Group == "FakeGPU" {
			require.InDelta(t, r.Bytes, r.Estimate.Bytes, float64(r.Rounding+1), r.Subject)
			n++
		}
	}
	require.Equal(t, 10, n)
}
