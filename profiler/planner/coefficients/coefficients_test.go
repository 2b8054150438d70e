package coefficients

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/steptime"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/tools/golden"
)

func sample() *File {
	return &File{Schema: Schema, Tool: "v1.0.0", Entries: []Entry{{
		Name: "rtx-5060-ti/torch-2.11.0", GPU: "rtx-5060-ti", Stack: Stack{Torch: "2.11.0", CUDA: "13.0"},
		Fitted: time.Date(2026, 11, 5, 6, 0, 0, 0, time.UTC), Models: []string{"redimnet-b2"},
		Memory: map[string]Number{
			"context":      {3e8, 1e7, "2 runs"},
			"device_slack": {0.03, 0.004, "2 runs"},
		},
		Correlations: []Correlation{{[2]string{"context", "device_slack"}, -0.9}},
		Efficiency:   map[string]Number{"matmul": {0.6, 0.1, "default"}, "launch": {5e-6, 1e-6, "default"}},
		Errors:       FitErrors{Before: Error{0.2, 0.3}, After: Error{0.001, 0.002}, HeldOut: &Error{0.01, 0.02}},
		Undetermined: []string{"granularity: every run has as many segments"},
		Inputs: []Input{{
			File: "b2.json", SHA256: strings.Repeat("0", 64), Kind: "report", Source: "vprof v1.0.0",
			Batches: []int{8, 32},
		}},
	}}}
}

func encode(t require.TestingT, f *File) []byte {
	var b bytes.Buffer
	require.NoError(t, f.Encode(&b))
	return b.Bytes()
}

func TestFileIsCommentedAndReadsBack(t *testing.T) {
	text := encode(t, sample())
	golden.Equal(t, "testdata/sample.yaml", text)
	back, err := Read(bytes.NewReader(text), "sample.yaml")
	require.NoError(t, err)
	require.Equal(t, sample(), back)
}

func TestAnyFileReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := sample()
		e := &f.Entries[0]
		text := rapid.OneOf(rapid.String(),
			rapid.SampledFrom([]string{"\t\n", " \n", "\n\t", "true", "1", "- a", "\u2028"}))
		e.Name = "n" + text.Draw(t, "name")
		e.Stack.Driver = text.Draw(t, "driver")
		e.Models = rapid.SliceOf(text).Draw(t, "models")
		for term := range planner.Term(planner.NumTerms) {
			e.Memory[term.String()] = Number{
				rapid.Float64Range(0, 1000).Draw(t, "value"),
				rapid.Float64Range(0, 10).Draw(t, "stderr"), text.Draw(t, "source"),
			}
		}
		text2 := encode(t, f)
		back, err := Read(bytes.NewReader(text2), "f")
		require.NoError(t, err)
		if len(e.Models) == 0 {
			e.Models, back.Entries[0].Models = nil, nil
		}
		require.Equal(t, f, back)
	})
}

func TestDamageIsNamed(t *testing.T) {
	whole := string(encode(t, sample()))
	for name, c := range map[string]struct{ from, to, want string }{
		"empty":          {whole, "", "empty"},
		"other schema":   {Schema, "vprof.coefficients/v9", `the schema is "vprof.coefficients/v9"`},
		"unknown field":  {"    models:", "    modles:", "field modles not found"},
		"unknown term":   {"device_slack:\n", "device_slak:\n", `c.yaml: rtx-5060-ti/torch-2.11.0: memory: there is no coefficient "device_slak"; use one of library_workspace, context, granularity, allocated_slack, reserved_slack, device_slack, communication`},
		"NaN":            {"value: 0.03", "value: .nan", "c.yaml: rtx-5060-ti/torch-2.11.0: memory: device_slack: value: NaN: need 0 to 1000"},
		"negative":       {"value: 0.03", "value: -0.03", "c.yaml: rtx-5060-ti/torch-2.11.0: memory: device_slack: value: -0.03: need 0 to 1000"},
		"infinite error": {"stderr: 0.004", "stderr: .inf", "c.yaml: rtx-5060-ti/torch-2.11.0: memory: device_slack: stderr: +Inf: need 0 to 1000"},
		"word":           {"value: 0.03", "value: much", "cannot unmarshal"},
		"no work":        {"matmul:", "matmull:", `c.yaml: rtx-5060-ti/torch-2.11.0: efficiency: there is no class of work "matmull"; remove it`},
		"too efficient":  {"value: 0.6", "value: 1.5", "c.yaml: rtx-5060-ti/torch-2.11.0: efficiency: matmul: value: 1.5: need 0 to 1"},
		"correlation":    {"value: -0.9", "value: -1.9", "correlations: -1.9 between context and device_slack: need two different coefficients, and a value from -1 to 1"},
		"twice":          {"    models:", "    gpu: t4\n    models:", "already defined"},
		"two documents":  {"schema:", "schema: x\n---\nschema:", "more than one YAML document"},
		"errors":         {"median: ", "median: -", "errors: "},
		"no name":        {"name: rtx-5060-ti/torch-2.11.0", `name: ""`, "name or no gpu; add both"},
		"not YAML":       {"schema:", "\tschema:", "not a coefficients file"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(whole, c.from, c.to, 1)
			require.NotEqual(t, whole, text, "the case must change the file")
			_, err := Read(strings.NewReader(text), "c.yaml")
			require.ErrorAs(t, err, new(*input.FormatError))
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := Read(strings.NewReader("root:secret:20228:0:99999:7:::\n"), "shadow")
	require.ErrorContains(t, err, "shadow: not a coefficients file")
	require.NotContains(t, err.Error(), "secret", "what another file holds is not quoted")
	_, err = Read(strings.NewReader(strings.Repeat("#", maxFileBytes+1)), "c.yaml")
	require.ErrorContains(t, err, "c.yaml: the file has more than 8388608 bytes, too many for a coefficients file; name a file that vprof calibrate wrote")
}

func TestEveryCutIsAnError(t *testing.T) {
	text := encode(t, sample())
	for n := range len(text) - 1 { // without its last line break it is whole
		_, err := Read(bytes.NewReader(text[:n]), "c.yaml")
		require.ErrorAs(t, err, new(*input.FormatError), "%s", text[:n])
	}
}

func TestTwoEntriesOfOneNameAreRefused(t *testing.T) {
	f := sample()
	f.Entries = append(f.Entries, f.Entries[0])
	require.ErrorContains(t, f.Encode(&bytes.Buffer{}), "two entries have the name")
}

func TestEntryIsFoundByGPUThenModelThenName(t *testing.T) {
	f := sample()
	other := f.Entries[0]
	other.Name, other.Models = "rtx-5060-ti/other", []string{"toy"}
	f.PutEntry(other)
	for _, c := range []struct{ model, name, want string }{
		{"redimnet-b2", "", "rtx-5060-ti/torch-2.11.0"},
		{"toy", "", "rtx-5060-ti/other"},
		{"vit", "rtx-5060-ti/other", "rtx-5060-ti/other"},
	} {
		e, err := f.FindEntry("rtx-5060-ti", c.model, c.name)
		require.NoError(t, err)
		require.Equal(t, c.want, e.Name)
	}
	_, err := f.FindEntry("rtx-5060-ti", "vit", "")
	require.ErrorContains(t, err, "add # and the name of one: rtx-5060-ti/other, rtx-5060-ti/torch-2.11.0")
	_, err = f.FindEntry("h100", "toy", "")
	require.ErrorContains(t, err, "no coefficients for h100")
	_, err = f.FindEntry("rtx-5060-ti", "toy", "x")
	require.ErrorContains(t, err, `called "x"`)
}

// The GPU's terms carry over to other models, the model's own do not.
func TestSlackHoldsForModelsThatRan(t *testing.T) {
	f := sample()
	var seen, unseen planner.Coefficients
	f.Entries[0].Apply("redimnet-b2", &seen)
	f.Entries[0].Apply("toy", &unseen)
	require.EqualValues(t, 3e8, seen.Context.Value)
	require.EqualValues(t, 3e8, unseen.Context.Value)
	require.InDelta(t, 0.03, seen.Term(planner.DeviceSlack).Value, 0)
	require.Zero(t, unseen.Term(planner.DeviceSlack).Value)
	require.InDelta(t, -0.9, seen.Correlation[planner.DeviceSlack][planner.ContextBytes], 0)
	require.Zero(t, unseen.Correlation)
	require.Equal(t, "2 runs; rtx-5060-ti/torch-2.11.0", seen.Context.Source)
}

func TestAddKeepsEveryOlderFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	entry := sample().Entries[0]
	backup, err := Add(t.Context(), path, "v1", entry)
	require.NoError(t, err)
	require.Empty(t, backup)
	for i, want := range []string{".backup", ".backup.1", ".backup.2"} {
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		entry.Name = fmt.Sprint("another ", i)
		backup, err := Add(t.Context(), path, "v2", entry)
		require.NoError(t, err)
		require.Equal(t, path+want, backup)
		kept, err := os.ReadFile(backup)
		require.NoError(t, err)
		require.Equal(t, string(before), string(kept))
	}
	f, err := Open(path)
	require.NoError(t, err)
	require.Len(t, f.Entries, 4)
	require.Equal(t, "v2", f.Tool)
}

// Whatever stops it, the file is as it was and nothing lies beside it.
func TestAddWritesAllOrNothing(t *testing.T) {
	good := sample().Entries[0]
	bad := good
	bad.Memory = map[string]Number{"context": {Value: math.NaN()}}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx   context.Context
		entry Entry
		text  string
		mode  os.FileMode
		want  string
	}{
		"an entry that is wrong":   {t.Context(), bad, string(encode(t, sample())), 0o644, "coefficients: rtx-5060-ti/torch-2.11.0: memory: context: value: NaN: need 0 to 3.5184372088832e+13"},
		"an interrupt":             {interrupted, good, string(encode(t, sample())), 0o644, "context canceled"},
		"a read-only file":         {t.Context(), good, string(encode(t, sample())), 0o444, "permission denied"},
		"a file of another kind":   {t.Context(), good, "training: {batch: 8}\n", 0o644, "not a coefficients file"},
		"a file that is cut off":   {t.Context(), good, string(encode(t, sample())[:400]), 0o644, "c.yaml: "},
		"an empty file":            {t.Context(), good, "", 0o644, "empty"},
		"a wrong entry, no file":   {t.Context(), bad, "none", 0, "coefficients: rtx-5060-ti/torch-2.11.0: memory: context: value: NaN: need 0 to 3.5184372088832e+13"},
		"an interrupt, no file":    {interrupted, good, "none", 0, "context canceled"},
		"a folder that is missing": {t.Context(), good, "none", 1, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "c.yaml")
			if c.text != "none" {
				require.NoError(t, os.WriteFile(path, []byte(c.text), c.mode))
			} else if c.mode == 1 {
				path = filepath.Join(dir, "nowhere", "c.yaml")
			}
			_, err := Add(c.ctx, path, "v2", c.entry)
			require.ErrorContains(t, err, c.want)
			found, err := os.ReadDir(dir)
			require.NoError(t, err)
			if c.text == "none" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			now, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, c.text, string(now))
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add(encode(f, sample()))
	f.Add([]byte("schema: vprof.coefficients/v1\nentries: [{name: a, gpu: b, memory: {context: {value: 1e400}}}]"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Read(bytes.NewReader(text), "fuzz")
		if err != nil {
			return
		}
		require.NoError(t, file.check())
		for i := range file.Entries {
			var c planner.Coefficients
			file.Entries[i].Apply("toy", &c)
		}
	})
}

// Speeds outlive a file, and efficiencies of older files are shares of the peak, which include the host's time.
func TestSpeedsAreReadAsTheyWereWritten(t *testing.T) {
	want := steptime.DefaultEfficiency()
	want.Share[program.Matmul].Value, want.Dispatch.Value, want.Module.Value = 1.25, 2e-5, 9e-5
	f := sample()
	e := &f.Entries[0]
	e.Efficiency = nil
	e.SetSpeed(want, false)
	read, err := Read(bytes.NewReader(encode(t, f)), "speeds")
	require.NoError(t, err)
	got := steptime.DefaultEfficiency()
	read.Entries[0].ApplySpeed(&got)
	require.InDelta(t, 1.25, got.Share[program.Matmul].Value, 1e-9)
	require.InDelta(t, 2e-5, got.Dispatch.Value, 1e-12)
	require.InDelta(t, 9e-5, got.Module.Value, 1e-12)
	require.False(t, got.RelativeToPeak)

	old := Entry{Efficiency: map[string]Number{"matmul": {Value: 0.5}, LaunchKey: {Value: 4e-6}}}
	got = steptime.DefaultEfficiency()
	old.ApplySpeed(&got)
	require.True(t, got.RelativeToPeak)
	require.Zero(t, got.Dispatch.Value+got.Module.Value)
}
