// Package jsonkeys finds repeated keys in JSON objects. Decoders silently use the last one, and people read the first.
package jsonkeys

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// CheckUnique returns an error that names the first key that appears twice in an object of a JSON value. Invalid JSON
// is left to the decoder.
func CheckUnique(data []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowInvalidUTF8(true))
	for {
		_, err := d.ReadToken()
		var wrong *jsontext.SyntacticError
		switch {
		case errors.As(err, &wrong) && errors.Is(err, jsontext.ErrDuplicateName):
			return fmt.Errorf("the key %s appears twice; remove one",
				strings.Join(slices.Collect(wrong.JSONPointer.Tokens()), "."))
		case err != nil:
			return nil
		}
	}
}
