package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/tools/golden"
)

// machine returns a check with scripts in place of vprof and the tests, which print the given outputs.
func machine(t *testing.T, vprof, tests string) *check {
	bin := t.TempDir()
	for name, script := range map[string]string{"vprof": vprof, "cuda.test": tests} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script), 0o700))
	}
	return &check{bin: bin, out: filepath.Join(t.TempDir(), "out"), screen: &bytes.Buffer{}}
}

const (
	doctor = `[ "$1" != doctor ] || { echo '{"driver":"580.65.06","gpus":[{"name":"NVIDIA A100-SXM4-40GB","memory_bytes":42300000000}]}'; exit 0; }
`
	works = doctor + `
while [ $# -gt 1 ]; do [ "$1" != --export ] || file="$2"; shift; done
case "$file" in
*/sweep.json) cat "$(dirname "$0")/sweep.json" >"$file" ;;
*/calibration.json) echo '{"errors":{"after":{"max":0.01}}}' >"$file" ;;
esac
`
	fast = `echo "VPROF_REAL_GPU is $VPROF_REAL_GPU"; cat "$(dirname "$0")/kernels.txt"`
)

// Bytes that PyTorch needed, and that the sweep of the same model reports.
const (
	peakJSON   = `{"status":"ok","batch":8,"amp":null,"peak_allocated":104857600,"peak_reserved":115343360,"peak_device_used":314572800}`
	besideJSON = `{"schema":"vprof.report/v1","kind":"sweep","tool":{"version":"devel"},"case":{"model":"x"},"devices":[{"name":"cuda:0","gpu":"t4"}],` +
		`"points":[{"batch":8,"device":"cuda:0","estimate":{"allocated":{"bytes":94371840,"low_bytes":94371840,"high_bytes":94371840},` +
		`"reserved":{"bytes":104857600,"low_bytes":104857600,"high_bytes":104857600},"device":{"bytes":293601280,"low_bytes":293601280,"high_bytes":293601280},` +
		`"components":[{"name":"all","bytes":293601280}],"verdict":"fits"},` +
		`"run":{"fits":true,"requested_bytes":94371840,"allocated_bytes":94371840,"reserved_bytes":104857600,"device_bytes":306184192,"kernels_bytes":2097152}}]}`
)

func TestEveryStepLeavesItsOutput(t *testing.T) {
	c := machine(t, works, fast)
	for _, name := range []string{"sweep.json", "kernels.txt"} {
		text, err := os.ReadFile(filepath.Join(folder(t, 8), name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(c.bin, name),
			bytes.ReplaceAll(text, []byte("49.9"), []byte("50")), 0o600))
	}
	require.NoError(t, c.run(t.Context()), "%s", c.screen)
	require.Equal(t, "NVIDIA A100-SXM4-40GB", c.result.GPU)
	for _, s := range c.result.Steps {
		require.FileExists(t, filepath.Join(c.out, s.Name+".txt"))
		require.Zero(t, s.Exit)
	}
	for _, name := range []string{"doctor.json", "result.json", "summary.md"} {
		require.FileExists(t, filepath.Join(c.out, name))
	}
	text, err := os.ReadFile(filepath.Join(c.out, "tests.txt"))
	require.NoError(t, err)
	require.Contains(t, string(text), "VPROF_REAL_GPU is 1")
}

func TestAFailureDoesNotEndTheCheck(t *testing.T) {
	c := machine(t, doctor+"exit 1\n", "exit 1\n")
	err := c.run(t.Context())
	require.ErrorContains(t, err, "could not run: tests failed; kernels failed; sweep failed")
	require.ErrorContains(t, err, "8 of 8 figures are missing")
	require.FileExists(t, filepath.Join(c.out, "summary.md"))
	require.Len(t, c.result.Steps, 1+len(c.steps()))
}

func TestAnInterruptedCheckWritesWhatItHas(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	c := machine(t, works, fast)
	c.screen = writer(func(text string) {
		if strings.Contains(text, "== kernels") {
			interrupt()
		}
	})
	require.ErrorContains(t, c.run(ctx), "figures are missing")
	require.Len(t, c.result.Steps, 3, "the doctor, the tests and the kernels, at which it was interrupted")
	require.FileExists(t, filepath.Join(c.out, "summary.md"))
}

// A writer passes written text to a function.
type writer func(text string)

func (w writer) Write(text []byte) (int, error) {
	w(string(text))
	return len(text), nil
}

func TestWithoutAGPUThereIsNothingToCheck(t *testing.T) {
	c := machine(t, "echo '{\"gpus\":[]}'; exit 4\n", "")
	var none noGPU
	require.ErrorAs(t, c.run(t.Context()), &none)
	require.FileExists(t, filepath.Join(c.out, "doctor.txt"))
	require.Len(t, c.result.Steps, 1)
}

// The results of checks of three GPUs: one healthy, one that computes wrong results, and one whose driver runs nothing.
// docs/lab/gpu.md shows them.
func TestThreeGPUs(t *testing.T) {
	took, sweep := regexp.MustCompile(`\d+\.\d s`), regexp.MustCompile(`time of the sweep \| [\d.]+ s`)
	for name, tt := range map[string]struct {
		vprof   string
		verdict verdict
		wrong   bool
	}{
		"healthy": {works, healthy, false},
		"sick": {doctor +
			`echo "vprof: cuda:0: the GPU gives wrong results: 1 of 2304 elements of a product in f32 are wrong" >&2; exit 1`, defect, true},
		"idle": {strings.Replace(works, `"memory_bytes"`, `"simulated":true,"memory_bytes"`, 1), "", false},
	} {
		c := machine(t, tt.vprof, fast)
		for _, file := range []string{"sweep.json", "kernels.txt"} {
			text, err := os.ReadFile(filepath.Join(folder(t, 8), file))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(c.bin, file),
				bytes.ReplaceAll(text, []byte("49.9"), []byte("58")), 0o600))
		}
		require.Equal(t, tt.wrong, c.run(t.Context()) != nil, name)
		require.Equal(t, tt.verdict, c.result.Verdict, name)
		c.result.Started = time.Unix(1793858400, 0).UTC()
		text := sweep.ReplaceAllString(c.result.summary(), "time of the sweep | 0 s")
		golden.Equal(t, filepath.Join("testdata", name+".md"), []byte(took.ReplaceAllString(text, "0.1 s")))
	}
}

func TestADefectThatTheDoctorFindsIsNoMissingGPU(t *testing.T) {
	c := machine(t, `echo '{"gpus":[{}],"problems":[{"what":"cuda:0: the GPU gives wrong results: all"}]}'; exit 4`, "")
	var found *verdictError
	require.ErrorAs(t, c.run(t.Context()), &found)
	require.Equal(t, defect, found.verdict)
	require.Equal(t, 3, found.verdict.exit())
}

// With PyTorch, cases are captured, recorded and judged. A script replaces the interpreter.
func TestWithTorchCasesAreJudged(t *testing.T) {
	c := machine(t, doctor+`
while [ $# -gt 1 ]; do [ "$1" != --export ] || file="$2"; shift; done
case "$file" in
*-accuracy.json) echo '{"summary":{"compared":4,"reserved":{"max":0.02}}}' >"$file" ;;
*-sweep.json) echo '`+besideJSON+`' >"$file" ;;
esac
`, "")
	c.python = filepath.Join(c.bin, "python")
	require.ErrorContains(t, c.run(t.Context()), "make gpu-check-build puts it there")
	for _, file := range []string{"tools/record/record.py", "models/capture/capture.py"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(c.bin, file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(c.bin, file), nil, 0o600))
	}
	require.NoError(t, os.WriteFile(c.python, []byte("#!/bin/sh\necho \"$@\"\nwhile [ $# -gt 1 ]; do [ \"$1\" != "+
		"--out ] || echo '"+peakJSON+"' >\"$2\"; shift; done\n"), 0o700))
	require.Error(t, c.run(t.Context()), "figures of other steps are missing")
	var judged []figure
	for _, f := range c.result.Figures {
		if strings.HasPrefix(f.Name, "PyTorch, ") {
			require.True(t, f.reached(), f.Name)
			judged = append(judged, f)
		}
	}
	require.Len(t, judged, 7)
	require.Equal(t, []need{
		{"redimnet_b2", 8, "PyTorch", 100 << 20, 110 << 20, 300 << 20},
		{"redimnet_b2", 8, "plan", 90 << 20, 100 << 20, 280 << 20},
		{"redimnet_b2", 8, "sweep", 90 << 20, 100 << 20, 290 << 20},
	}, c.result.Needs[:3])
	require.Len(t, c.result.Needs, 6)
	require.Contains(t, c.result.summary(), "| redimnet_b2 | 8 | PyTorch | 100.00 MiB | 110.00 MiB | 300.00 MiB |")
	text, err := os.ReadFile(filepath.Join(c.out, "record-mlp.txt"))
	require.NoError(t, err)
	require.Contains(t, string(text), "peaks "+filepath.Join(c.out, "torch", "torch_models.py")+":mlp")
	require.Contains(t, string(text), "--device cuda:0")
}
