package aten

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/opvectors"
)

// memoryCall is a line of testdata/recorded-2.11.jsonl.
type memoryCall struct {
	Op   string   `json:"op"`
	Args [][2]any `json:"args"`
	// Result is the index of the result whose gradient comes in; the others are released.
	Result            int    `json:"result"`
	Forward, Backward string // "+BYTES" and "-BYTES", in order
}

// TestOperatorsAllocateAsRecorded has calls as PyTorch 2.11's build for CUDA makes them over a driver and libraries
// that answer and compute nothing: its own allocations and frees, in order. What a library alone can size (workspaces
// of cuSOLVER) is not in the lists. The incoming gradient is as large as the result; arguments are held by their caller
// and want gradients.
func TestOperatorsAllocateAsRecorded(t *testing.T) {
	release, err := stack.Lookup("2.11")
	require.NoError(t, err)
	f, err := os.Open("testdata/recorded-2.11.jsonl")
	require.NoError(t, err)
	defer f.Close()
	calls := 0
	for lines := bufio.NewScanner(f); lines.Scan(); calls++ {
		var c memoryCall
		require.NoError(t, json.Unmarshal(lines.Bytes(), &c), lines.Text())
		op, ok := ByTarget("torch.ops.aten." + c.Op)
		require.True(t, ok, c.Op)
		tape := trace.New(opvectors.GPUs["rtx-5060-ti"], release.Rules(), trace.Options{Warm: true})
		frame := tape.Frame()
		args, err := op.Bind(argsOf(t, frame, c.Args)...)
		require.NoError(t, err, lines.Text())
		rec := opvectors.NewRecorder(tape)
		events := &inBytes{rec: rec}
		values, err := op.Call(tape, args)
		require.NoError(t, err, lines.Text())
		out := tensorsOf(values)
		result := frame.Bind(out[c.Result])
		frame.Discard(out...)
		require.Equal(t, c.Forward, events.since(), "forward of %s", lines.Text())
		if c.Backward == "" {
			continue
		}
		grad := frame.Bind(result.NewGradient())
		events.since()
		trace.Backward([]*trace.Tensor{result}, []*trace.Tensor{grad})
		require.Equal(t, c.Backward, events.since(), "backward of %s", lines.Text())
	}
	require.NotZero(t, calls)
}

var tensorText = regexp.MustCompile(`^(f32|c64|i64|plain)\[([\d,]*)\]$`)

// argsOf makes the arguments of a recorded call: "f32[4,8]" is a tensor that wants a gradient,
// "plain[16]" one of float32 that does not.
func argsOf(t *testing.T, f *trace.Frame, args [][2]any) []Arg {
	var out []Arg
	for _, a := range args {
		name, value := a[0].(string), a[1]
		switch v := value.(type) {
		case float64:
			if v == float64(int64(v)) {
				value = int64(v)
			}
		case string:
			if m := tensorText.FindStringSubmatch(v); m != nil {
				var shape []int64
				require.NoError(t, json.Unmarshal([]byte("["+m[2]+"]"), &shape))
				d := map[string]trace.DType{
					"f32": trace.F32, "c64": trace.C64, "i64": trace.I64,
					"plain": trace.F32,
				}[m[1]]
				x := f.Tape().New("x", program.Batch, d, shape...)
				if m[1] == "f32" || m[1] == "c64" {
					x = x.Leaf().Clone()
				}
				value = f.Bind(x)
			}
		case []any:
			var ints []int64
			for _, n := range v {
				ints = append(ints, int64(n.(float64)))
			}
			value = ints
		}
		out = append(out, Arg{name, value})
	}
	return out
}

// inBytes has events with the bytes of what is freed.
type inBytes struct {
	rec   *opvectors.Recorder
	sizes []string
}

func (b *inBytes) since() string {
	var out []string
	for _, e := range b.rec.Events() {
		var id int
		switch {
		case e[0] == '+':
			b.sizes = append(b.sizes, e[1:])
		case strings.HasPrefix(e, "-x"):
			e = "-" + e[2:]
		default:
			_, err := fmt.Sscan(e[1:], &id)
			if err != nil {
				panic(err)
			}
			e = "-" + b.sizes[id]
		}
		out = append(out, e)
	}
	return strings.Join(out, " ")
}
