package optim_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
	"github.com/vprof/vprof/tools/opvectors"
)

// steps holds the events of one step, or "=step2" if they equal the events of the second.
type steps []string

func (s *steps) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return nil
	}
	return json.Unmarshal(b, (*[]string)(s))
}

// recording is what PyTorch did in three steps of an optimizer.
type recording struct {
	Opt    string
	Args   map[string]any
	DType  string
	GPU    string
	Params [][]int64
	Init   steps
	Step1  steps
	Step2  steps
	Step3  steps
}

func load(t *testing.T, release string) []recording {
	f, err := os.Open("testdata/optimizers-" + release + ".jsonl.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var out []recording
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var r recording
		require.NoError(t, json.Unmarshal(lines.Bytes(), &r))
		out = append(out, r)
	}
	require.NoError(t, lines.Err())
	return out
}

// config returns the configuration that the recording's arguments describe.
func (r *recording) config() optim.Config {
	set := func(name string) bool {
		switch v := r.Args[name].(type) {
		case bool:
			return v
		case float64:
			return v != 0
		}
		return false
	}
	c := optim.Config{
		Algorithm: optim.Algorithm(r.Opt), Momentum: set("momentum"), WeightDecay: set("weight_decay"),
		AMSGrad: set("amsgrad"),
	}
	switch {
	case set("fused"):
		c.Implementation = optim.Fused
	case r.Args["foreach"] == false:
		c.Implementation = optim.SingleTensor
	}
	if _, given := r.Args["weight_decay"]; !given {
		c.WeightDecay = c.Algorithm == optim.AdamW // its default is not zero
	}
	return c
}

// unchosen reports whether an option is set, or an optimizer taken, that no case can ask for.
func (r *recording) unchosen() bool {
	for _, option := range []string{"nesterov", "centered", "maximize", "capturable", "decoupled_weight_decay"} {
		if r.Args[option] == true {
			return true
		}
	}
	return r.Opt == "ASGD" || r.Opt == "RMSprop" && r.Args["momentum"] != nil
}

// compare replays the three steps and returns the first difference.
func (r *recording) compare(t *testing.T, rules trace.Rules) string {
	tape := trace.New(opvectors.GPUs[r.GPU], rules, trace.Options{Warm: true})
	f := tape.Frame()
	d := map[string]trace.DType{"f32": trace.F32, "f16": trace.F16, "bf16": trace.BF16}[r.DType]
	var params []*trace.Tensor
	for _, shape := range r.Params {
		p := f.Bind(tape.New("parameter", program.Weights, d, shape...)).Leaf()
		p.SetGrad(tape.New("grad", program.Gradients, d, shape...))
		params = append(params, p)
	}
	rec := opvectors.NewRecorder(tape)
	o, err := optim.New(tape, r.config(), nil, params)
	require.NoError(t, err)
	if diff := opvectors.Difference("init", r.Init, rec.Events()); diff != "" {
		return diff
	}
	for i, want := range []steps{r.Step1, r.Step2, r.Step3} {
		o.Step()
		if want == nil { // "=step2"
			want = r.Step2
		}
		if diff := opvectors.Difference(fmt.Sprintf("step %d", i+1), want, rec.Events()); diff != "" {
			return diff
		}
	}
	return ""
}

// TestOptimizersAllocateAsPyTorchDoes replays every recording, event for event.
func TestOptimizersAllocateAsPyTorchDoes(t *testing.T) {
	for _, release := range []string{"2.11", "2.15"} {
		s, err := stack.Lookup(release)
		require.NoError(t, err)
		for _, r := range load(t, release) {
			t.Run(fmt.Sprintf("%s %s %v %s", release, r.Opt, r.Args, r.DType), func(t *testing.T) {
				if r.Opt == "LBFGS" {
					t.Skip("recorded where every value reads zero, which for LBFGS decides what it keeps")
				}
				if r.unchosen() {
					t.Skip("no case can ask for this")
				}
				require.Empty(t, r.compare(t, s.Rules()))
			})
		}
	}
}
