// Package jsonkeys finds keys that a JSON object has twice. Decoders take the
// last one without a word, and what a person read was the first.
package jsonkeys

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// mostDeep is how deep encoding/json reads.
const mostDeep = 10_000

// Unique is an error that names the first key that an object in a JSON value
// has twice. Data that is no JSON is left to the decoder.
func Unique(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var twice *twiceError
	if errors.As(value(d, 0), &twice) {
		return twice
	}
	return nil
}

// twiceError is about a key, named with those that lead to it.
type twiceError struct{ key string }

func (e *twiceError) Error() string { return e.key + " appears twice" }

// within says in which object or list a key stands.
func within(name any, err error) error {
	var twice *twiceError
	if errors.As(err, &twice) {
		return &twiceError{fmt.Sprintf("%v.%s", name, twice.key)}
	}
	return err
}

// value goes over a value.
func value(d *json.Decoder, depth int) error {
	t, err := d.Token()
	switch {
	case err != nil:
		return err
	case depth == mostDeep:
		return errors.New("too deep")
	case t == json.Delim('{'):
		return object(d, depth+1)
	case t == json.Delim('['):
		for i := 0; d.More(); i++ {
			if err := value(d, depth+1); err != nil {
				return within(i, err)
			}
		}
		_, err = d.Token()
	}
	return err
}

func object(d *json.Decoder, depth int) error {
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		key := fmt.Sprint(t)
		if seen[key] {
			return &twiceError{key}
		}
		seen[key] = true
		if err := value(d, depth); err != nil {
			return within(key, err)
		}
	}
	_, err := d.Token()
	return err
}
