// Package tail keeps the end of a command's output, to be shown if it fails.
package tail

import (
	"bytes"
	"strings"
)

// A Tail keeps the end of what is written to it; its zero value is empty.
type Tail struct{ text []byte }

// maxBytes is enough for a traceback, in bytes.
const maxBytes = 4096

func (t *Tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if n := len(t.text); n > maxBytes {
		t.text = append(t.text[:0], t.text[n-maxBytes:]...)
	}
	return len(p), nil
}

// String returns the end of the text in whole lines, without empty lines before and after them.
func (t *Tail) String() string {
	text := t.text
	if len(text) == maxBytes {
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	return strings.ToValidUTF8(string(bytes.TrimSpace(text)), "\uFFFD")
}

// Last returns the last line that is not empty.
func (t *Tail) Last() string {
	text := bytes.TrimSpace(t.text)
	return string(bytes.TrimSpace(text[bytes.LastIndexByte(text, '\n')+1:]))
}
