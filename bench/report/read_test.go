package report

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
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
		{`{"schema":"vprof.gpus/v1"}`, `the schema is "vprof.gpus/v1"`},
		{`{"schema":"vprof.program/v1"}`, `"vprof.program/v1", a recorded run; name it as a model: --model FILE`},
		{`{"schema":"vprof.report/v1",`, "the file ends in the middle of it"},
		{`{"schema":"vprof.report/v1","kind":"dream"}`, `the kind is "dream"`},
		{`{"schema":"vprof.report/v1","kind":"plan"}`, "names no model"},
		{
			`{"schema":"vprof.report/v1","kind":"plan","case":{"model":"m"},"points":[{"batch":0}]}`,
			"batch size 0: need at least 1",
		},
		{
			`{"schema":"vprof.report/v1","kind":"plan","case":{"model":"m"},"points":[{"batch":4611686018427387904}]}`,
			"batch size 4611686018427387904 is above the largest that vprof accepts, 1048576",
		},
		{
			`{"schema":"vprof.report/v1","kind":"plan","case":{"model":"m","accumulate":4611686018427387904}}`,
			"4611686018427387904 accumulation steps (micro-batches) are too many",
		},
		{
			`{"schema":"vprof.report/v1","kind":"plan","case":{"model":"m","accumulate":-1}}`,
			"-1 accumulation steps (micro-batches): need at least 1",
		},
		{
			`{"schema":"vprof.report/v1","kind":"plan","case":{"model":"m"},"points":[{"batch":8,"device":"x"}]}`,
			`batch 8: its device "x"`,
		},
		{
			`{"schema":"vprof.report/v1","kind":"plan","case":{"model":"m"},"devices":[{"name":"x"}],"points":[{"batch":8,"device":"x"}]}`, "neither an estimate nor a run",
		},
	} {
		_, err := Read("run.json", strings.NewReader(c.text))
		var format *input.FormatError
		require.ErrorAs(t, err, &format, c.text)
		require.Contains(t, err.Error(), "run.json: ")
		require.Contains(t, err.Error(), c.want)
	}
}

// Each is what a writer cannot have written, one change of a file it has.
func TestReadChecksWhatTheFormatPromises(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Write(&b, JSON, toySweep()))
	for want, change := range map[string]func(r map[string]any){
		"points.0.batch appears twice": nil,
		"device \"sim:card\" appears twice": func(r map[string]any) {
			r["devices"] = append(list(r["devices"]), list(r["devices"])[0])
		},
		"batch 8 on sim:card appears twice": func(r map[string]any) {
			r["points"] = append(list(r["points"]), list(r["points"])[0])
		},
		"from 999999999999 to": func(r map[string]any) {
			at(r, "points", 0, "estimate", "allocated")["low_bytes"] = 999999999999
		},
		"estimate: device: -1 bytes must lie": func(r map[string]any) {
			at(r, "points", 0, "estimate", "device")["bytes"] = -1
		},
		"components: the bytes of its entries must add up to": func(r map[string]any) {
			at(r, "points", 0, "estimate", "components", 0)["bytes"] = 1
		},
		"-1 bytes are out of range": func(r map[string]any) {
			at(r, "points", 0, "estimate", "components", 0)["bytes"] = -1
		},
		"the estimate's verdict is \"sure\"": func(r map[string]any) {
			at(r, "points", 0, "estimate")["verdict"] = "sure"
		},
		"classes: the bytes of its entries must add up to": func(r map[string]any) {
			at(r, "points", 0, "run", "classes", 0)["bytes"] = 1
		},
		"a negative number of bytes": func(r map[string]any) {
			at(r, "points", 0, "run")["requested_bytes"] = -5
		},
		"the run has more requested bytes (": func(r map[string]any) {
			at(r, "points", 0, "run")["requested_bytes"] = 1 << 50
		},
		"above the largest possible one, 1152921504606846976": func(r map[string]any) {
			at(r, "points", 0, "run")["device_bytes"] = int64(1) << 62
		},
		"both as fitting and as out of memory": func(r map[string]any) {
			at(r, "points", 0, "run")["oom"] = map[string]any{"want_bytes": 1}
		},
		"the run: phase 0 (forward): need allocated": func(r map[string]any) {
			at(r, "points", 0, "run")["phases"] = []any{map[string]any{
				"step": 0, "phase": "forward",
				"allocated_bytes": 999999999999999,
			}}
		},
		"the run: a step time of 3 s must lie between its least and most, 4 s and 5 s": func(r map[string]any) {
			at(r, "points", 0, "run")["step"] = map[string]any{"seconds": 3, "least_seconds": 4, "most_seconds": 5}
		},
		"less than the 104857600 bytes of its CUDA context":      func(r map[string]any) { at(r, "devices", 0)["memory_bytes"] = 1 },
		"-1 accumulation steps (micro-batches): need at least 1": func(r map[string]any) { at(r, "case")["accumulate"] = -1 },
	} {
		text := b.String()
		if change == nil {
			text = strings.Replace(text, `"batch": 8,`, `"batch": 8, "batch": 9,`, 1)
		} else {
			var r map[string]any
			require.NoError(t, json.Unmarshal(b.Bytes(), &r))
			change(r)
			changed, err := json.Marshal(r)
			require.NoError(t, err)
			text = string(changed)
		}
		_, err := Read("run.json", strings.NewReader(text))
		require.ErrorContains(t, err, want)
	}
}

// Plans of ranks are a list, whether each stands with its ranks or alone.
func TestPlansOfRanksAreRead(t *testing.T) {
	plan := func(strategy string) *Report {
		r := toySweep()
		s, err := models.ParseStrategy(strategy)
		require.NoError(t, err)
		r.Case.GPUs, r.Case.Strategy = 4, &s
		return r
	}
	read := func(v any) []*Report {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		reports, err := Read("run.json", bytes.NewReader(text))
		require.NoError(t, err)
		return reports
	}
	a, b := plan("zero1:rank=0"), plan("zero1:rank=3")
	for _, v := range []any{[]*Report{a, b}, Ranks{{Plan: a}, {Plan: b}}} {
		reports := read(v)
		require.Len(t, reports, 2)
		require.True(t, AreRanks(reports))
	}
	require.False(t, AreRanks(read(a)), "one alone")
	require.False(t, AreRanks(read([]*Report{a, plan("ddp:rank=1")})), "of two strategies")
	require.False(t, AreRanks(read([]*Report{a, toySweep()})), "of one GPU, too")
	_, err := Read("run.json", strings.NewReader("[1]"))
	require.ErrorContains(t, err, "value 1 is not a vprof.report/v1 report")
	_, err = Read("run.json", strings.NewReader("[]"))
	require.ErrorContains(t, err, "is empty")
}

func list(v any) []any { return v.([]any) }

// at returns the object at a path of keys and indices.
func at(v any, path ...any) map[string]any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			v = v.(map[string]any)[p]
		case int:
			v = list(v)[p]
		}
	}
	return v.(map[string]any)
}

// What a file holds is shown, not obeyed, in every format for people.
func TestCommandsInFilesAreShown(t *testing.T) {
	r := toySweep()
	r.Case.Model = "\x1b[2Jevil<img src=x>*\u202e"
	r.Devices[0].Title = "=1+1"
	r.Warnings = append(r.Warnings, Warning{What: "\x1b]0;t\a"})
	for _, f := range []Format{Table, Markdown, CSV} {
		var b bytes.Buffer
		require.NoError(t, Write(&b, f, r))
		if f != CSV {
			require.NotContains(t, b.String(), "\x1b")
			require.NotContains(t, b.String(), "\u202e")
		}
		if f == Markdown {
			require.Contains(t, b.String(), `\<img src=x>\*`)
		}
	}
	r.Case.Model = "=cmd|' /C calc'!A0"
	var b bytes.Buffer
	require.NoError(t, Write(&b, CSV, r))
	require.Contains(t, b.String(), "'=cmd|")
	require.NotContains(t, b.String(), "\n=cmd")
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

// What a file of reports is decoded to takes many times its size.
func TestLongFilesOfReportsAreNotRead(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(`{"schema": "`), letters{})
	_, err := Read("run.json", endless)
	require.EqualError(t, err, "run.json: longer than 64 MiB")
}

// letters is a text without an end.
type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}
