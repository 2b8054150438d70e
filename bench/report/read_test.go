package report

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsWrittenReadsBackTheSame(t *testing.T) {
	for _, f := range []Format{JSON, JSONL} {
		for _, r := range []*Report{toySweep(), toyPlan(1), toyPlan(2)} {
			var b, again bytes.Buffer
			require.NoError(t, Write(&b, f, r))
			read, err := Read("run", bytes.NewReader(b.Bytes()))
			require.NoError(t, err)
			require.Len(t, read, 1)
			require.NoError(t, Write(&again, f, read[0]))
			require.Equal(t, b.String(), again.String())
		}
	}
}

func TestReadSaysWhatIsWrongWithAFile(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "is empty"},
		{"  \n", "is empty"},
		{"not json", "value 1 is not a vprof.report/v1 report"},
		{`{"schema":"vprof.gpus/v1"}`, `its schema is "vprof.gpus/v1"`},
		{`{"schema":"vprof.report/v1","kind":"dream"}`, `its kind is "dream"`},
		{`{"schema":"vprof.report/v1","kind":"plan"}`, "names no model"},
		{`{"schema":"vprof.report/v1","kind":"plan","case":{"model":"m"},"points":[{"batch":0}]}`, "0 is not a batch size"},
		{`{"schema":"vprof.report/v1","kind":"plan","case":{"model":"m"},"points":[{"batch":8,"device":"x"}]}`, `batch 8 is of device "x"`},
		{`{"schema":"vprof.report/v1","kind":"plan","case":{"model":"m"},"devices":[{"name":"x"}],"points":[{"batch":8,"device":"x"}]}`, "neither an estimate nor a run"},
	} {
		_, err := Read("run.json", strings.NewReader(c.text))
		var format *FormatError
		require.ErrorAs(t, err, &format, c.text)
		require.Contains(t, err.Error(), "run.json: ")
		require.Contains(t, err.Error(), c.want)
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	require.NoError(f, Write(&b, JSONL, toySweep()))
	f.Add(b.Bytes())
	f.Add([]byte(`{"schema":"vprof.report/v1","kind":"plan","case":{"model":"m"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		reports, err := Read("run", bytes.NewReader(text))
		if err != nil {
			return
		}
		for _, r := range reports {
			for _, p := range r.Points {
				_, known := r.Find(p.Device)
				require.True(t, known && p.Batch > 0)
			}
		}
	})
}

// A run that does not fit has an estimate only.
func TestGoBenchHasALineForEachPoint(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteGoBench(&b, []*Report{toySweep()}))
	const name = "BenchmarkStep/model=toy/stage=full/amp=fp16/checkpointing=true/accumulate=4/alloc_conf=expandable_segments:True/device=sim:card/"
	var lines []string
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "Benchmark") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	require.Equal(t, []string{
		name + "batch=8 1 209715200 estimate-allocated-B 220200960 estimate-reserved-B 325058560 estimate-device-B 209715200 simulated-allocated-B 222298112 simulated-reserved-B 327155712 simulated-device-B",
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
	require.NoError(t, WriteGoBench(&b, []*Report{toySweep()}))
	cmd := exec.Command(benchstat, "/dev/stdin")
	cmd.Stdin = &b
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "estimate-device-B")
}
