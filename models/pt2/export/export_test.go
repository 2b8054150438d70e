package export_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/models/pt2/export"
)

// program is a model.json: one addition of an input and a parameter.
const program = `{"graph_module": {"graph": {
	"inputs": [{"as_tensor": {"name": "p_w"}}, {"as_tensor": {"name": "x"}}],
	"outputs": [{"as_tensor": {"name": "y"}}],
	"nodes": [{"target": "torch.ops.aten.add.Tensor", "inputs": [
		{"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1},
		{"name": "other", "arg": {"as_tensor": {"name": "p_w"}}, "kind": 1}],
		"outputs": [{"as_tensor": {"name": "y"}}],
		"metadata": {"stack_trace": "File \"m.py\", line 3, in forward\n    y = x + self.w", "nn_module_stack": "L__self__,,m.Model"}}],
	"tensor_values": {
		"p_w": {"dtype": 7, "sizes": [{"as_int": 4}], "strides": [{"as_int": 1}], "requires_grad": true},
		"x": {"dtype": 7, "sizes": [{"as_expr": {"expr_str": "Symbol('s0', positive=True)", "hint": null}}, {"as_int": 4}]},
		"y": {"dtype": 7, "sizes": [{"as_expr": {"expr_str": "Symbol('s0')"}}, {"as_int": 4}]}},
	"sym_int_values": {}, "is_single_tensor_return": false},
	"signature": {
		"input_specs": [{"parameter": {"arg": {"name": "p_w"}, "parameter_name": "w"}}, {"user_input": {"arg": {"as_tensor": {"name": "x"}}}}],
		"output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "y"}}}}]},
	"module_call_graph": [{"fqn": "", "signature": null}]},
	"range_constraints": {"s0": {"min_val": 2, "max_val": 64}},
	"schema_version": {"major": 8, "minor": 17}, "torch_version": "2.11.0"}`

// archive returns a zip of names and contents.
func archive(t testing.TB, entries ...string) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(entries); i += 2 {
		w, err := z.Create(entries[i])
		require.NoError(t, err)
		_, err = w.Write([]byte(entries[i+1]))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return b.Bytes()
}

func read(data []byte) (*export.Program, error) {
	return export.Read(bytes.NewReader(data), int64(len(data)))
}

func TestProgramsAreRead(t *testing.T) {
	p, err := read(archive(t, "m/models/model.json", program, "m/archive_version", "0"))
	require.NoError(t, err)
	require.Equal(t, "2.11.0", p.Torch)
	require.Equal(t, "m.Model", p.Class)
	require.Equal(t, map[string]export.Range{"s0": {Min: 2, Max: 64}}, p.Ranges)
	require.Len(t, p.Inputs, 2)
	require.Equal(t, "w", p.Inputs[0].Name)
	require.Equal(t, []export.Size{{Int: 1}}, p.Inputs[0].Strides)
	require.Equal(t, export.UserInput, p.Inputs[1].Role)
	require.Equal(t, "m.py:3:forward", p.Nodes[0].Line)
	require.Equal(t, []export.Result{{Value: 2, Type: export.Float, Dims: 2}}, p.Results)
	n, err := p.Inputs[1].Sizes[0].Eval(map[string]int64{"s0": 16})
	require.NoError(t, err)
	require.EqualValues(t, 16, n)
}

func TestResultsHaveTheNamesOfKeysAndFields(t *testing.T) {
	for context, name := range map[string]string{
		`["scores"]`: "scores", `[["loss"], []]`: "loss", `[["loss"], ["scores"]]`: "loss", `"a.B"`: "0",
	} {
		leaf := `{"type": null, "context": null, "children_spec": []}`
		spec := fmt.Sprintf(`[1, {"type": "m.Out", "context": %q, "children_spec": [%s]}]`, context, leaf)
		named := strings.Replace(program, `"signature": null`, fmt.Sprintf(`"signature": {"out_spec": %q}`, spec), 1)
		p, err := read(archive(t, "m/models/model.json", named, "m/archive_version", "0"))
		require.NoError(t, err)
		require.Equal(t, name, p.Results[0].Name, context)
	}
}

func TestComplexNumbersAreNumbers(t *testing.T) {
	tensor, number := `{"name": "other", "arg": {"as_tensor": {"name": "p_w"}}`, `{"as_complex": {"real": 0.0, "imag": 1.0}}`
	p, err := read(archive(t, "m/models/model.json",
		strings.Replace(program, tensor, `{"name": "other", "arg": `+number, 1), "m/archive_version", "0"))
	require.NoError(t, err)
	require.Equal(t, export.Argument{Kind: export.Imaginary}, p.Nodes[0].Inputs[1].Argument)
}

// TestBadFilesAreRefused spoils a file in each possible way, each said in one sentence.
func TestBadFilesAreRefused(t *testing.T) {
	whole := archive(t, "m/models/model.json", program)
	change := func(old, new string) []byte {
		require.Contains(t, program, old)
		return archive(t, "m/models/model.json", strings.Replace(program, old, new, 1))
	}
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "is empty"},
		{"text", []byte("hello, world"), "is not an exported program"},
		{"pickle", []byte("\x80\x02}q\x00(X\x01\x00"), "is a pickle"},
		{"ExecuTorch", []byte("\x20\x00\x00\x00ET12\x00\x00"), "is an ExecuTorch program"},
		{"truncated zip", whole[:len(whole)/2], "ends in the middle"},
		{"other zip", archive(t, "a.txt", "x"), "without models/model.json"},
		{"TorchScript", archive(t, "m/code/__torch__.py", "x", "m/data.pkl", "y"), "is TorchScript"},
		{"checkpoint", archive(t, "m/data.pkl", "y"), "is a checkpoint"},
		{"old", archive(t, "serialized_exported_program.json", "{}"), "torch before 2.7"},
		{"bomb", archive(t, "m/models/model.json", strings.Repeat(" ", 129<<20)), "unpacks to more than 128 MiB"},
		{"no JSON", archive(t, "m/models/model.json", "PK"), "invalid character 'P'"},
		{"half JSON", archive(t, "m/models/model.json", program[:700]), "ends in the middle"},
		{"no schema", archive(t, "m/models/model.json", "{}"), "schema_version"},
		{"no graph", archive(t, "m/models/model.json", `{"schema_version": {"major": 8}}`), "graph_module"},
		{"other schema", change(`"major": 8`, `"major": 9`), "version 9 of the export schema"},
		{"list", archive(t, "m/models/model.json", "[]"), "byte 0: there is [ where { is expected; export the model again"},
		{"deep", archive(t, "m/models/model.json",
			`{"graph_module": {"graph": {"inputs": [`+strings.Repeat(`{"as_optional_tensor":`, 1000)), "nested more than"},
		{
			"many values", archive(t, "m/models/model.json", `{"graph_module": {"graph": {"inputs": [`+
				strings.Repeat("{},", 5_000_000)+`{}]}}}`),
			"more than 3000000 values",
		},
		{
			"missing tensor", change(
				`"p_w": {"dtype": 7, "sizes": [{"as_int": 4}], "strides": [{"as_int": 1}], "requires_grad": true},`, ""),
			"tensor_values has no entry for w",
		},
		{"unmade", change(`{"name": "self", "arg": {"as_tensor": {"name": "x"}}`,
			`{"name": "self", "arg": {"as_tensor": {"name": "z"}}`), "reads z, which no earlier node computes"},
		{"circle", change(`{"name": "self", "arg": {"as_tensor": {"name": "x"}}`,
			`{"name": "self", "arg": {"as_tensor": {"name": "y"}}`), "reads y"},
		{"twice", change(`"outputs": [{"as_tensor": {"name": "y"}}],
		"metadata"`, `"outputs": [{"as_tensor": {"name": "x"}}],
		"metadata"`), "models/model.json in the archive: node 0 (torch.ops.aten.add.Tensor) computes x, which another node has computed; export the model again"},
		{"no result", change(`"outputs": [{"as_tensor": {"name": "y"}}],
	"nodes"`, `"outputs": [{"as_tensor": {"name": "q"}}],
	"nodes"`), "forward returns q"},
		{
			"negative size", change(`"sizes": [{"as_int": 4}]`, `"sizes": [{"as_int": -4}]`),
			"dimension of size -4: need 0 to 1099511627776",
		},
		{"absurd size", change(`"sizes": [{"as_int": 4}]`,
			`"sizes": [{"as_int": 4000000000000000000}]`), "dimension of size 4000000000000000000: need 0 to 1099511627776"},
		{"large number", change(`"sizes": [{"as_int": 4}]`,
			`"sizes": [{"as_int": 40000000000000000000}]`), "models/model.json in the archive: byte 610: \"40000000000000000000\" is not a whole number of 64 bits"},
		{"expression", change(`"Symbol('s0', positive=True)"`, `"Symbol('s0'"`), "models/model.json in the archive: byte 715: the expression \"Symbol('s0'\" of a size cannot be read: a closing parenthesis is missing; export the model again"},
		{
			"inputs", change(`{"parameter": {"arg": {"name": "p_w"}, "parameter_name": "w"}},`, ""),
			"2 inputs, but its signature names 1; export the model again",
		},
		{"extra", archive(t, "m/models/model.json", program, "m/extra/vprof.json", `{"version": 7}`), "version 7"},
		{"no extra", archive(t, "m/models/model.json", program, "m/extra/vprof.json", `[`), "extra/vprof.json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := read(c.data)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "\n")
			require.Less(t, len(err.Error()), 400)
		})
	}
	_, err := export.Open(filepath.Join(t.TempDir(), "absent.pt2"))
	require.ErrorContains(t, err, "does not exist")
}

func TestTruncatedProgramsNeverRead(t *testing.T) {
	for n := range len(program) - 1 {
		_, err := export.Decode([]byte(program[:n]))
		require.Error(t, err, n)
	}
}

// TestDescriptionsKeepPrograms reads every model of the test data, and what is written of it in a result.
func TestDescriptionsKeepPrograms(t *testing.T) {
	files, err := filepath.Glob("../testdata/*.pt2")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		p, err := export.Open(f)
		require.NoError(t, err)
		text, err := p.Describe()
		require.NoError(t, err)
		require.Less(t, len(text), 300_000)
		again, err := export.Restore(text)
		require.NoError(t, err)
		require.Equal(t, p, again)
	}
}

func TestExpressions(t *testing.T) {
	at := map[string]int64{"s0": 6, "s1": 4}
	for text, want := range map[string]int64{
		"Integer(-3)": -3,
		"Mul(Integer(64), Symbol('s0', positive=True, integer=True))":                     384,
		"Add(Integer(1), Mul(Integer(2), Symbol('s1')), Symbol('s0'))":                    15,
		"FloorDiv(Add(Symbol('s0'), Integer(-1)), Integer(2))":                            2,
		"FloorDiv(Integer(-7), Integer(2))":                                               -4,
		"Mod(Symbol('s0'), Integer(4))":                                                   2,
		"Max(Integer(1), Symbol('s0'))":                                                   6,
		"Min(Integer(1), Symbol('s0'))":                                                   1,
		"Pow(Symbol('s1'), Integer(3))":                                                   64,
		"CeilToInt(IntTrueDiv(Symbol('s0'), Symbol('s1')))":                               2,
		"TruncToInt(Mul(Float('1.5', precision=53), ToFloat(Symbol('s0'))))":              9,
		"FloorToInt(Mul(Rational(Integer(1), Integer(4)), ToFloat(Symbol('s0'))))":        1,
		"Mul(Integer(-1), FloorDiv(Mul(Integer(-1), Symbol('s0')), Symbol('s1')))":        2,
		"PythonMod(Mul(Integer(-1), Symbol('s0')), Symbol('s1'))":                         2,
		"CeilDiv(Symbol('s0'), Symbol('s1'))":                                             2,
		"RoundToInt(IntTrueDiv(Symbol('s0'), Symbol('s1')))":                              2,
		"Abs(Add(Symbol('s1'), Mul(Integer(-1), Symbol('s0'))))":                          2,
		"CleanDiv(Mul(Symbol('s0'), Integer(4)), Integer(3))":                             8,
		"floor(OpaqueUnaryFn_sqrt(ToFloat(Add(Symbol('s0'), Symbol('s1'), Integer(7)))))": 4,
	} {
		e, err := export.ParseExpr(text)
		require.NoError(t, err, text)
		got, err := export.Size{Expr: e}.Eval(at)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"Symbol('u0')":                                               "the size u0 is unknown; capture the model again",
		"FloorDiv(Symbol('s0'), Integer(0))":                         "divided by 0",
		"Mul(Integer(4611686018427387904), Symbol('s0'))":            "a size of the graph is above 2^63",
		"Add(Integer(9223372036854775807), Symbol('s0'))":            "a size of the graph is above 2^63",
		"Pow(Symbol('s0'), Integer(99))":                             "a size of the graph is above 2^63",
		"ToFloat(Symbol('s0'))":                                      "not a whole number",
		"CeilToInt(Mul(Float('1e300'), ToFloat(Symbol('s0'))))":      "a size of the graph is above 2^63",
		"IntTrueDiv(Symbol('s0'), Add(Integer(1), Integer(-1)))":     "divided by 0",
		"Mod(ToFloat(Symbol('s0')), Integer(2))":                     "not a whole number",
		"RoundToInt(Pow(Float('-1.0'), Float('0.5', precision=53)))": "a size of the graph is above 2^63",
	} {
		e, err := export.ParseExpr(text)
		require.NoError(t, err, text)
		_, err = export.Size{Expr: e}.Eval(at)
		require.ErrorContains(t, err, want, text)
	}
	for _, text := range []string{
		"", "s0", "Foo(Integer(1))", "Add()", "Mod(Integer(1))", "Integer(x)", "Integer(1) 2",
		"Symbol('')", "Add(Integer(1)", strings.Repeat("Add(", 100) + "Integer(1)" + strings.Repeat(")", 100),
	} {
		_, err := export.ParseExpr(text)
		require.Error(t, err, text)
	}
}

// TestExpressionsAreWrittenAsTheyAreRead holds for any expression.
func TestExpressionsAreWrittenAsTheyAreRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var expr func(depth int) string
		expr = func(depth int) string {
			if depth == 0 || rapid.Bool().Draw(t, "leaf") {
				if rapid.Bool().Draw(t, "symbol") {
					return "Symbol('s0')"
				}
				return fmt.Sprintf("Integer(%d)", rapid.Int64Range(-9, 99).Draw(t, "n"))
			}
			f := rapid.SampledFrom([]string{"Add", "Mul", "Max", "FloorDiv", "Mod"}).Draw(t, "f")
			return f + "(" + expr(depth-1) + ", " + expr(depth-1) + ")"
		}
		text := expr(4)
		e, err := export.ParseExpr(text)
		require.NoError(t, err)
		require.Equal(t, text, e.String())
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(program))
	f.Add([]byte(strings.Replace(program, "8", "9", 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := export.Decode(data); err != nil {
			require.NotContains(t, err.Error(), "\n")
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add(archive(f, "m/models/model.json", program, "m/extra/vprof.json", `{"version":1,"dies":[[0,["y"]]]}`))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = read(data) })
}

func FuzzParseExpr(f *testing.F) {
	f.Add("Mul(Integer(64), Symbol('s77', positive=True, integer=True))")
	f.Add("FloorDiv(Add(Symbol('s0'), Float('1.5', precision=53)), Integer(2))")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := export.ParseExpr(text)
		if err != nil {
			return
		}
		_, _ = export.Size{Expr: e}.Eval(map[string]int64{"s0": 3, "s77": 8})
		_ = e.String()
	})
}

func FuzzRestore(f *testing.F) {
	p, err := read(archive(f, "m/models/model.json", program))
	require.NoError(f, err)
	text, err := p.Describe()
	require.NoError(f, err)
	f.Add(text)
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = export.Restore(data) })
}

func BenchmarkOpen(b *testing.B) {
	const file = "../testdata/diffusers-unet-sd15-small.pt2"
	info, err := os.Stat(file)
	require.NoError(b, err)
	b.SetBytes(info.Size())
	for b.Loop() {
		_, err := export.Open(file)
		require.NoError(b, err)
	}
}
