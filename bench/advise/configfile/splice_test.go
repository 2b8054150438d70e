package configfile

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const naics = `# training of the encoder
defaults:
  - _self_

data_loader:
  batch_size: 4   # anchors
  tokenization: {max_length: 512, padding: 'max_length'}

training:
  learning_rate: 2e-4
  trainer:
    precision: "16-mixed"  # Lightning's word
    devices: 1
    accumulate_grad_batches: 4
    callbacks:
      - a
`

func TestYAMLEditsChangeTheirLineAndNothingElse(t *testing.T) {
	for _, c := range []struct {
		name, data, path, want string
		value                  any
		create                 bool
	}{
		{
			"number with comment", naics, "data_loader.batch_size",
			strings.Replace(naics, "batch_size: 4 ", "batch_size: 46 ", 1), int64(46), false,
		},
		{
			"double quotes", naics, "training.trainer.precision",
			strings.Replace(naics, `"16-mixed"`, `"bf16-mixed"`, 1),
			"bf16-mixed", false,
		},
		{
			"single quotes in braces", naics, "data_loader.tokenization.padding",
			strings.Replace(naics, `'max_length'`, `'it''s'`, 1), "it's", false,
		},
		{
			"number in braces", naics, "data_loader.tokenization.max_length", strings.Replace(naics, "512", "128", 1),
			int64(128), false,
		},
		{
			"float becomes integer", naics, "training.learning_rate", strings.Replace(naics, "2e-4", "1", 1),
			int64(1), false,
		},
		{"item of a list", naics, "training.trainer.callbacks.0", strings.Replace(naics, "- a", "- b", 1), "b", false},
		{"unchanged", naics, "training.trainer.devices", naics, int64(1), false},
		{"new key in a block", naics, "training.trainer.strategy", naics + "    strategy: ddp\n", "ddp", true},
		{
			"new key in the middle", naics, "data_loader.workers",
			strings.Replace(naics, "'max_length'}\n", "'max_length'}\n  workers: 2\n", 1), int64(2), true,
		},
		{
			"new key in braces", naics, "data_loader.tokenization.lower",
			strings.Replace(naics, "{max", "{lower: true, max", 1), true, true,
		},
		{
			"new group in a block", "a: 1\nb:\n  c: 1\nd: 1\n", "b.e.f.g",
			"a: 1\nb:\n  c: 1\n  e:\n    f:\n      g: 5\nd: 1\n", int64(5), true,
		},
		{"new group at the end, CRLF", "a: 1\r\nb: 2", "c.d", "a: 1\r\nb: 2\r\nc:\r\n  d: true", true, true},
		{"new group in braces", "a: {b: 1}\n", "a.c.d", "a: {c: {d: x}, b: 1}\n", "x", true},
		{"new key in empty braces", "a: {}\n", "a.b", "a: {b: 1}\n", int64(1), true},
		{"no last line break", "a: 1", "b", "a: 1\nb: 2", int64(2), true},
		{"CRLF", "a: 1\r\nb: x # c\r\n", "b", "a: 1\r\nb: z # c\r\n", "z", false},
		{"CRLF, new key", "a: 1\r\nb: x\r\n", "c", "a: 1\r\nb: x\r\nc: true\r\n", true, true},
		{"CR only", "a: 1\rb: 2\r", "b", "a: 1\rb: 3\r", int64(3), false},
		{"byte order mark", "\ufeffa: 1\n", "a", "\ufeffa: 2\n", int64(2), false},
		{
			"characters of several bytes", "ä: 1\nü: {é: 'ß', b: 2} # ö\n", "ü.b", "ä: 1\nü: {é: 'ß', b: 3} # ö\n",
			int64(3), false,
		},
		{"nothing yet", "a:\nb: 1\n", "a", "a: 5\nb: 1\n", int64(5), false},
		{"null", "a: null\nb: ~\n", "b", "a: null\nb: true\n", true, false},
		{"nothing in braces", "a: {b: , c: 1}\n", "a.b", "a: {b: 2, c: 1}\n", int64(2), false},
		{"anchor nobody repeats", "a: &x 1\n", "a", "a: &x 2\n", int64(2), false},
		{"tag", "a: !!int 1\n", "a", "a: !!int 2\n", int64(2), false},
		{"alias", "x: &x 1\na: *x\n", "a", "x: &x 1\na: 2\n", int64(2), false},
		{
			"override of a merged key", "x: &x {b: 1}\na:\n  <<: *x\n  c: 1\n", "a.b",
			"x: &x {b: 1}\na:\n  <<: *x\n  c: 1\n  b: 2\n", int64(2), false,
		},
		{"text that looks like a number", "a: x\n", "a", "a: \"16\"\n", "16", false},
		{"text that old readers take for no", "a: x\n", "a", "a: \"no\"\n", "no", false},
		{"precision as a number", "precision: 16\n", "precision", "precision: 16-mixed\n", "16-mixed", false},
		{"old yes", "a: yes\n", "a", "a: false\n", false, false},
		{"key with a dot", "a.b: 1\n", `"a.b"`, "a.b: 2\n", int64(2), false},
		{"document marks", "---\na: 1\n...\n", "a", "---\na: 2\n...\n", int64(2), false},
		{"tabs before a comment", "a: 1\t# x\n", "a", "a: 2\t# x\n", int64(2), false},
	} {
		if c.name == "precision as a number" {
			c.want = "precision: \"16-mixed\"\n"
		}
		got, err := Splice(YAML, []byte(c.data), []Edit{{Path: c.path, Value: c.value, Create: c.create}})
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, string(got), c.name)
	}
}

func TestYAMLThatCannotBeChangedSafelyIsRefused(t *testing.T) {
	for _, c := range []struct {
		data, path, want string
		value            any
	}{
		{"", "a", "empty", int64(1)},
		{"# only\n", "a", "empty", int64(1)},
		{"a: 1\n", "b", `there is no key "b"`, int64(1)},
		{"a: 1\n", "b.c", `there is no key "b"`, int64(1)},
		{"a: 1\n", "a.c", `"a" has no keys`, int64(1)},
		{"a: [1, 2]\n", "a.2", "2 items", int64(1)},
		{"a: [1, 2]\n", "a", "a list", int64(1)},
		{"a: {b: 1}\n", "a", "a group of keys", int64(1)},
		{"a: auto\n", "a", `is "auto" (a text), not a number`, int64(1)},
		{"a: '4'\n", "a", `is "4" (a text), not a number`, int64(1)},
		{"a: 4\n", "a", "not a yes or no", true},
		{"a: ${b}\n", "a", "another key decides", int64(1)},
		{"a: 1\na: 2\n", "a", "a second time", int64(1)},
		{"a: 1\n---\na: 2\n", "a", "several YAML documents", int64(1)},
		{"a: &x 1\nb: *x\n", "a", "line 2 repeats", int64(2)},
		{"a: &x {c: 1}\nb: *x\n", "a.c", "line 2 repeats", int64(2)},
		{"a: &x {c: 1}\nb: *x\n", "b.c", "change it where it stands", int64(2)},
		{"a: |\n  text\n", "a", "several lines", "x"},
		{"a: 'x\n  y'\n", "a", "several lines", "x"},
		{"a: x\n  y\n", "a", "several lines", "x"},
		{"a: [\n", "a", "yaml", int64(1)},
		{"a: \xff\n", "a", "UTF-8", int64(1)},
		{"a: 1\n", "a..b", "empty", int64(1)},
		{"a: 1\n", `"a`, `a closing "`, int64(1)},
		{"a: x\n", "a", "characters", "x\ny"},
	} {
		_, err := Splice(YAML, []byte(c.data), []Edit{{Path: c.path, Value: c.value}})
		require.ErrorContains(t, err, c.want, "%q %s", c.data, c.path)
	}
}

func TestMissingKeyOfTheDefaultStaysMissing(t *testing.T) {
	for _, path := range []string{"b", "c.d"} {
		got, err := Splice(YAML, []byte("a: 1\n"), []Edit{{Path: path, Value: false, Default: false, Create: true}})
		require.NoError(t, err)
		require.Equal(t, "a: 1\n", string(got))
	}
	got, err := Splice(YAML, []byte("a: 1\n"), []Edit{{Path: "b", Value: true, Default: false, Create: true}})
	require.NoError(t, err)
	require.Equal(t, "a: 1\nb: true\n", string(got))
	got, err = Splice(YAML, []byte("a: 1\n"), []Edit{{Path: "c.d", Value: true, Default: false, Create: true}})
	require.NoError(t, err)
	require.Equal(t, "a: 1\nc:\n  d: true\n", string(got))
}

// In every format the error says what there is, and what to do.
func TestMissingKeysSayWhatThereIs(t *testing.T) {
	for f, text := range map[Format]string{
		YAML: "train: {batch_size: 4, steps: 2}\n",
		TOML: "[train]\nbatch_size = 4\nsteps = 2\n", JSON: `{"train": {"batch_size": 4, "steps": 2}}`,
	} {
		_, err := Splice(f, []byte(text), []Edit{{Path: "train.batchsize", Value: int64(8)}})
		require.EqualError(t, err,
			`train.batchsize: there is no key "train.batchsize" (there are batch_size, steps); add it to the file, or name another with --map`, f)
		_, err = Splice(f, []byte(text), []Edit{{Path: "training.batch.size", Value: int64(8)}})
		require.EqualError(t, err,
			`training.batch.size: there is no key "training" (there are train); add it to the file, or name another with --map`, f)
	}
}

func TestAllFailedEditsAreNamed(t *testing.T) {
	_, err := Splice(YAML, []byte("a: 1\n"),
		[]Edit{{Path: "b", Value: int64(1)}, {Path: "a", Value: int64(2)}, {Path: "c", Value: int64(1)}})
	require.ErrorContains(t, err, `b: there is no key "b"`)
	require.ErrorContains(t, err, `c: there is no key "c"`)
	require.NotContains(t, err.Error(), "a: ")
}

const pyproject = `# config
title = "x"

[training] # here
batch_size = 32	# samples
amp = true
name = 'lit'
loader = { workers = 2, "pin.memory" = false }
rate = 1_000.5
opt.betas = [0.9, 0.99]

[[stage]]
epochs = 1
`

func TestTOMLEditsChangeTheirLineAndNothingElse(t *testing.T) {
	for _, c := range []struct {
		path, from, to string
		value          any
	}{
		{"training.batch_size", "= 32", "= 64", int64(64)},
		{"training.amp", "= true", "= false", false},
		{"training.name", "'lit'", "'bf16'", "bf16"},
		{"title", `"x"`, `"a \"b\""`, `a "b"`},
		{"training.loader.workers", "workers = 2", "workers = 12", int64(12)},
		{`training.loader."pin.memory"`, "= false", "= true", true},
		{"training.rate", "1_000.5", "7", int64(7)},
		{"training.amp", "", "", true},
	} {
		got, err := Splice(TOML, []byte(pyproject), []Edit{{Path: c.path, Value: c.value}})
		require.NoError(t, err, c.path)
		require.Equal(t, strings.Replace(pyproject, c.from, c.to, 1), string(got), c.path)
	}
	for path, want := range map[string]string{
		"training.none": "no key", "stage.epochs": "list of tables", "training.opt.betas": "not a single value",
		"training": "a group of keys", "training.amp.x": "no key",
	} {
		_, err := Splice(TOML, []byte(pyproject), []Edit{{Path: path, Value: int64(1)}})
		require.ErrorContains(t, err, want, path)
	}
	_, err := Splice(TOML, []byte("a = \n"), []Edit{{Path: "a", Value: int64(1)}})
	require.ErrorContains(t, err, "line 1")
}

const settings = `{
	"model": {"name": "a \"b\" \\", "layers": 2},
  "train" : { "batch": 8 , "amp":null, "on": true, "deep": [1, {"batch": 3}] }
}
`

func TestJSONEditsChangeTheirValueAndNothingElse(t *testing.T) {
	for _, c := range []struct {
		path, from, to string
		value          any
	}{
		{"train.batch", `"batch": 8 ,`, `"batch": 46 ,`, int64(46)},
		{"train.amp", "null", `"fp16"`, "fp16"},
		{"train.on", "true", "false", false},
		{"model.name", `"a \"b\" \\"`, `"c"`, "c"},
		{"model.layers", "", "", int64(2)},
	} {
		got, err := Splice(JSON, []byte(settings), []Edit{{Path: c.path, Value: c.value}})
		require.NoError(t, err, c.path)
		require.Equal(t, strings.Replace(settings, c.from, c.to, 1), string(got), c.path)
	}
	for path, want := range map[string]string{
		"train.none": "no key", "train.deep": "a list", "model": "an object", "train.on": "not a number",
	} {
		_, err := Splice(JSON, []byte(settings), []Edit{{Path: path, Value: int64(1)}})
		require.ErrorContains(t, err, want, path)
	}
	for _, bad := range []string{"", "{", `{"a":1} x`, `{"a":1,"a":2}`} {
		_, err := Splice(JSON, []byte(bad), []Edit{{Path: "a", Value: int64(1)}})
		require.Error(t, err, bad)
	}
}

func TestItemsAreAddedToLists(t *testing.T) {
	for _, c := range []struct{ name, data, want string }{
		{"no list", "a: 1\n", "a: 1\nplugins:\n  - x.Y\n"},
		{"no list, no last line break", "a: 1", "a: 1\nplugins:\n  - x.Y"},
		{"no list, braces", "{a: 1}\n", "{plugins: [x.Y], a: 1}\n"},
		{"nothing in it", "plugins:\na: 1\n", "plugins: [\"x.Y\"]\na: 1\n"},
		{"brackets", "plugins: [b] # c\n", "plugins: [x.Y, b] # c\n"},
		{"empty brackets", "plugins: []\n", "plugins: [x.Y]\n"},
		{"a line each", "plugins:\n  - b # c\n  - d\n\na: 1\n", "plugins:\n  - b # c\n  - d\n  - x.Y\n\na: 1\n"},
		{"no indent, CRLF", "plugins:\r\n- b\r\na: 1\r\n", "plugins:\r\n- b\r\n- x.Y\r\na: 1\r\n"},
		{"at the end", "plugins:\n  - b", "plugins:\n  - b\n  - x.Y"},
		{"groups", "plugins:\n  - b: 1\n    c: 2\na: 1\n", "plugins:\n  - b: 1\n    c: 2\n  - x.Y\na: 1\n"},
		{"there already", "plugins:\n  - b\n  - 'x.Y'\n", "plugins:\n  - b\n  - 'x.Y'\n"},
	} {
		got, err := Splice(YAML, []byte(c.data), []Edit{{Path: "plugins", Value: "x.Y", Create: true, Item: true}})
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, string(got), c.name)
	}
	for want, data := range map[string]string{
		"line 1 has 1 there, not a list":       "plugins: 1\n",
		"which line 2 repeats":                 "plugins: &p [b]\nother: *p\n",
		"add x.Y to the list by hand":          "base: &b\n  plugins: [b]\n<<: *b\n",
		"add x.Y to it by hand: vprof adds to": `{"plugins": "b"}`,
	} {
		format := YAML
		if data[0] == '{' {
			format = JSON
		}
		_, err := Splice(format, []byte(data), []Edit{{Path: "plugins", Value: "x.Y", Create: true, Item: true}})
		require.ErrorContains(t, err, want)
	}
}

func TestKeysAreAddedToJSON(t *testing.T) {
	for _, c := range []struct {
		data, path, want string
		value            any
	}{
		{`{"a": 1}`, "b", `{"a": 1, "b": true}`, true},
		{"{\n  \"a\": {\"c\": [1, {}]}\n}\n", "b", "{\n  \"a\": {\"c\": [1, {}]},\n  \"b\": 2\n}\n", int64(2)},
		{"{\n\t\"a\": {\n\t\t\"c\": 1\n\t}\n}", "a.d", "{\n\t\"a\": {\n\t\t\"c\": 1,\n\t\t\"d\": \"x\"\n\t}\n}", "x"},
		{`{}`, "a.b", `{"a": {"b": 1}}`, int64(1)},
		{`{"a": {}}`, "a.b.c", `{"a": {"b": {"c": 1}}}`, int64(1)},
		{`{"a": 1}`, "a", `{"a": 2}`, int64(2)},
	} {
		got, err := Splice(JSON, []byte(c.data), []Edit{{Path: c.path, Value: c.value, Create: true}})
		require.NoError(t, err, c.data)
		require.Equal(t, c.want, string(got))
	}
	for _, data := range []string{`[1]`, `{"a": 1}`, `{"a": [1]}`, `{"a": {}, "a": {}}`} {
		_, err := Splice(JSON, []byte(data), []Edit{{Path: "a.b", Value: int64(1), Create: true}})
		require.ErrorContains(t, err, "a.b: cannot be added safely to this file; set it to 1 by hand")
	}
}
