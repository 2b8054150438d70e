package reference

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
)

const header = `{"schema":"vprof.reference/v1","torch":"2.11.0","gpu":"t4"}`

// whole is a record with everything required and one phase.
const whole = `{"case":"toy","stage":"full","batch":4,"amp":null,"checkpointing":false,"accumulate":1,` +
	`"gpu":"t4","status":"ok","peak_allocated":10,"peak_reserved":20,"phases":[[0,"forward",5,10,20,20]]}`

func read(lines ...string) (*File, error) {
	return Read(strings.NewReader(strings.Join(lines, "\n")), "toy.jsonl")
}

func TestEveryCommittedRecordIsRead(t *testing.T) {
	paths, err := filepath.Glob("data/*.jsonl")
	require.NoError(t, err)
	require.Len(t, paths, 30)
	status := map[Status]int{}
	for _, path := range paths {
		f, err := Open(path)
		require.NoError(t, err)
		require.Equal(t, Schema, f.Header.Schema)
		for _, r := range f.Records {
			status[r.Status]++
			require.Equal(t, path, r.File)
			require.Greater(t, r.Line, 1)
		}
	}
	require.Equal(t, map[Status]int{StatusOK: 841, StatusOOM: 42, StatusError: 12}, status)
}

func TestRecordHoldsWhatTheLineSays(t *testing.T) {
	line := strings.NewReplacer(`"amp":null`, `"amp":"bf16"`, `"gpu"`,
		`"env":"PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128","optimizer":"sgd","gpu"`).Replace(whole)
	f, err := read(header, "", line)
	require.NoError(t, err)
	require.Equal(t, []Record{{
		File: "toy.jsonl", Line: 3,
		Case: models.Case{
			Model: "toy", Stage: "full", Batch: 4, AMP: "bf16", Accumulate: 1, Optimizer: "sgd",
			AllocConf: "max_split_size_mb:128",
		},
		GPU: "t4", Status: StatusOK, PeakAllocated: 10, PeakReserved: 20,
		Phases: []Phase{{Step: 0, Name: "forward", Allocated: 5, MaxAllocated: 10, Reserved: 20, MaxReserved: 20}},
	}}, f.Records)
	require.Equal(t, 1, f.Records[0].Steps())
}

func TestOwnOptimizerReadsAsNone(t *testing.T) {
	for _, own := range []string{"AdamW", "Adam x2"} {
		f, err := read(header, strings.Replace(whole, `"gpu"`, `"optimizer":"`+own+`","gpu"`, 1))
		require.NoError(t, err)
		require.Empty(t, f.Records[0].Optimizer)
	}
}

func TestGzippedFileReadsLikePlain(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(header + "\n" + whole + "\n"))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	path := filepath.Join(t.TempDir(), "toy.jsonl.gz")
	require.NoError(t, os.WriteFile(path, packed.Bytes(), 0o600))
	f, err := Open(path)
	require.NoError(t, err)
	require.Len(t, f.Records, 1)

	require.NoError(t, os.WriteFile(path, []byte(header), 0o600))
	_, err = Open(path)
	require.ErrorContains(t, err, "the file is not gzip data")
}

func TestDamageIsNamedByFileLineAndField(t *testing.T) {
	swap := func(from, to string) []string {
		line := strings.Replace(whole, from, to, 1)
		require.NotEqual(t, whole, line, "the case must change the record")
		return []string{header, line}
	}
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"empty file": {nil, "toy.jsonl:1: empty"},
		"no header":  {[]string{whole}, "toy.jsonl:1: schema: missing"},
		"other schema": {
			[]string{`{"schema":"vprof.report/v1"}`},
			`toy.jsonl:1: schema: "vprof.report/v1" is not vprof.reference/v1`,
		},
		"header not JSON":   {[]string{"case,batch"}, "toy.jsonl:1: not JSON at byte 1"},
		"header not object": {[]string{"[1]"}, "toy.jsonl:1: want an object, found a JSON array"},
		"cut line":          {[]string{header, whole[:40]}, "toy.jsonl:2: not JSON at byte 40"},
		"batch a string": {
			swap(`"batch":4`, `"batch":"4"`),
			"toy.jsonl:2: batch: want an integer, found a JSON string",
		},
		"batch a fraction": {
			swap(`"batch":4`, `"batch":4.5`),
			"toy.jsonl:2: batch: want an integer, found a JSON number 4.5",
		},
		"step time a string": {
			swap(`"batch":4`, `"batch":4,"step_ms":"fast"`),
			"toy.jsonl:2: step_ms: want a number, found a JSON string",
		},
		"batch zero": {swap(`"batch":4`, `"batch":0`), "toy.jsonl:2: batch: batch size 0: need at least 1"},
		"batch too large": {
			swap(`"batch":4`, `"batch":4611686018427387904`),
			"toy.jsonl:2: batch: batch size 4611686018427387904 is above the largest that vprof accepts, 1048576",
		},
		"no time of a step": {
			swap(`"status"`, `"step_ms":0,"status"`),
			"toy.jsonl:2: step_ms: 0 is no time of a step; need a positive number of milliseconds",
		},
		"case missing": {swap(`"case":"toy",`, ``), "toy.jsonl:2: case: missing"},
		"case empty":   {swap(`"toy"`, `""`), "toy.jsonl:2: case: empty"},
		"gpu empty":    {swap(`"t4"`, `""`), "toy.jsonl:2: gpu: empty"},
		"peak missing": {swap(`"peak_reserved":20,`, ``), "toy.jsonl:2: peak_reserved: missing"},
		"reserved too small": {
			swap(`"peak_reserved":20`, `"peak_reserved":9`),
			"toy.jsonl:2: peak_reserved: 9 is below the 10 allocated",
		},
		"unknown amp": {
			swap(`null`, `"fp8"`),
			`toy.jsonl:2: amp: there is no precision "fp8"; use none, fp16 or bf16`,
		},
		"unknown status": {swap(`"ok"`, `"fine"`), `toy.jsonl:2: status: want ok, oom or error, found "fine"`},
		"error unsaid":   {swap(`"ok"`, `"error"`), "toy.jsonl:2: error: missing"},
		"accumulate zero": {
			swap(`"accumulate":1`, `"accumulate":0`),
			"toy.jsonl:2: accumulate: 0 accumulation steps (micro-batches): need at least 1",
		},
		"accumulate large": {
			swap(`"accumulate":1`, `"accumulate":4611686018427387904`),
			"toy.jsonl:2: accumulate: 4611686018427387904 accumulation steps (micro-batches) are too many",
		},
		"negative bytes": {swap(`"gpu"`, `"batch_bytes":-1,"gpu"`), "toy.jsonl:2: batch_bytes: negative: -1"},
		"foreign env": {
			swap(`"gpu"`, `"env":"PATH=/bin","gpu"`),
			"toy.jsonl:2: env: want PYTORCH_CUDA_ALLOC_CONF=SETTINGS",
		},
		"phases missing": {
			swap(`"phases":[[0,"forward",5,10,20,20]]`, `"phases":null`),
			"toy.jsonl:2: phases: missing",
		},
		"phases empty":    {swap(`[[0,"forward",5,10,20,20]]`, `[]`), "toy.jsonl:2: phases: empty"},
		"phase an object": {swap(`[0,"forward",5,10,20,20]`, `{}`), "toy.jsonl:2: phases[0]: want an array"},
		"phase short":     {swap(`,20]`, `]`), "toy.jsonl:2: phases[0]: want 6 values, found 5"},
		"phase null":      {swap(`[0,"f`, `[null,"f`), "toy.jsonl:2: phases[0][0]: null"},
		"phase step":      {swap(`[0,"f`, `[-2,"f`), "toy.jsonl:2: phases[0][0]: want a step"},
		"phase name":      {swap(`"forward"`, `7`), "toy.jsonl:2: phases[0][1]: want the name of a phase, found 7"},
		"phase bytes":     {swap(`5,10`, `-5,10`), "toy.jsonl:2: phases[0][2]: want bytes, found -5"},
		"phase peak":      {swap(`5,10`, `11,10`), "toy.jsonl:2: phases[0][3]: peak 10 below the 11 allocated"},
		"phase reserved":  {swap(`10,20,20`, `10,21,20`), "toy.jsonl:2: phases[0][5]: peak 20 below the 21 reserved"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(c.lines...)
			var f *input.FormatError
			require.ErrorAs(t, err, &f)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestAllDamagedLinesAreReportedTogether(t *testing.T) {
	_, err := read(header, "1", whole, "2")
	require.ErrorContains(t, err, "toy.jsonl:2:")
	require.ErrorContains(t, err, "toy.jsonl:4:")
}

func TestOverlongLineIsAnError(t *testing.T) {
	_, err := read(header, strings.Repeat(" ", maxLineBytes+1))
	require.ErrorContains(t, err, "toy.jsonl:2: longer than")
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

func TestReadErrorsAreKept(t *testing.T) {
	cause := errors.New("disk on fire")
	_, err := Read(failing{cause}, "toy.jsonl")
	require.ErrorIs(t, err, cause)
}

func FuzzRead(f *testing.F) {
	f.Add(header + "\n" + whole)
	f.Add(header + "\n" + strings.Replace(whole, `[0,"forward",5,10,20,20]`, `[0,null]`, 1))
	f.Add("{}")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Read(strings.NewReader(text), "fuzz")
		if err != nil {
			require.Nil(t, file)
			return
		}
		for _, r := range file.Records {
			require.NoError(t, r.validate())
			require.GreaterOrEqual(t, r.Steps(), 1)
		}
	})
}

func TestRecordOfAnExportedModelNamesItsRelease(t *testing.T) {
	const line = `{"spec":"timm:resnet18","batch":4,"amp":"none","optimizer":"adamw","steps":3,"status":"ok","peak_allocated":1,"peak_reserved":1,"gpu":"t4","torch":"2.15.0+cu132"}`
	f, err := read(line, strings.Replace(line, "2.15.0+cu132", "2.11.0", 1))
	require.NoError(t, err)
	require.Equal(t, "2.15", f.Records[0].ReleaseName())
	require.Equal(t, "2.11", f.Records[1].ReleaseName())
	_, err = read(strings.Replace(line, "2.15.0+cu132", "nightly", 1))
	require.ErrorContains(t, err, `unknown release of PyTorch "nightly"`)
}
