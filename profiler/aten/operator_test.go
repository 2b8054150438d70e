package aten

import (
	"bufio"
	"compress/gzip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/opvectors"
)

// published returns the schemas of PyTorch 2.11, as its native_functions.yaml has
// them, and of the operators of libraries, by name and overload.
func published(t testing.TB) map[string]string {
	f, err := os.Open("testdata/schemas-2.11.txt.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	all := map[string]string{}
	lines := bufio.NewScanner(z)
	for lines.Scan() {
		name, _, _ := strings.Cut(lines.Text(), "(")
		all["aten::"+name] = lines.Text()
	}
	require.NoError(t, lines.Err())
	vision, err := os.ReadFile("testdata/schemas-libraries.txt")
	require.NoError(t, err)
	for schema := range strings.Lines(string(vision)) {
		name, _, _ := strings.Cut(schema, "(")
		all[name] = strings.TrimSuffix(schema, "\n")
	}
	return all
}

func TestSchemasOfTheTableArePyTorchsOwn(t *testing.T) {
	want := published(t)
	for name, e := range index() {
		require.Equal(t, strings.ReplaceAll(want[name], `"`, "'"), e.text)
		require.Equal(t, name, e.operator().String())
	}
}

func TestOperatorsGoByNameAndByTarget(t *testing.T) {
	byName, ok := Lookup("aten::add", "Tensor")
	require.True(t, ok)
	byTarget, ok := ByTarget("torch.ops.aten.add.Tensor")
	require.True(t, ok)
	require.Same(t, byName, byTarget)
	require.True(t, Known("torch.ops.aten.layer_norm.default"))
	for _, target := range []string{"", "torch.ops.aten", "torch.ops.aten.unique_dim.default", "_operator.mul"} {
		require.False(t, Known(target), target)
	}
}

func call(t *testing.T, target string, args func(f *trace.Frame) []Arg) ([]Value, error) {
	t.Helper()
	op, ok := ByTarget("torch.ops.aten." + target)
	require.True(t, ok, target)
	tape := trace.New(opvectors.GPUs["rtx-5060-ti"], stack.Default().Rules(), trace.Options{Warm: true})
	f := tape.Frame()
	a, err := op.Bind(args(f)...)
	if err != nil {
		return nil, err
	}
	return op.Call(tape, a)
}

func input(f *trace.Frame, shape ...int64) *trace.Tensor {
	return f.Bind(f.Tape().New("input", program.Batch, trace.F32, shape...))
}

func TestCallsHaveDefaultsAndSeveralResults(t *testing.T) {
	out, err := call(t, "topk.default", func(f *trace.Frame) []Arg {
		return []Arg{{"self", input(f, 3, 50)}, {"k", int64(5)}}
	})
	require.NoError(t, err)
	require.Len(t, out, 2)
	require.Equal(t, []int64{3, 5}, out[1].(*trace.Tensor).Shape())
	require.Equal(t, trace.I64, out[1].(*trace.Tensor).DType())
}

func TestTheFirstTermMayBeANumber(t *testing.T) {
	for _, target := range []string{"add.Tensor", "sub.Tensor"} {
		out, err := call(t, target, func(f *trace.Frame) []Arg {
			return []Arg{{"self", int64(0)}, {"other", input(f, 3, 50)}}
		})
		require.NoError(t, err)
		require.Equal(t, []int64{3, 50}, out[0].(*trace.Tensor).Shape())
	}
}

func TestBadCallsAreErrors(t *testing.T) {
	for _, c := range []struct {
		target, want string
		args         func(f *trace.Frame) []Arg
	}{
		{"relu.default", `argument "self"; export the model again`, func(*trace.Frame) []Arg { return nil }},
		{"relu.default", `has no argument "x"`, func(f *trace.Frame) []Arg { return []Arg{{"x", input(f, 2)}} }},
		{"view.default", `operator aten::view, argument "size": the argument has the Go type string, but must be of type SymInt[]`, func(f *trace.Frame) []Arg {
			return []Arg{{"self", input(f, 2)}, {"size", "2"}}
		}},
		{"mm.default", "contradict each other", func(f *trace.Frame) []Arg {
			return []Arg{{"self", input(f, 2)}, {"mat2", input(f, 2)}}
		}},
	} {
		_, err := call(t, c.target, c.args)
		require.ErrorContains(t, err, c.want)
	}
}

// An export leaves out contiguous() of what was contiguous where it was exported.
func TestViewsCopyWhereStridesDoNotAllowThem(t *testing.T) {
	for _, permuted := range []bool{false, true} {
		out, err := call(t, "view.default", func(f *trace.Frame) []Arg {
			x := input(f, 3, 4, 5)
			if permuted {
				x = f.Bind(x.Permute(1, 0, 2))
			}
			return []Arg{{"self", x}, {"size", []int64{-1, 5}}}
		})
		require.NoError(t, err)
		require.Equal(t, []int64{12, 5}, out[0].(*trace.Tensor).Shape())
	}
}

func TestNonzerosAreCountedInADimension(t *testing.T) {
	for _, c := range []struct {
		dim  Value
		want []int64
	}{{nil, []int64{}}, {int64(1), []int64{3, 5}}} {
		out, err := call(t, "count_nonzero.default", func(f *trace.Frame) []Arg {
			return []Arg{{"self", input(f, 3, 4, 5)}, {"dim", c.dim}}
		})
		require.NoError(t, err)
		require.Equal(t, c.want, append([]int64{}, out[0].(*trace.Tensor).Shape()...))
	}
}
