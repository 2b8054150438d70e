package configfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// outside cuts off what two texts have in common at both ends.
func outside(a, b []byte) (from, to []byte) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}

// Whatever the document: an edit is refused, or reading the result gives the
// value, and one stretch of text within a line has changed.
func FuzzYAMLSplice(f *testing.F) {
	for _, s := range []string{
		naics, "a: 1\r\nb: 'x'", "a: &x 1\nb: *x", "a: {b: [1, {c: 2}]}", "? a\n: 1",
		"a: !!str 4", "- a: 1\n  b:\n  - c", "\ufeffa: 1", "a: |\n x", "a:\u0085b: 1",
	} {
		f.Add(s, "a", int64(7), "x", byte(0))
		f.Add(s, "a.b", int64(7), "no", byte(1))
		f.Add(s, "training.trainer.precision", int64(7), "bf16-mixed", byte(1))
		f.Add(s, "data_loader.new", int64(7), "", byte(2))
		f.Add(s, "0.b.0", int64(7), "", byte(3))
		f.Add(s, "a.new.group", int64(7), "", byte(4))
	}
	f.Fuzz(func(t *testing.T, doc, at string, n int64, word string, choice byte) {
		e := Edit{Path: at, Value: []any{n, word, n%2 == 0}[choice%3], Create: choice&4 != 0}
		got, err := Splice(YAML, []byte(doc), []Edit{e})
		if err != nil {
			require.NotContains(t, err.Error(), "goroutine")
			return
		}
		p, err := parsePath(at)
		require.NoError(t, err)
		root, err := parseYAML(bytes.TrimPrefix(got, []byte("\ufeff")))
		require.NoError(t, err)
		for _, key := range p {
			root = child(root, key)
			require.NotNil(t, root, "%s in\n%s", at, got)
		}
		var v any
		require.NoError(t, root.Decode(&v))
		switch want := e.Value.(type) {
		case int64:
			require.Equal(t, fmt.Sprint(want), fmt.Sprint(v))
		default:
			if b, isText := v.(string); isText && yaml11Boolean.MatchString(b) {
				return // an old yes is left as it is if it says the same
			}
			require.Equal(t, want, v)
		}
		_, added := outside([]byte(doc), got)
		if !e.Create {
			require.LessOrEqual(t, bytes.Count(added, []byte("\n")), 1) // one for an override
		}
	})
}

// child returns what a mapping has under a key, by itself or by a merge, or a list under a number.
func child(n *yaml.Node, key string) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.SequenceNode {
		var at int
		if _, err := fmt.Sscan(key, &at); err == nil && at < len(n.Content) {
			return n.Content[at]
		}
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func FuzzTOMLSplice(f *testing.F) {
	f.Add(pyproject, "training.batch_size", int64(1))
	f.Add("a.b = 1\n[a.c]\nd = '''x'''", "a.c.d", int64(1))
	f.Fuzz(func(t *testing.T, doc, at string, n int64) {
		for _, value := range []any{n, n%2 == 0, "x'\""} {
			// Splice compares what it reads; it must not panic or accept rubbish.
			if got, err := Splice(TOML, []byte(doc), []Edit{{Path: at, Value: value}}); err == nil {
				again, err := Splice(TOML, got, []Edit{{Path: at, Value: value}})
				require.NoError(t, err)
				require.Equal(t, string(got), string(again))
			}
		}
	})
}

func FuzzJSONSplice(f *testing.F) {
	f.Add(settings, "train.batch", int64(1))
	f.Add(`{"a":"\\\"","b":[{}]}`, "a", int64(1))
	f.Fuzz(func(t *testing.T, doc, at string, n int64) {
		for _, value := range []any{n, n%2 == 0, `x"\`} {
			edits := []Edit{{Path: at, Value: value, Create: n%3 == 0}}
			got, err := Splice(JSON, []byte(doc), edits)
			if err != nil {
				continue
			}
			require.True(t, json.Valid(got))
			again, err := Splice(JSON, got, edits)
			require.NoError(t, err)
			require.Equal(t, string(got), string(again))
		}
	})
}

// Documents of the kind that people write are not refused: nested blocks and
// braces, with quotes, comments and either line break.
func TestOrdinaryYAMLIsAlwaysChanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lineBreak := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "break")
		var lines, paths []string
		var olds []any
		var indent []string // keys above
		for i := range rapid.IntRange(1, 20).Draw(t, "lines") {
			depth := rapid.IntRange(0, len(indent)).Draw(t, "depth")
			indent = indent[:depth]
			key := fmt.Sprintf("%s%d", rapid.SampledFrom([]string{"batch", "größe", "a-b", "x_y"}).Draw(t, "key"), i)
			pad := strings.Repeat("  ", depth)
			comment := rapid.SampledFrom([]string{"", "  # a: b", " #x"}).Draw(t, "comment")
			if rapid.IntRange(0, 3).Draw(t, "group") == 0 {
				lines = append(lines, pad+key+":"+comment, pad+"  first: 1")
				indent = append(indent, key)
				continue
			}
			form := rapid.SampledFrom([]string{
				"4", "'q # q'", `"d \" d"`, "plain text", "{in: 5, other: x}", "true",
				"2e-4", "",
			}).Draw(t, "form")
			path := strings.Join(append(append([]string{}, indent...), key), ".")
			old := map[string]any{
				"4": int64(1), "2e-4": int64(1), "{in: 5, other: x}": int64(1), "true": false,
				"": int64(1),
			}[form]
			if old == nil {
				old = "new one"
			}
			if form[:min(1, len(form))] == "{" {
				path += ".in"
			}
			lines, paths, olds = append(lines, pad+key+": "+form+comment), append(paths, path), append(olds, old)
		}
		if len(paths) == 0 {
			return
		}
		doc := strings.Join(lines, lineBreak) + lineBreak
		at := rapid.IntRange(0, len(paths)-1).Draw(t, "at")
		got, err := Splice(YAML, []byte(doc), []Edit{{Path: paths[at], Value: olds[at]}})
		require.NoError(t, err, "%s in\n%s", paths[at], doc)
		before, after := strings.Split(doc, lineBreak), strings.Split(string(got), lineBreak)
		require.Len(t, after, len(before))
		differ := 0
		for i := range before {
			if !reflect.DeepEqual(before[i], after[i]) {
				differ++
			}
		}
		require.Equal(t, 1, differ)
	})
}
