package vprof_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/cli"
)

// The test binary is also the command, with a clock that stands still for both.
func TestMain(m *testing.M) {
	os.Setenv("SOURCE_DATE_EPOCH", "1793858400")
	os.Setenv("HF_HUB_OFFLINE", "1")
	testscript.Main(m, map[string]func(){"vprof": func() { os.Exit(cli.Main(os.Args[1:])) }})
}

// requests draws requests for plans, of which some are refused and some do not fit.
var requests = rapid.Custom(func(t *rapid.T) vprof.Request {
	r := vprof.Request{
		Model: rapid.SampledFrom([]string{
			"resnet18", "resnet34", "gpt2", "gpt2", "unet", "resnet81", "hf:models/hfconfig/testdata/configs/gpt2/config.json",
		}).Draw(t, "model"),
		GPU:   rapid.SliceOfN(rapid.SampledFrom([]string{"t4", "rtx-4090", "h100", "a100-40", "gtx-1"}), 0, 2).Draw(t, "gpu"),
		Batch: rapid.SliceOfN(rapid.SampledFrom([]int{1, 2, 3, 8, 17, 40, 400, 0}), 0, 2).Draw(t, "batch"),
		AMP:   rapid.SampledFrom([]string{"", "none", "fp16", "bf16", "fp16", "fp8"}).Draw(t, "amp"),
	}
	if rapid.Bool().Draw(t, "more") {
		r.SeqLen = rapid.SampledFrom([]int{0, 0, 512, 1025}).Draw(t, "seq-len")
		r.GPUMemory = rapid.SampledFrom([]vprof.Bytes{0, 1, 6 << 30}).Draw(t, "gpu-memory")
		r.GPUs = rapid.IntRange(0, 2).Draw(t, "gpus")
		r.Options = map[string]any{"alloc-conf": "expandable_segments:True", "clip": "norm"}
	}
	return r
})

// For any request Plan returns what vprof plan --json-request prints, to the byte, or an error with its message.
func TestPlanIsTheAnswerOfTheCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine asks")
	}
	var lines bytes.Buffer
	sample := make([]vprof.Request, 40)
	for i := range sample {
		sample[i] = requests.Example(i)
		require.NoError(t, json.NewEncoder(&lines).Encode(sample[i]))
	}
	cmd := exec.Command("vprof", "plan", "--json-request", "-", "--json-lines")
	cmd.Stdin, cmd.Stderr = &lines, os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	answers := bytes.SplitAfter(out, []byte("\n"))
	require.Len(t, answers, len(sample)+1)
	answered := 0
	for i, r := range sample {
		plan, err := vprof.Plan(t.Context(), r)
		if err != nil {
			require.ErrorAs(t, err, new(*vprof.InputError))
			var refused vprof.Response
			require.NoError(t, json.Unmarshal(answers[i], &refused))
			first, _, _ := strings.Cut(refused.Message, "\n") // then where the help is
			require.Equal(t, first, fmt.Sprintf("stdin:%d: %v", i+1, err))
			require.Equal(t, 2, refused.ExitCode)
			continue
		}
		answered++
		var same bytes.Buffer
		require.NoError(t, report.WriteResponse(&same, plan, false))
		require.Equal(t, string(answers[i]), same.String(), "%+v", r)
	}
	require.Greater(t, answered, len(sample)/4)
	require.Less(t, answered, len(sample))
}

// Fit and Smoke return what the commands print, whether it fits or not.
func TestFitAndSmokeAreTheAnswersOfTheCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine asks")
	}
	ask := map[string]func(vprof.Request) (report.Document, error){
		"fit": func(r vprof.Request) (report.Document, error) {
			f, err := vprof.Fit(t.Context(), r)
			return &f.Fit, err
		},
		"smoke": func(r vprof.Request) (report.Document, error) {
			s, err := vprof.Smoke(t.Context(), r)
			return &s.Smoke, err
		},
	}
	for verb, answer := range ask {
		for _, batch := range []int{2, 100_000} {
			cmd := exec.Command("vprof", verb, "--model", "resnet18", "--gpu", "t4", "--amp", "fp16", "--format", "json",
				fmt.Sprintf("--batch=%d", batch))
			want, _ := cmd.Output()
			require.Contains(t, []int{0, 3}, cmd.ProcessState.ExitCode())
			got, err := answer(vprof.Request{Model: "resnet18", GPU: []string{"t4"}, AMP: "fp16", Batch: []int{batch}})
			require.NoError(t, err)
			var text bytes.Buffer
			require.NoError(t, report.Write(&text, report.JSON, got))
			require.Equal(t, string(want), text.String(), verb)
		}
	}
}

func TestErrorsSayInASentenceWhatIsWrong(t *testing.T) {
	torn := filepath.Join(t.TempDir(), "torn.yaml")
	require.NoError(t, os.WriteFile(torn, []byte("a: [1"), 0o600))
	for want, r := range map[string]vprof.Request{
		`unknown model "gtp2"; near it: gpt2`:                 {Model: "gtp2"},
		`unknown GPU "rtx-4091"`:                              {Model: "gpt2", GPU: []string{"rtx-4091"}},
		`0 is not a batch size; need 1 or more`:               {Model: "gpt2", Batch: []int{0}},
		`--gpu-memory: 24 B is less than the CUDA context`:    {Model: "gpt2", GPUMemory: 24},
		`export: requests for plan have no such option`:       {Options: map[string]any{"export": "a.json"}},
		`model: the option is given twice`:                    {Model: "gpt2", Options: map[string]any{"model": "vit"}},
		`json: unsupported type`:                              {Options: map[string]any{"model": func() {}}},
		`torch and rank: a request may name only one release`: {Model: "gpt2", Torch: "2.14,2.15"},
		"torn.yaml":            {Files: []string{torn}},
		"nor the hub's caches": {Model: "hf:nobody/nothing"},
	} {
		answer, err := vprof.Plan(t.Context(), r)
		require.Nil(t, answer)
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, new(*vprof.InputError), want)
		require.NotContains(t, err.Error(), "\n")
	}
	_, err := vprof.Fit(t.Context(), vprof.Request{Model: "gpt2", Options: map[string]any{"auto": true}})
	require.ErrorContains(t, err, "no usable GPU")
	require.NotErrorAs(t, err, new(*vprof.InputError))
}

// ending is a context that is canceled when it has been looked at so many times.
type ending struct {
	context.Context
	cancel context.CancelFunc
	mu     sync.Mutex
	looks  int
}

func (c *ending) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looks--; c.looks == 0 {
		c.cancel()
	}
}

func (c *ending) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

func (c *ending) Err() error {
	c.look()
	return c.Context.Err()
}

// Work that is canceled while it runs ends with an error of its own kind, and leaves nothing wrong behind.
func TestACanceledRequestIsInterrupted(t *testing.T) {
	r := vprof.Request{Model: "gpt2", GPU: []string{"rtx-4090"}, Batch: []int{3}, SeqLen: 333}
	for _, looks := range []int{1, 2, 3} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := vprof.Fit(&ending{Context: ctx, cancel: cancel, looks: looks}, r)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorAs(t, err, new(*vprof.InputError))
	}
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, err := vprof.Smoke(late, r)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = vprof.Plan(t.Context(), r)
	require.NoError(t, err)
}

// Several goroutines get the answers that one gets, and the process stays as it was: streams, environment, collector.
func TestGoroutinesAskAtOnce(t *testing.T) {
	streams, err := os.Create(filepath.Join(t.TempDir(), "streams"))
	require.NoError(t, err)
	defer streams.Close()
	out, errs, environment := os.Stdout, os.Stderr, os.Environ()
	os.Stdout, os.Stderr = streams, streams
	defer func() { os.Stdout, os.Stderr = out, errs }()
	collector := debug.SetGCPercent(77)
	defer debug.SetGCPercent(collector)

	var wait sync.WaitGroup
	answers := make([]string, 12)
	for i := range answers {
		wait.Go(func() {
			r := vprof.Request{Model: "resnet18", GPU: []string{"t4"}, Batch: []int{2 + i%2}}
			var answer any
			var err error
			switch kind := i % 6; {
			case kind < 2:
				answer, err = vprof.Plan(t.Context(), r)
			case kind < 4 || testing.Short(): // a search takes long under the race detector
				answer, err = vprof.Smoke(t.Context(), r)
			default:
				answer, err = vprof.Fit(t.Context(), r)
			}
			text, _ := json.Marshal(answer)
			answers[i] = fmt.Sprint(string(text), err)
		})
	}
	wait.Wait()
	for i := range 6 {
		require.Equal(t, answers[i], answers[i+6])
		require.Contains(t, answers[i], `"schema"`)
	}
	require.Equal(t, 77, debug.SetGCPercent(77))
	require.Equal(t, environment, os.Environ())
	written, err := os.ReadFile(streams.Name())
	require.NoError(t, err)
	require.Empty(t, string(written))
}

// A process that asks for a long time keeps nothing of its requests but the latest recordings.
func TestRequestsLeaveNothingBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine asks")
	}
	objects := func(requests int) int64 {
		for range requests {
			_, err := vprof.Plan(t.Context(), vprof.Request{Model: "resnet18", GPU: []string{"t4"}, Batch: []int{1}})
			require.NoError(t, err)
		}
		runtime.GC()
		runtime.GC() // the first one frees what has finalizers, and empties pools
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapObjects)
	}
	before := objects(20)
	require.Less(t, objects(200)-before, int64(200), "objects for each request")
}
