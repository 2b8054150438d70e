// Package jsonkeys finds keys that a JSON object has twice. Decoders take the
// last one without a word, and what a person read was the first.
package jsonkeys

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Unique returns an error that names the first key that an object in a JSON value
// has twice. Data that is no JSON is left to the decoder.
func Unique(data []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowInvalidUTF8(true))
	for {
		_, err := d.ReadToken()
		var wrong *jsontext.SyntacticError
		switch {
		case errors.As(err, &wrong) && errors.Is(err, jsontext.ErrDuplicateName):
			return fmt.Errorf("%s appears twice", strings.Join(slices.Collect(wrong.JSONPointer.Tokens()), "."))
		case err != nil:
			return nil
		}
	}
}
