package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const kernels = `goos: linux
BenchmarkReal/copy-16            50  1397621 ns/op  91.00 %peak  1500 GB/s  1397000 device-ns/op
BenchmarkReal/elementwise-f16    50  1397621 ns/op  86.5 %peak  1500 GB/s
BenchmarkReal/elementwise-f32-8  50  1397621 ns/op  86.5 %peak  1500 GB/s
BenchmarkReal/fill-16            50  1397621 ns/op  93.1 %peak  1700 GB/s
BenchmarkReal/gemm-f16-16        50  1397621 ns/op  49.9 %peak  400 TFLOP/s
BenchmarkReal/gemm-f32-16        50  1397621 ns/op  61 %peak  31 TFLOP/s
PASS
`

const sweepJSON = `{"schema":"vprof.report/v1","kind":"sweep","tool":{"version":"devel","commit":"abc"},"case":{"model":"toy"},"devices":[{"name":"cuda:0","gpu":"h200"}],"points":[%s]}`

// folder writes the files of steps that ran n batch sizes, and returns their folder.
func folder(t *testing.T, n int) string {
	dir := t.TempDir()
	points := make([]string, n)
	for i := range points {
		points[i] = fmt.Sprintf(`{"batch":%d,"device":"cuda:0","run":{"fits":true}}`, 8*(i+1))
	}
	for name, text := range map[string]string{
		"kernels.txt":      kernels,
		"sweep.json":       strings.Replace(sweepJSON, "%s", strings.Join(points, ","), 1),
		"calibration.json": `{"errors":{"before":{"max":0.08},"after":{"max":0.011},"held_out":{"max":0.013}}}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func figures(t *testing.T, r *result) map[string]figure {
	found := map[string]figure{}
	for _, f := range r.Figures {
		found[f.Name+" "+f.Unit] = f
	}
	return found
}

func TestFiguresAreReadAndJudged(t *testing.T) {
	dir := folder(t, 8)
	r := &result{GPU: "a100-40", Steps: []step{{Name: "sweep", Seconds: 14}}}
	require.NoError(t, r.read(dir))
	f := figures(t, r)
	require.Equal(t, figure{Name: "fill", Value: 93.1, Unit: "% of the peak", AtLeast: 85, Impossible: 110},
		f["fill % of the peak"])
	require.Equal(t, figure{Name: "copy", Value: 1500, Unit: "GB/s"}, f["copy GB/s"])
	require.Equal(t, figure{Name: "gemm-f16", Value: 400, Unit: "TFLOP/s"}, f["gemm-f16 TFLOP/s"])
	require.Equal(t, figure{Name: "batch sizes of the sweep", Value: 8, AtLeast: 8}, f["batch sizes of the sweep "])
	require.Equal(t, figure{Name: "time of the sweep", Value: 14, Unit: "s", AtMost: 15}, f["time of the sweep s"])
	require.InDelta(t, 1.1, f["error of device bytes, calibrated %"].Value, 1e-9)
	require.EqualError(t, r.judge(), "slow: gemm-f16 is 49.9, not >= 50")
	require.Equal(t, slow, r.Verdict)
	require.Contains(t, r.summary(), "| gemm-f16 | 49.9 % of the peak | >= 50 | MISSED |")
	require.Contains(t, r.summary(), "| fill | 93.1 % of the peak | >= 85 | reached |")

	// The most severe fault is reported first: a failed step before a low rate.
	r = &result{GPU: "a100-40", Steps: []step{{Name: "sweep", Seconds: 16}, {Name: "tests", Exit: 1}}}
	require.NoError(t, r.read(folder(t, 7)))
	require.EqualError(t, r.judge(),
		"could not run: tests failed; gemm-f16 is 49.9, not >= 50; batch sizes of the sweep is 7, not >= 8; time of "+
			"the sweep is 16, not <= 15")
	r.Defects = []string{"2 uncorrected memory errors while it ran"}
	require.ErrorContains(t, r.judge(), "defect: 2 uncorrected memory errors while it ran; tests failed")
	require.Equal(t, defect, r.Verdict)
}

// Bounds depend on the GPU: a healthy one of its kind reaches them.
func TestBarsAreOfTheGPU(t *testing.T) {
	for _, tt := range []struct {
		gpu      string
		products float64
		seconds  float64
	}{
		{"t4", 30, 37},
		{"a100-40", 50, 15},
		{"rtx-4090", 50, 15},
		{"h100", 30, 15},
		{"b200", 15, 15},
		{"rtx-5060-ti", 45, 15},
	} {
		gpu := (&result{GPU: tt.gpu}).gpu()
		require.InDelta(t, tt.products, shares(gpu.Capability)["gemm-f16"], 0, tt.gpu)
		require.InDelta(t, tt.seconds, sweepSeconds(gpu), 0, tt.gpu)
	}
	require.Zero(t, sweepSeconds((&result{GPU: "a GPU that nobody knows"}).gpu()))
	for memory, want := range map[int64]string{
		0: "6,12,18,24,30,36,42,48", 16 << 30: "6,12,18,24,30,36,42,48", 8 << 30: "3,7,10,14,17,21,24,28",
		5 << 30: "2,4,6,8,10,12,14,16", 1 << 30: "2,2,3,4,5,6,7,9",
	} {
		require.Equal(t, want, batches(memory))
	}
}

// A rate that no GPU can reach does not pass.
func TestRatesAbovePhysicsAreNotReached(t *testing.T) {
	dir := folder(t, 8)
	text, err := os.ReadFile(filepath.Join(dir, "kernels.txt"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kernels.txt"),
		[]byte(strings.Replace(string(text), "49.9", "340138", 1)), 0o600))
	r := &result{GPU: "a100-40", Steps: []step{{Name: "sweep", Seconds: 14}}}
	require.NoError(t, r.read(dir))
	require.EqualError(t, r.judge(), "could not run: gemm-f16 is 3.401e+05 % of the peak, which no GPU can have")
	require.Contains(t, r.summary(), "| IMPOSSIBLE |")
}

func TestAMissingFileIsAMissingFigure(t *testing.T) {
	dir := folder(t, 8)
	require.NoError(t, os.Remove(filepath.Join(dir, "kernels.txt")))
	r := &result{GPU: "a100-40", Simulated: true, Steps: []step{{Name: "sweep", Seconds: 14}}}
	require.ErrorContains(t, r.read(dir), "kernels.txt")
	require.EqualError(t, r.judge(), "could not run: 5 of 8 figures are missing")
	require.Empty(t, r.Verdict)
}

func TestErrorsOfTheGPUAreThoseThatCameMeanwhile(t *testing.T) {
	before := gpuErrors{uncorrected: 1, xids: []string{"old"}}
	require.Empty(t, before.since(before))
	require.Equal(t, []string{"2 uncorrected memory errors while it ran", "the kernel log: NVRM: Xid 48"},
		gpuErrors{uncorrected: 3, xids: []string{"old", "NVRM: Xid 48"}}.since(before))
}

// Results of a simulated driver are not judged, and all files state that they are simulated.
func TestASimulatedDriverMeasuresNothing(t *testing.T) {
	r := &result{Steps: []step{{Name: "sweep", Seconds: 100}}}
	require.NoError(t,
		r.diagnose([]byte(`{"driver":"580.65.06 (simulated driver)","cuda":"13.0","gpus":[{"name":"NVIDIA H200"}]}`)))
	require.True(t, r.Simulated)
	require.Equal(t, "NVIDIA H200", r.GPU)
	dir := folder(t, 8)
	require.NoError(t, r.read(dir))
	require.NoError(t, r.judge())
	require.NoError(t, r.write(dir))
	summary, err := os.ReadFile(filepath.Join(dir, "summary.md"))
	require.NoError(t, err)
	require.Contains(t, string(summary), "SIMULATED: there was no GPU")
	require.NotContains(t, string(summary), "reached")
	require.NotContains(t, string(summary), "MISSED")
	raw, err := os.ReadFile(filepath.Join(dir, "result.json"))
	require.NoError(t, err)
	var back result
	require.NoError(t, json.Unmarshal(raw, &back))
	require.True(t, back.Simulated)

	require.NoError(t, r.diagnose([]byte(`{"driver":"580.65.06"}`)))
	require.False(t, r.Simulated)
	require.NoError(t, r.diagnose([]byte(`{"driver":"580.65.06","gpus":[{"name":"NVIDIA H200","simulated":true}]}`)))
	require.True(t, r.Simulated, "its kernels do not run")
	require.Error(t, r.diagnose([]byte(`no driver`)))
}

// Committed results come from real GPUs.
func TestCommittedResultsAreOfRealGPUs(t *testing.T) {
	files, err := filepath.Glob("../../bench/reference/gpu/*/result.json")
	require.NoError(t, err)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		var r result
		require.NoError(t, json.Unmarshal(raw, &r), file)
		require.False(t, r.Simulated, file)
		require.NotEmpty(t, r.Driver, file)
		require.NoError(t, r.judge(), file)
	}
}
