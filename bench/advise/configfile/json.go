package configfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// spliceJSON sets one value of a JSON document. Each key of the path but the last must be an object.
func spliceJSON(data []byte, p path, e Edit) ([]byte, error) {
	before, err := readJSON(data)
	if err != nil {
		return nil, err
	}
	if _, ok := lookup(before, p); !ok {
		if e.Create && !e.Item {
			return insertJSON(data, p, e, before)
		}
		return nil, e.missingKeyError()
	}
	raw, end, times := findJSON(data, p)
	kinds := map[jsontext.Kind]kind{'n': nullKind, 't': booleanKind, 'f': booleanKind, '0': numberKind, '"': textKind}
	at := valueSpan{end - len(raw), end, kinds[raw.Kind()]}
	switch {
	case e.Item:
		return nil, e.keyError("add %v to it by hand: vprof adds to lists of YAML files", e.Value)
	case raw.Kind() == '{':
		return nil, e.keyError("is an object, not a single value")
	case raw.Kind() == '[':
		return nil, e.keyError("is a list, not a single value")
	case times > 1:
		return nil, e.keyError("stands in the file more than once")
	}
	return spliceAt(JSON, data, p, e, at)
}

// findJSON returns the text of the value at a path, its end offset, and how often the path occurs; the last occurrence
// counts. An empty path is the document.
func findJSON(data []byte, p path) (raw jsontext.Value, end, times int) {
	var want jsontext.Pointer
	for _, key := range p {
		want = want.AppendToken(key)
	}
	d := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true))
	for named := len(p) == 0; ; {
		if named && d.StackPointer() == want {
			v, err := d.ReadValue()
			if err != nil {
				return raw, end, times
			}
			raw, end, times, named = v.Clone(), int(d.InputOffset()), times+1, false
			continue
		}
		if _, err := d.ReadToken(); err != nil {
			return raw, end, times // the end: it is known to be JSON
		}
		in, n := d.StackIndex(d.StackDepth())
		named = in == '{' && n%2 == 1
	}
}

// insertJSON adds the missing keys of a path after the last entry of the innermost existing object.
func insertJSON(data []byte, p path, e Edit, before any) ([]byte, error) {
	has := 0
	for v := before; has < len(p)-1; has++ {
		next, ok := lookup(v, p[has:has+1])
		if _, isMap := next.(map[string]any); !ok || !isMap {
			break
		}
		v = next
	}
	value, err := formatLiteral(e.Value)
	if err != nil {
		return nil, e.keyError("%v", err)
	}
	entry := value
	for i := len(p) - 1; i >= has; i-- {
		key, err := formatLiteral(p[i])
		if err != nil {
			return nil, e.keyError("%v", err)
		}
		if entry = key + ": " + entry; i > has {
			entry = "{" + entry + "}"
		}
	}
	byHand := e.keyError("cannot be added safely to this file; set it to %s by hand", value)
	object, end, times := findJSON(data, p[:has])
	if times != 1 || object.Kind() != '{' {
		return nil, byHand
	}
	const white = " \t\r\n"
	entries := string(object[1 : len(object)-1])
	at := end - 1 - (len(entries) - len(strings.TrimRight(entries, white)))
	if first := strings.TrimLeft(entries, white); first != "" {
		entry = "," + cmp.Or(entries[:len(entries)-len(first)], " ") + entry
	}
	out, err := e.verifiedSplice(JSON, data, replaceRange(data, at, at, entry), func(before any) bool {
		return setValue(before, p, e.Value)
	})
	if err != nil {
		return nil, byHand
	}
	return out, nil
}

// readJSON decodes a JSON object. Whole numbers become int64.
func readJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not JSON: text follows the end of the document; remove it")
	}
	return convertIntegers(v), nil
}

// convertIntegers converts the whole numbers of a decoded JSON value to int64.
func convertIntegers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = convertIntegers(x)
		}
	case []any:
		for i, x := range v {
			v[i] = convertIntegers(x)
		}
	case int:
		return int64(v)
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n
		}
	}
	return v
}
