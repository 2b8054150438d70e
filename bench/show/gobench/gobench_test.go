package gobench_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/show/gobench"
	"github.com/vprof/vprof/models"
)

const mib = 1 << 20

func estimate(n int64) *report.Estimate {
	at := func(n int64) report.Interval { return report.Interval{Bytes: n * mib} }
	return &report.Estimate{Allocated: at(n), Reserved: at(n + 10), Device: at(n + 110)}
}

// sweep is of two batch sizes, of which the second does not fit.
func sweep() *report.Report {
	return &report.Report{
		Case: report.Case{Case: models.Case{
			Model: "toy", Stage: "full", AMP: "fp16", Accumulate: 4,
			Checkpointing: true, AllocConf: "expandable_segments:True",
		}},
		Devices: []report.Device{{Name: "sim:card", GPU: "card", Simulated: true}},
		Points: []report.Point{
			{Batch: 8, Device: "sim:card", Estimate: estimate(200), Run: &report.Run{
				Simulated: true, Fits: true,
				Allocated: 200 * mib, Reserved: 212 * mib, Device: 312 * mib,
			}},
			{
				Batch: 16, Device: "sim:card", Estimate: estimate(400),
				Run: &report.Run{Simulated: true, Allocated: 301 * mib},
			},
		},
	}
}

// The name of a measured GPU says which it is, and of which machine.
func TestMeasuredGPUsAreNamed(t *testing.T) {
	r := sweep()
	r.Devices = []report.Device{{Name: "n2/cuda:0", GPU: "h100", UUID: "GPU-2", Host: "n2"}}
	for i := range r.Points {
		r.Points[i].Device = "n2/cuda:0"
	}
	var b bytes.Buffer
	require.NoError(t, gobench.Write(&b, []*report.Report{r}))
	require.Contains(t, b.String(), "/device=n2_cuda:0/gpu=h100/host=n2/batch=8 ")
}

// A run that does not fit has an estimate only.
func TestGoBenchHasALineForEachPoint(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, gobench.Write(&b, []*report.Report{sweep()}))
	const name = "BenchmarkStep/model=toy/stage=full/amp=fp16/checkpointing=true/accumulate=4/alloc_conf=expandable_segments:True/device=sim:card/"
	var lines []string
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "Benchmark") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	require.Equal(t, []string{
		name +
			"batch=8 1 209715200 estimate-allocated-B 220200960 estimate-reserved-B 325058560 estimate-device-B " +
			"209715200 simulated-allocated-B 222298112 simulated-reserved-B 327155712 simulated-device-B",
		name + "batch=16 1 419430400 estimate-allocated-B 429916160 estimate-reserved-B 534773760 estimate-device-B",
	}, lines)
	require.Contains(t, b.String(), "Unit simulated-device-B assume=exact better=lower\n")
}

// The real tool reads it.
func TestBenchstatReadsGoBench(t *testing.T) {
	benchstat, err := exec.LookPath("benchstat")
	if err != nil {
		t.Skip("there is no benchstat")
	}
	var b bytes.Buffer
	require.NoError(t, gobench.Write(&b, []*report.Report{sweep()}))
	cmd := exec.Command(benchstat, "/dev/stdin")
	cmd.Stdin = &b
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "estimate-device-B")
}
