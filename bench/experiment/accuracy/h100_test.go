package accuracy_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/accuracy"
	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
	"github.com/vprof/vprof/tools/sample"
)

// Steps of vprof's own systems that an H100 ran. The models of transformers belong to another release than vprof
// describes.
func TestStepsOfAnH100(t *testing.T) {
	sample.Alone(t)
	f, err := reference.Open("../../reference/data/h100/steps.jsonl")
	require.NoError(t, err)
	records := slices.DeleteFunc(f.Records, func(r reference.Record) bool { return !described(r) })
	require.Len(t, records, 46)
	a, err := accuracy.Compare(t.Context(), records, accuracy.Recorder{Models: all.Models()}, nil)
	require.NoError(t, err)
	require.Zero(t, a.Summary.Allocated.Median)
	require.Zero(t, a.Summary.Reserved.Median)
	require.LessOrEqual(t, a.Summary.Allocated.P95, 0.03)
	require.LessOrEqual(t, a.Summary.Reserved.P95, 0.03)
	require.Zero(t, a.Summary.OOM.Wrong)
	for _, g := range a.Summary.ByAMP {
		if g.Name != "fp16" { // whose first steps the gradient scaler skipped on the GPU
			require.Zero(t, g.Allocated.Max, g.Name)
		}
	}
	n, equal, off := distances(a.Rows)
	at := func(share float64) string {
		i := min(int(share*float64(n)), n-1)
		return fmt.Sprintf("%.1f %%, %.1f %%", off[0][i], off[1][i])
	}
	page := gpuPage(t)
	require.Contains(t, page, "(redimnet, VQ-VAE, GAN, ViT, SPOTER) | "+
		fmt.Sprintf("%d | %d, %d | %.2f %%, %.2f %% | %s | %s |",
			n, equal[0], equal[1], off[0][n/2], off[1][n/2], at(.95), at(1)))
}

// On an H100 each segment of memory was below the one before. With rising addresses fewer peaks are equal.
func TestAddressesOfAnH100Fall(t *testing.T) {
	sample.Alone(t)
	var records []reference.Record
	for _, name := range []string{"steps", "largest"} {
		f, err := reference.Open("../../reference/data/h100/" + name + ".jsonl")
		require.NoError(t, err)
		records = append(records, slices.DeleteFunc(f.Records, func(r reference.Record) bool {
			return r.AMP == "fp16" || !described(r)
		})...)
	}
	var equal [2][2]int
	for i := range equal {
		a, err := accuracy.Compare(t.Context(), records, accuracy.Recorder{Models: all.Models()}, nil)
		require.NoError(t, err)
		n, same, off := distances(a.Rows)
		equal[i] = same
		if i == 0 {
			require.GreaterOrEqual(t, 100*same[0], 85*n)
			require.LessOrEqual(t, off[1][n*9/10], 0.3)
		}
		for k := range records {
			records[k].Rising = true
		}
	}
	page := gpuPage(t)
	require.Contains(t, page,
		fmt.Sprintf("equal in %d in place of %d, reserved ones in %d in place of %d. Intervals",
			equal[0][0], equal[1][0], equal[0][1], equal[1][1]))
}

// gpuPage returns docs/lab/gpu.md with one space between words.
func gpuPage(t *testing.T) string {
	page, err := os.ReadFile("../../../docs/lab/gpu.md")
	require.NoError(t, err)
	return strings.Join(strings.Fields(string(page)), " ")
}

// described reports whether the model of a record is one of vprof's own systems.
func described(r reference.Record) bool {
	return slices.ContainsFunc([]string{"redimnet", "patch-vqvae", "spectrogram-gan", "bdslw-spoter", "vit-b16"},
		func(system string) bool { return strings.HasPrefix(r.Model, system) })
}

// distances returns, of allocated and of reserved bytes, how many estimates equal the reference, and the sorted
// absolute differences in percent.
func distances(rows []report.AccuracyRow) (n int, equal [2]int, off [2][]float64) {
	for _, row := range rows {
		for i, d := range [2]float64{
			float64(row.Estimate.Allocated) / float64(row.Reference.Allocated),
			float64(row.Estimate.Reserved) / float64(row.Reference.Reserved),
		} {
			off[i] = append(off[i], 100*math.Abs(d-1))
		}
	}
	for i := range off {
		slices.Sort(off[i])
		equal[i], _ = slices.BinarySearch(off[i], math.SmallestNonzeroFloat64)
	}
	return len(rows), equal, off
}

// Batches that fit recommended there. One has a model of another release of transformers.
func TestLargestBatchesOfAnH100(t *testing.T) {
	sample.Alone(t)
	f, err := reference.Open("../../reference/data/h100/largest.jsonl")
	require.NoError(t, err)
	a, err := accuracy.Compare(t.Context(), f.Records, accuracy.Recorder{Models: all.Models()}, nil)
	require.NoError(t, err)
	require.Equal(t, 6, a.Summary.Compared)
	require.Zero(t, a.Summary.OOM.Wrong)
	require.LessOrEqual(t, a.Summary.Allocated.P90, 0.02)
	require.Zero(t, a.Summary.Allocated.Median)
}

// docs/lab/gpu.md compares cuDNN's workspaces on an H100 with the ones that it names without a GPU, and with vprof's
// rules. Its percentages are the file's.
func TestConvolutionsOfAnH100(t *testing.T) {
	f, err := os.Open("../../reference/data/h100/convolutions.txt.gz")
	require.NoError(t, err)
	defer f.Close()
	text, err := gzip.NewReader(f)
	require.NoError(t, err)
	const near = 1 << 10
	torch, err := stack.Lookup("2.11")
	require.NoError(t, err)
	rules, gpu := torch.Rules().Convolutions, cudnn.GPU{Name: "h100", Capability: 90, Memory: 80 << 30}
	var all, same, described, ruled int
	var most int64
	for lines := bufio.NewScanner(text); lines.Scan(); all++ {
		words := strings.Split(lines.Text(), "|")
		q, err := query.ParseQuestion(words[0])
		require.NoError(t, err)
		var n [3]int64
		for i := range n {
			n[i], err = strconv.ParseInt(words[1+i], 10, 64)
			require.NoError(t, err)
		}
		same += int(n[2])
		if off := n[0] - n[1]; max(off, -off) <= near {
			described++
		} else if n[2] == 1 {
			most = max(most, off)
		}
		plan := rules.Workspaces(q.Config, q.Operation, gpu)
		if off := n[0] - slices.Max(append(plan, 0)); max(off, -off) <= near {
			ruled++
		}
	}
	page := gpuPage(t)
	percent := func(n int) float64 { return 100 * float64(n) / float64(all) }
	require.Contains(t, page, fmt.Sprintf("described in %.1f %%,", percent(same)))
	require.Contains(t, page, fmt.Sprintf("to a KiB, in %.0f %%; the others want up to %.1f MB more",
		percent(described), float64(most)/1e6))
	require.Equal(t, most, cudnn.MaxExcess(90))
	require.Contains(t, page, fmt.Sprintf("vprof's own rules have %.0f %%", percent(ruled)))
}

// The numbers of scripts on an H100 and under vprof run in docs/lab/gpu.md and README.md are the file's.
func TestRunsOfAnH100AreAsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../reference/data/h100/runs.jsonl")
	require.NoError(t, err)
	var off, low [2][]float64
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var r struct {
			Command            string
			Allocated          int64 `json:"peak_allocated"`
			Reserved           int64 `json:"peak_reserved"`
			SimulatedAllocated int64 `json:"simulated_allocated"`
			SimulatedReserved  int64 `json:"simulated_reserved"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &r), "line %d", i+1)
		if i == 0 {
			continue // what measured it
		}
		require.NotEmpty(t, r.Command, "line %d", i+1)
		for k, part := range [2]float64{
			float64(r.SimulatedAllocated) / float64(r.Allocated), float64(r.SimulatedReserved) / float64(r.Reserved),
		} {
			off[k] = append(off[k], 100*math.Abs(part-1))
			low[k] = append(low[k], 100*(1-part))
		}
	}
	n := len(off[0])
	var equal [2]int
	for i := range off {
		slices.Sort(off[i])
		equal[i], _ = slices.BinarySearch(off[i], math.SmallestNonzeroFloat64)
	}
	at := func(i int, share float64) float64 { return off[i][int(share*float64(n))] }
	row := fmt.Sprintf("cuDNN and transformers | %d | %d, %d | %.2f %%, %.2f %% | %.1f %%, %.1f %% | %.0f %%, %.0f %% |",
		n, equal[0], equal[1], at(0, .5), at(1, .5), at(0, .95), at(1, .95), off[0][n-1], off[1][n-1])
	page := gpuPage(t)
	require.Contains(t, page, row)
	text, err = os.ReadFile("../../../docs/gpu.md")
	require.NoError(t, err)
	user := strings.Join(strings.Fields(string(text)), " ")
	require.Contains(t, user, fmt.Sprintf("| %d | %.2f %%, %.2f %% | %.1f %%, %.1f %% |",
		n, at(0, .5), at(1, .5), at(0, .95), at(1, .95)))
	above := func(i int, most float64) (count int) {
		for _, p := range low[i] {
			if p > most {
				count++
			}
		}
		return count
	}
	require.Contains(t, user, fmt.Sprintf("Too low by more than 1 %% were the allocated bytes of %d and the reserved bytes of "+
		"%d of the %d, by more than 5 %% of %d and %d; the most was %.1f and %.0f %%,", above(0, 1), above(1, 1), n,
		above(0, 5), above(1, 5), slices.Max(low[0]), slices.Max(low[1])))
	readme, err := os.ReadFile("../../../README.md")
	require.NoError(t, err)
	require.Contains(t, string(readme), fmt.Sprintf("Our H100, %d scripts and steps compared with `vprof run`: "+
		"allocated %.2f %%, p95 %.1f %%; reserved %.2f %%, p95 %.1f %%",
		n, at(0, .5), at(0, .95), at(1, .5), at(1, .95)))
}

// The numbers of vprof's own runs on an H100 in docs/lab/gpu.md are the record's. The catalog has its context.
func TestOwnRunsOfAnH100AreAsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../reference/data/h100/own.json")
	require.NoError(t, err)
	var r struct {
		GPU     string
		Context int64 `json:"context_bytes"`
		Kernels int64 `json:"kernels_bytes"`
		Largest []struct {
			Predicted int `json:"predicted_batch"`
			Found     int `json:"found_batch"`
		}
		Fit struct {
			Recommended float64 `json:"recommended_gib"`
			Measured    float64 `json:"measured_gib"`
		}
		Percent map[string]int `json:"percent_of_peak"`
	}
	require.NoError(t, json.Unmarshal(text, &r))
	gpu, err := device.Lookup(r.GPU)
	require.NoError(t, err)
	require.Equal(t, r.Context, gpu.WithoutLibraries().Context)
	page := gpuPage(t)
	p := r.Percent
	for _, sentence := range []string{
		fmt.Sprintf("the GPU holds %d MiB of context and %d MiB of vprof's kernels", r.Context>>20, r.Kernels>>20),
		fmt.Sprintf("%d images were predicted to be the most that run at all, %d did; of ViT-B/16 %d of a sweep that "+
			"doubles, and %d did", r.Largest[0].Predicted, r.Largest[0].Found, r.Largest[1].Predicted, r.Largest[1].Found),
		fmt.Sprintf("recommended %.2f GiB and measured %.2f", r.Fit.Recommended, r.Fit.Measured),
		fmt.Sprintf("| %d %% | %d %% | %d %%, %d %% | %d %%, %d %% | %d %% | %d %% |", p["copy"], p["fill"],
			p["elementwise_f32"], p["elementwise_f16"], p["gemm_f16"], p["gemm_bf16"], p["gemm_tf32"], p["gemm_f32"]),
	} {
		require.Contains(t, page, sentence)
	}
}
