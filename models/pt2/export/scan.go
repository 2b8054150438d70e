package export

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of model.json, without skipped values. The largest graphs in use have about 10^4 nodes of 60 values.
const (
	mostDepth  = 100
	mostValues = 3_000_000
)

// scanner reads JSON in one pass without building a tree, because most of model.json is skipped. After the first error,
// all methods return at once.
type scanner struct {
	json   *jsontext.Decoder
	base   int64 // the first byte of what json reads
	values int
	err    error
	known  map[string]string // strings met before
	buffer []byte            // of a string with escapes
}

var errTruncated = errors.New("the file ends in the middle; copy the file again, or export the model again")

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

// failed records the error of a read, and reports whether there is one.
func (s *scanner) failed(err error) bool {
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

// expect reports whether the next value has a kind, and counts it against the limits. Another kind is an error.
func (s *scanner) expect(kind jsontext.Kind) bool {
	if s.err != nil {
		return false
	}
	if s.values++; s.values > mostValues {
		s.fail("there are more than %d values, more than vprof reads", mostValues)
	} else if next := s.json.PeekKind(); next != kind && next != 0 { // 0: reading it returns the error
		s.fail("there is %s where %s is expected; export the model again", next, kind)
	}
	return s.err == nil
}

// scalar returns the text of the next value, which must be of the given kind. The text is valid until the next read.
func (s *scanner) scalar(kind jsontext.Kind) []byte {
	if !s.expect(kind) {
		return nil
	}
	v, err := s.json.ReadValue()
	if s.failed(err) {
		return nil
	}
	return v
}

// members calls each for each member of an object or array. The callback must read that member.
func (s *scanner) members(open, end jsontext.Kind, each func()) {
	if !s.expect(open) {
		return
	}
	_, err := s.json.ReadToken()
	if s.failed(err) {
		return
	}
	if s.json.StackDepth() > mostDepth {
		s.fail("values are nested more than %d levels deep", mostDepth)
	}
	for s.err == nil {
		if s.json.PeekKind() == end {
			_, err := s.json.ReadToken()
			s.failed(err)
			return
		}
		each()
	}
}

// object calls member for each key of an object. It skips values that member does not read.
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

// array calls element for each element of an array. The callback must read that element.
func (s *scanner) array(element func()) { s.members('[', ']', element) }

func (s *scanner) skip() {
	if s.err == nil {
		s.failed(s.json.SkipValue())
	}
}

// deferredValue is a JSON value that is read later, and the position of its first byte.
type deferredValue struct {
	value jsontext.Value
	at    int64
}

// deferValue returns the next value without reading it, for [scanner.readDeferred].
func (s *scanner) deferValue() deferredValue {
	if s.err != nil {
		return deferredValue{}
	}
	v, err := s.json.ReadValue()
	s.failed(err)
	return deferredValue{v.Clone(), s.base + s.json.InputOffset() - int64(len(v))}
}

// readDeferred calls member for each key of a deferred object, if there is one.
func (s *scanner) readDeferred(p deferredValue, member func(key string)) {
	if s.err != nil || p.value == nil {
		return
	}
	json, base := s.json, s.base
	s.json, s.base = newJSON(p.value), p.at
	s.object(member)
	s.json, s.base = json, base
}

// null reads the next value if it is null, and reports whether it was.
func (s *scanner) null() bool {
	return s.err == nil && s.json.PeekKind() == 'n' && s.scalar('n') != nil
}

// text reads a string. Equal strings share their memory, because names and stack traces repeat.
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

// content returns the unescaped bytes of a string, which are valid until the next read.
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

func (s *scanner) integer() int64 {
	w := s.scalar('0')
	if s.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(w), 10, 64)
	if err != nil {
		s.fail("%q is not a whole number of 64 bits", w)
	}
	return n
}

// number reads a floating-point number. Infinities and NaN are JSON strings.
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
		s.fail("%q is not a number", w)
	}
	return x
}

func (s *scanner) boolean() bool {
	if s.err == nil && s.json.PeekKind() == 't' {
		return s.scalar('t') != nil
	}
	s.scalar('f')
	return false
}
