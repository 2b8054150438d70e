package trainers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/vprof/vprof/internal/input"
)

// openDocument reads a configuration or a shell script; the file's suffix selects the format.
func openDocument(path string) (*document, error) {
	data, err := input.ReadUpTo(path, maxBytes+1)
	if at, failed := errors.AsType[*fs.PathError](err); failed {
		return nil, &input.FormatError{File: path, Reason: input.FileReason(at.Err)}
	}
	return parse(path, data)
}

// parse reads data in the format of the file's suffix: JSON, TOML, a shell script, or else YAML.
func parse(path string, data []byte) (*document, error) {
	d := &document{file: path}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	switch {
	case len(data) > maxBytes:
		return nil, d.fault(0, "", "has more than %d MiB; a configuration has not", maxBytes>>20)
	case !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0:
		return nil, d.fault(0, "", "is not UTF-8 text")
	}
	var err error
	switch strings.ToLower(filepath.Ext(path)) {
	case ".json":
		d.root, err = parseJSON(d, data)
	case ".toml":
		d.root, err = parseTOML(d, data)
	case ".sh", ".bash", ".slurm", ".sbatch":
		return parseScript(path, string(data))
	default:
		d.root, err = parseYAML(d, data)
	}
	if err != nil {
		return nil, err
	}
	if d.root.kind != groupKind {
		return nil, d.fault(d.root.line, "", "is %s, not a group of keys; name the configuration of a trainer",
			d.root.excerpt())
	}
	return d, nil
}

// yamlLine matches an error of the YAML library: the line at which parsing stopped, if known, and the reason.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// parseYAML reads the one document of a YAML file. Anchors and merge keys are resolved.
func parseYAML(d *document, data []byte) (root *configValue, err error) {
	defer func() {
		if p := recover(); p != nil { // the library panics on some malformed input
			root, err = nil, d.fault(0, "", "is not YAML: %v", p)
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var first, more yaml.Node
	if err := decoder.Decode(&first); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, d.fault(0, "", "is empty")
		}
		line, reason := 0, err.Error()
		if m := yamlLine.FindStringSubmatch(strings.Join(strings.Fields(reason), " ")); m != nil {
			line, _ = strconv.Atoi(m[1])
			reason = m[2]
		}
		if lines := bytes.Split(data, []byte("\n")); line > 0 && line <= len(lines) &&
			bytes.HasPrefix(bytes.TrimLeft(lines[line-1], " "), []byte("\t")) {
			return nil, d.fault(line, "", "is not YAML: the line begins with a tab; indent it with spaces")
		}
		return nil, d.fault(line, "", "is not YAML: %s", reason)
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, d.fault(more.Line, "", "holds several documents; a configuration is one")
	}
	if first.Kind != yaml.DocumentNode || len(first.Content) != 1 {
		return nil, d.fault(0, "", "is empty")
	}
	y := yamlReader{d: d}
	return y.value(first.Content[0], 0)
}

type yamlReader struct {
	d     *document
	count int
}

func (y *yamlReader) value(n *yaml.Node, depth int) (*configValue, error) {
	if y.count++; y.count > maxValues || depth > maxDepth {
		return nil, y.d.fault(n.Line, "", "nests or repeats its values too often (anchors count each time)")
	}
	switch n.Kind {
	case yaml.AliasNode:
		v, err := y.value(n.Alias, depth+1)
		if v != nil {
			v.line = n.Line
		}
		return v, err
	case yaml.SequenceNode:
		v := &configValue{kind: listKind, line: n.Line}
		for _, c := range n.Content {
			item, err := y.value(c, depth+1)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, item)
		}
		return v, nil
	case yaml.MappingNode:
		return y.group(n, depth)
	}
	return yamlScalar(n), nil
}

func (y *yamlReader) group(n *yaml.Node, depth int) (*configValue, error) {
	v, merged := &configValue{kind: groupKind, line: n.Line}, &configValue{kind: groupKind}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		for depth := 0; key.Kind == yaml.AliasNode && depth < maxDepth; depth++ {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			return nil, y.d.fault(n.Content[i].Line, "", "a key is not a word")
		}
		in, err := y.value(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		if key.ShortTag() != "!!merge" {
			v.add(groupEntry{key: key.Value, line: n.Content[i].Line, value: in})
			continue
		}
		if err := y.merge(merged, in, key.Line); err != nil {
			return nil, err
		}
	}
	for _, e := range merged.entries {
		if v.get(e.key) == nil {
			v.entries = append(v.entries, e)
		}
	}
	return v, nil
}

// merge adds the keys of one or several groups to another (YAML's <<). Earlier groups override later ones.
func (y *yamlReader) merge(into, in *configValue, line int) error {
	groups := []*configValue{in}
	if in.kind == listKind {
		groups = in.items
	}
	for _, g := range groups {
		if g.kind != groupKind {
			return y.d.fault(line, "<<", "merges %s, which is not a group of keys", g.excerpt())
		}
		for _, e := range g.entries {
			if into.get(e.key) == nil {
				into.entries = append(into.entries, e)
			}
		}
	}
	return nil
}

// yaml11Booleans are words that YAML 1.1, and therefore PyYAML, reads as booleans.
var yaml11Booleans = map[string]string{"yes": "true", "on": "true", "no": "false", "off": "false"}

func yamlScalar(n *yaml.Node) *configValue {
	v := &configValue{kind: textKind, text: n.Value, line: n.Line}
	switch n.ShortTag() {
	case "!!null":
		v.kind, v.text = nullKind, ""
	case "!!bool":
		v.kind, v.text = booleanKind, strings.ToLower(n.Value)
	case "!!int":
		v.kind = numberKind
		var whole int64
		if n.Decode(&whole) == nil {
			v.text = strconv.FormatInt(whole, 10)
		}
	case "!!float":
		v.kind = numberKind
	}
	if old, ok := yaml11Booleans[strings.ToLower(n.Value)]; ok && n.Style == 0 {
		v.kind, v.text = booleanKind, old
	}
	return v
}

func parseJSON(d *document, data []byte) (*configValue, error) {
	j := jsonReader{d: d, data: data, decoder: json.NewDecoder(bytes.NewReader(data)), line: 1}
	j.decoder.UseNumber()
	v, err := j.value(0)
	if err != nil {
		if errors.As(err, new(*input.FormatError)) {
			return nil, err
		}
		j.currentLine()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the file ends in the middle of a value; complete it, or copy it again")
		}
		return nil, d.fault(j.line, "", "is not JSON: %v", err)
	}
	if _, err := j.decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, d.fault(j.currentLine(), "", "is not JSON: something follows the document")
	}
	return v, nil
}

type jsonReader struct {
	d           *document
	data        []byte
	decoder     *json.Decoder
	line, count int
	offset      int64
}

func (j *jsonReader) currentLine() int {
	to := j.decoder.InputOffset()
	j.line += bytes.Count(j.data[j.offset:to], []byte("\n"))
	j.offset = to
	return j.line
}

func (j *jsonReader) value(depth int) (*configValue, error) {
	t, err := j.decoder.Token()
	if err != nil {
		return nil, err
	}
	v := &configValue{line: j.currentLine()}
	if j.count++; j.count > maxValues || depth > maxDepth {
		return nil, j.d.fault(v.line, "", "nests its values too deep, or has too many")
	}
	switch t := t.(type) {
	case nil:
	case bool:
		v.kind, v.text = booleanKind, strconv.FormatBool(t)
	case json.Number:
		v.kind, v.text = numberKind, t.String()
	case string:
		v.kind, v.text = textKind, t
	case json.Delim:
		v.kind = groupKind
		if t == '[' {
			v.kind = listKind
		}
		for j.decoder.More() {
			var e groupEntry
			if v.kind == groupKind {
				key, err := j.decoder.Token()
				if err != nil {
					return nil, err
				}
				e.key, e.line = fmt.Sprint(key), j.currentLine()
			}
			if e.value, err = j.value(depth + 1); err != nil {
				return nil, err
			}
			if v.kind == groupKind {
				v.add(e)
			} else {
				v.items = append(v.items, e.value)
			}
		}
		_, err = j.decoder.Token() // the closing one
	}
	return v, err
}
