package configfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
)

// spliceJSON sets one value of a JSON document. Paths go through objects.
func spliceJSON(data []byte, p path, e Edit) ([]byte, error) {
	before, err := readJSON(data)
	if err != nil {
		return nil, err
	}
	f := finderJSON{d: json.NewDecoder(bytes.NewReader(data)), data: data, want: p, edit: e}
	f.d.UseNumber()
	if err := f.value(nil); err != nil {
		return nil, err
	}
	switch {
	case f.times == 0 && e.Create && !e.Item:
		return insertJSON(data, p, e, before)
	case f.times == 0:
		return nil, &KeyError{Path: e.Path, Reason: "there is no such key", Missing: true}
	case e.Item:
		return nil, &KeyError{Path: e.Path, Reason: fmt.Sprintf("add %v to it by hand: vprof adds to lists of YAML files", e.Value)}
	case f.times > 1:
		return nil, &KeyError{Path: e.Path, Reason: "stands in the file more than once"}
	}
	return spliceAt(data, p, e, f.at, before, readJSON)
}

// insertJSON adds keys, each within the one before it, behind the entries of the object that
// lacks the first.
func insertJSON(data []byte, p path, e Edit, before any) ([]byte, error) {
	has := 0
	for v := before; has < len(p)-1; has++ {
		next, ok := lookup(v, p[has:has+1])
		if _, isMap := next.(map[string]any); !ok || !isMap {
			break
		}
		v = next
	}
	value, err := literal(e.Value)
	if err != nil {
		return nil, &KeyError{Path: e.Path, Reason: err.Error()}
	}
	entry := value
	for i := len(p) - 1; i >= has; i-- {
		key, err := literal(p[i])
		if err != nil {
			return nil, &KeyError{Path: e.Path, Reason: err.Error()}
		}
		if entry = key + ": " + entry; i > has {
			entry = "{" + entry + "}"
		}
	}
	f := finderJSON{d: json.NewDecoder(bytes.NewReader(data)), data: data, want: p[:has], object: true}
	f.d.UseNumber()
	if err := f.value(nil); err != nil {
		return nil, err
	}
	if f.times == 1 && f.entries > 0 {
		entry = "," + f.space() + entry
	}
	out := replace(data, f.at.to, f.at.to, entry)
	after, err := readJSON(out)
	if f.times != 1 || err != nil || !created(before, p, e.Value) || !reflect.DeepEqual(before, after) {
		return nil, &KeyError{Path: e.Path, Reason: fmt.Sprintf("cannot be added safely to this file; set it to %s by hand", value)}
	}
	return out, nil
}

// created sets a value in a document, and makes the objects above it.
func created(v any, p path, value any) bool {
	for i := range len(p) - 1 {
		if _, ok := lookup(v, p[:i+1]); !ok && !put(v, p[:i+1], map[string]any{}) {
			return false
		}
	}
	return put(v, p, value)
}

// space is the white space before the first entry of the object that was found.
func (f *finderJSON) space() string {
	rest := f.data[f.at.from:]
	blank := rest[:len(rest)-len(bytes.TrimLeft(rest, " \t\r\n"))]
	if len(blank) == 0 {
		return " "
	}
	return string(blank)
}

// readJSON reads a document of objects, numbers as int64 where they are.
func readJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not JSON: something follows the document")
	}
	return integers(v), nil
}

// integers makes int64 of the numbers that are.
func integers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = integers(x)
		}
	case []any:
		for i, x := range v {
			v[i] = integers(x)
		}
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n
		}
	}
	return v
}

// finderJSON walks over a document's tokens to where a path leads.
type finderJSON struct {
	d     *json.Decoder
	data  []byte
	want  path
	edit  Edit
	at    place
	times int
	// object says that an object is looked for: from is where its entries begin, to where
	// they end, of which there are entries.
	object  bool
	entries int
}

// value walks over one value, whose path is here.
func (f *finderJSON) value(here path) error {
	t, err := f.d.Token()
	if err != nil {
		return err
	}
	hit := len(here) == len(f.want) && (len(here) > 0 || f.object)
	for i := range here {
		hit = hit && here[i] == f.want[i]
	}
	if hit && !f.object {
		if err := f.found(t); err != nil {
			return err
		}
	}
	switch t {
	case json.Delim('{'):
		if err := f.entriesOf(here, hit && f.object); err != nil {
			return err
		}
	case json.Delim('['):
		for f.d.More() {
			// Items have no key; nothing in them can be meant.
			if err := f.value(append(here[:len(here):len(here)], "")); err != nil {
				return err
			}
		}
	default:
		return nil
	}
	_, err = f.d.Token() // the closing one
	return err
}

// entriesOf walks over the entries of an object, which may be the one that is looked for.
func (f *finderJSON) entriesOf(here path, wanted bool) error {
	from, entries := int(f.d.InputOffset()), 0
	for ; f.d.More(); entries++ {
		key, err := f.d.Token()
		if err != nil {
			return err
		}
		if err := f.value(append(here[:len(here):len(here)], key.(string))); err != nil {
			return err
		}
	}
	if wanted {
		f.times++
		f.at.from, f.entries = from, entries
		f.at.to = len(bytes.TrimRight(f.data[:f.d.InputOffset()], " \t\r\n"))
	}
	return nil
}

// found notes the place of the token that was just read.
func (f *finderJSON) found(t json.Token) error {
	f.times++
	f.at.to = int(f.d.InputOffset())
	switch t := t.(type) {
	case nil:
		f.at.kind, f.at.from = null, f.at.to-len("null")
	case bool:
		f.at.kind, f.at.from = boolean, f.at.to-len(strconv.FormatBool(t))
	case json.Number:
		f.at.kind, f.at.from = number, f.at.to-len(t.String())
	case string:
		// Back to the quote that opens the text: all others are escaped.
		f.at.kind = text
		for from := f.at.to - 2; from >= 0; from-- {
			if f.data[from] == '"' && !escaped(f.data, from) {
				f.at.from = from
				break
			}
		}
	default:
		what := "an object"
		if t == json.Delim('[') {
			what = "a list"
		}
		return &KeyError{Path: f.edit.Path, Reason: "is " + what + ", not a single value"}
	}
	return nil
}

// escaped tells whether an odd number of backslashes stands before at.
func escaped(data []byte, at int) bool {
	before := string(data[:at])
	return (len(before)-len(strings.TrimRight(before, `\`)))%2 == 1
}
