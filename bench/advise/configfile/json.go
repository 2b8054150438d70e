package configfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	case f.times == 0:
		return nil, &KeyError{Path: e.Path, Reason: "there is no such key", Missing: true}
	case f.times > 1:
		return nil, &KeyError{Path: e.Path, Reason: "stands in the file more than once"}
	}
	return spliceAt(data, p, e, f.at, before, readJSON)
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
}

// value walks over one value, whose path is here.
func (f *finderJSON) value(here path) error {
	t, err := f.d.Token()
	if err != nil {
		return err
	}
	hit := len(here) == len(f.want) && len(here) > 0
	for i := range here {
		hit = hit && here[i] == f.want[i]
	}
	if hit {
		if err := f.found(t); err != nil {
			return err
		}
	}
	switch t {
	case json.Delim('{'):
		for f.d.More() {
			key, err := f.d.Token()
			if err != nil {
				return err
			}
			if err := f.value(append(here[:len(here):len(here)], key.(string))); err != nil {
				return err
			}
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
