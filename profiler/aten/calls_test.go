package aten

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/opvectors"
)

var (
	callsFile  = flag.String("calls", "testdata/calls.jsonl.gz", "recorded calls to compare with")
	onlyTarget = flag.String("target", "", "look at operators whose target contains this alone")
	show       = flag.Int("show", 0, "print this many differences of each operator")
)

// recordedCall is a call of an ATen operator and what PyTorch 2.11 allocated and freed in it: "+BYTES" is an
// allocation, "-N" the end of the Nth. The gradients of the outputs are the first allocations of backward.
type recordedCall struct {
	Target   string            `json:"target"`
	Args     [][2]any          `json:"args"`
	In       []json.RawMessage `json:"in"`
	Grad     []int             `json:"grad"`
	Regime   string            `json:"regime"`
	Out      []json.RawMessage `json:"out"`
	Forward  []string          `json:"forward"`
	Backward []string          `json:"backward"`
}

func loadCalls(t testing.TB, path string) []*recordedCall {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		r, err = gzip.NewReader(f)
		require.NoError(t, err)
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<22)
	var out []*recordedCall
	for lines.Scan() {
		c := new(recordedCall)
		dec := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		dec.UseNumber() // 1 is an int, 1.0 a float
		require.NoError(t, dec.Decode(c), lines.Text())
		out = append(out, c)
	}
	require.NoError(t, lines.Err())
	return out
}

// input makes an argument: a fresh tensor or, if the order of its dimensions in memory is another, a permuted one.
func (c *recordedCall) input(f *trace.Frame, i int) *trace.Tensor {
	var shape []int64
	var name string
	var order []int
	raw := c.In[i]
	_ = json.Unmarshal(raw, &[]any{&shape, &name, new(any)})
	_ = json.Unmarshal(raw, &[]any{&shape, &name, &order})
	d := dtypeNamed(name)
	base := shape
	if order != nil {
		base = nil
		for _, k := range order {
			base = append(base, shape[k])
		}
	}
	x := f.Bind(f.Tape().New("input", program.Batch, d, base...))
	if c.Grad[i] == 1 && d >= trace.F16 {
		x = f.Bind(x.Leaf().Clone())
	}
	if order == nil {
		return x
	}
	inverse := make([]int, len(order))
	for i, k := range order {
		inverse[k] = i
	}
	return f.Bind(x.Permute(inverse...))
}

func dtypeNamed(name string) trace.DType {
	for d := trace.Bool; ; d++ {
		if d.String() == name {
			return d
		}
	}
}

// value makes an argument of what the file says.
func (c *recordedCall) value(v any, in []*trace.Tensor) Value {
	switch v := v.(type) {
	case map[string]any:
		switch {
		case v["t"] != nil:
			i, _ := v["t"].(json.Number).Int64()
			return in[i]
		case v["dtype"] != nil:
			return dtypeNamed(v["dtype"].(string))
		default:
			return MemoryFormat(v["format"].(string))
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		x, _ := v.Float64()
		return x
	case string:
		if strings.HasSuffix(v, "Infinity") {
			return math.Inf(1)
		}
		return v
	case []any:
		return c.listValue(v, in)
	default:
		return v
	}
}

func (c *recordedCall) listValue(list []any, in []*trace.Tensor) Value {
	var tensors []*trace.Tensor
	var ints []int64
	var floats []float64
	for _, e := range list {
		switch v := c.value(e, in).(type) {
		case *trace.Tensor:
			tensors = append(tensors, v)
		case nil:
			tensors = append(tensors, nil)
		case int64:
			ints, floats = append(ints, v), append(floats, float64(v))
		case float64:
			floats = append(floats, v)
		}
	}
	switch {
	case tensors != nil:
		return tensors
	case len(floats) > len(ints):
		return floats
	case ints == nil:
		return []int64{}
	default:
		return ints
	}
}

// compare records the call and returns the first difference, "" if there is none.
func (c *recordedCall) compare() string {
	op, ok := ByTarget(c.Target)
	if !ok {
		return "not in the table"
	}
	recorded, err := stack.Lookup("2.11")
	if err != nil {
		return err.Error()
	}
	t := trace.New(opvectors.GPUs["rtx-5060-ti"], recorded.Rules(), trace.Options{Warm: true})
	f := t.Frame()
	in := make([]*trace.Tensor, len(c.In))
	for i := range in {
		in[i] = c.input(f, i)
	}
	var given []Arg
	for _, a := range c.Args {
		given = append(given, Arg{a[0].(string), c.value(a[1], in)})
	}
	args, err := op.Bind(given...)
	if err != nil {
		return err.Error()
	}
	rec := opvectors.NewRecorder(t)
	var out []*trace.Tensor
	run := func() {
		values, e := op.Call(t, args)
		err = e
		out = tensorsOf(values)
		f.BindAll(out)
	}
	switch c.Regime {
	case "amp16":
		t.Autocast(trace.F16, run)
	case "ampbf":
		t.Autocast(trace.BF16, run)
	default:
		run()
	}
	if err != nil {
		return err.Error()
	}
	if d := opvectors.Difference("forward", c.Forward, rec.Events()); d != "" {
		return d
	}
	if d := c.outputs(out); d != "" {
		return d
	}
	return c.backward(out, rec)
}

func tensorsOf(values []Value) (out []*trace.Tensor) {
	for _, v := range values {
		switch v := v.(type) {
		case *trace.Tensor:
			out = append(out, v)
		case []*trace.Tensor:
			out = append(out, v...)
		}
	}
	return out
}

// outputs compares shapes, types and strides of the results.
func (c *recordedCall) outputs(out []*trace.Tensor) string {
	if len(out) != len(c.Out) {
		return fmt.Sprintf("%d results, want %d", len(out), len(c.Out))
	}
	for i, y := range out {
		var shape, strides []int64
		var name string
		if err := json.Unmarshal(c.Out[i], &[]any{&shape, &name, &strides}); err != nil {
			return err.Error()
		}
		same := slices.Equal(shape, y.Shape()) && name == y.DType().String()
		for d := range strides {
			same = same && (strides[d] == y.Strides()[d] || shape[d] == 1 || y.Numel() == 0)
		}
		if !same {
			return fmt.Sprintf("result %d is %v %v %s, want %v %v %s", i, y.Shape(), y.Strides(), y.DType(), shape,
				strides, name)
		}
	}
	return ""
}

func (c *recordedCall) backward(out []*trace.Tensor, rec *opvectors.Recorder) (diff string) {
	defer func() {
		if r := recover(); r != nil {
			diff = fmt.Sprint("panic in backward: ", r)
		}
	}()
	var roots, grads []*trace.Tensor
	for _, y := range out {
		if y.RequiresGrad() {
			roots, grads = append(roots, y), append(grads, y.NewGradient())
		}
	}
	if len(roots) > 0 && slices.Contains(c.Grad, 1) {
		trace.Backward(roots, grads)
	}
	return opvectors.Difference("backward", c.Backward, rec.Events())
}

func TestRecordedCallsAllocateAlike(t *testing.T) {
	shown, wrong, total := map[string]int{}, map[string]int{}, map[string]int{}
	for _, c := range loadCalls(t, *callsFile) {
		if !strings.Contains(c.Target, *onlyTarget) {
			continue
		}
		total[c.Target]++
		diff := c.compare()
		if diff == "" {
			continue
		}
		wrong[c.Target]++
		if shown[c.Target] < *show {
			shown[c.Target]++
			t.Logf("%s %v %s %s grad %v\n   %s", c.Target, c.Args, c.In, c.Regime, c.Grad, diff)
		}
	}
	for target, n := range wrong {
		t.Errorf("%s: %d of %d calls differ (-target and -show 3 show them)", target, n, total[target])
	}
}
