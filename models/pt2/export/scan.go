package export

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of a program's JSON without skipped parts. The largest graphs in use have some 10^4 nodes of 60 values.
const (
	mostDepth  = 100
	mostValues = 3_000_000
)

// scanner reads values from JSON in one pass, without building a tree: most of a
// program is skipped. The first error ends all loops.
type scanner struct {
	json   *jsontext.Decoder
	base   int64 // the first byte of what json reads
	values int
	err    error
	known  map[string]string // strings met before
	buffer []byte            // of a string with escapes
}

var errTruncated = errors.New("ends in the middle")

// newJSON returns a decoder that accepts what Python's json module writes.
func newJSON(data []byte) *jsontext.Decoder {
	anyNames, anyText := jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)
	return jsontext.NewDecoder(bytes.NewBuffer(data), anyNames, anyText)
}

func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("byte %d: %s", s.base+s.json.InputOffset(), fmt.Sprintf(format, args...))
	}
}

// ended ends the scan if a read failed.
func (s *scanner) ended(err error) bool {
	var wrong *jsontext.SyntacticError
	switch {
	case err == nil:
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		s.err = errTruncated
	case errors.As(err, &wrong):
		s.fail("%v", wrong.Err)
	default:
		s.fail("%v", err)
	}
	return s.err != nil
}

// begins reports whether the next value has a kind, and counts it against the limits. Another kind is an error.
func (s *scanner) begins(kind jsontext.Kind) bool {
	if s.err != nil {
		return false
	}
	if s.values++; s.values > mostValues {
		s.fail("more than %d values", mostValues)
	} else if next := s.json.PeekKind(); next != kind && next != 0 { // 0: reading it returns the error
		s.fail("%s where %s is expected", next, kind)
	}
	return s.err == nil
}

// scalar returns the text of a value of a kind, which is valid until the next read.
func (s *scanner) scalar(kind jsontext.Kind) []byte {
	if !s.begins(kind) {
		return nil
	}
	v, err := s.json.ReadValue()
	if s.ended(err) {
		return nil
	}
	return v
}

// members calls each for each part of an object or array, which it must read.
func (s *scanner) members(open, end jsontext.Kind, each func()) {
	if !s.begins(open) {
		return
	}
	_, err := s.json.ReadToken()
	if s.ended(err) {
		return
	}
	if s.json.StackDepth() > mostDepth {
		s.fail("nested more than %d deep", mostDepth)
	}
	for s.err == nil {
		if s.json.PeekKind() == end {
			_, err := s.json.ReadToken()
			s.ended(err)
			return
		}
		each()
	}
}

// object calls member for each key; a value that member does not read is skipped.
func (s *scanner) object(member func(key string)) {
	s.members('{', '}', func() {
		key := s.text()
		begin := s.json.InputOffset()
		if s.err != nil {
			return
		}
		if member(key); s.json.InputOffset() == begin {
			s.skip()
		}
	})
}

// array calls element for each element, which it must read.
func (s *scanner) array(element func()) { s.members('[', ']', element) }

// skip reads a value of any kind.
func (s *scanner) skip() {
	if s.err == nil {
		s.ended(s.json.SkipValue())
	}
}

// part is a value that is read later, and the position of its first byte.
type part struct {
	value jsontext.Value
	at    int64
}

// later returns the next value, for [scanner.read].
func (s *scanner) later() part {
	if s.err != nil {
		return part{}
	}
	v, err := s.json.ReadValue()
	s.ended(err)
	return part{v.Clone(), s.base + s.json.InputOffset() - int64(len(v))}
}

// read calls object for each key of a part that was skipped before; without one it does nothing.
func (s *scanner) read(p part, member func(key string)) {
	if s.err != nil || p.value == nil {
		return
	}
	json, base := s.json, s.base
	s.json, s.base = newJSON(p.value), p.at
	s.object(member)
	s.json, s.base = json, base
}

// null reads a null if it is the next value.
func (s *scanner) null() bool {
	return s.err == nil && s.json.PeekKind() == 'n' && s.scalar('n') != nil
}

// text returns a string. Equal strings share their memory: names and traces repeat.
func (s *scanner) text() string {
	content := s.content()
	if t, ok := s.known[string(content)]; ok {
		return t
	}
	if s.known == nil {
		s.known = map[string]string{}
	}
	t := string(content)
	s.known[t] = t
	return t
}

// content returns the bytes of a string, which are valid until the next read.
func (s *scanner) content() []byte {
	quoted := s.scalar('"')
	switch {
	case quoted == nil:
		return nil
	case bytes.IndexByte(quoted, '\\') < 0:
		return quoted[1 : len(quoted)-1]
	}
	s.buffer, _ = jsontext.AppendUnquote(s.buffer[:0], quoted) // a lone half of a pair becomes U+FFFD
	return s.buffer
}

// integer returns a whole number.
func (s *scanner) integer() int64 {
	w := s.scalar('0')
	if s.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(w), 10, 64)
	if err != nil {
		s.fail("%q is no whole number of 64 bits", w)
	}
	return n
}

// number returns any number. Infinities and NaN are strings.
func (s *scanner) number() float64 {
	var w []byte
	if s.err == nil && s.json.PeekKind() == '"' {
		w = s.content()
	} else {
		w = s.scalar('0')
	}
	if s.err != nil {
		return 0
	}
	x, err := strconv.ParseFloat(string(w), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		s.fail("%q is no number", w)
	}
	return x
}

// boolean returns a true or false.
func (s *scanner) boolean() bool {
	if s.err == nil && s.json.PeekKind() == 't' {
		return s.scalar('t') != nil
	}
	s.scalar('f')
	return false
}
