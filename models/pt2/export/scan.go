package export

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Limits of a program's JSON. The largest graphs in use have some 10^4 nodes of about 60 values each.
const (
	mostDepth  = 100
	mostValues = 3_000_000
)

// scanner pulls values from JSON in one pass, without building a tree: most of a
// program is skipped. The first error ends all loops.
type scanner struct {
	data   []byte
	at     int
	depth  int
	values int
	err    error
	known  map[string]string // strings met before
	buffer []byte            // of a string with escapes
}

var errTruncated = errors.New("ends in the middle")

func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("byte %d: %s", s.at, fmt.Sprintf(format, args...))
	}
}

// peek returns the first byte of the next token, 0 at the end.
func (s *scanner) peek() byte {
	for s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// take consumes one byte of punctuation.
func (s *scanner) take(want byte) bool {
	if s.err != nil {
		return false
	}
	if c := s.peek(); c != want {
		if c == 0 {
			s.err = errTruncated
		} else {
			s.fail("%q where %q is due", c, want)
		}
		return false
	}
	s.at++
	return true
}

// value counts a value against the limits.
func (s *scanner) value() bool {
	s.values++
	if s.values > mostValues {
		s.fail("more than %d values", mostValues)
	}
	return s.err == nil
}

// members calls each for what stands between two brackets.
func (s *scanner) members(open, end byte, each func()) {
	if !s.value() || !s.take(open) {
		return
	}
	if s.depth++; s.depth > mostDepth {
		s.fail("nested more than %d deep", mostDepth)
		return
	}
	defer func() { s.depth-- }()
	if s.peek() == end {
		s.at++
		return
	}
	for s.err == nil {
		each()
		if s.err != nil {
			return
		}
		if s.peek() == ',' {
			s.at++
			continue
		}
		s.take(end)
		return
	}
}

// object calls member for each key; a value that member does not consume is passed over.
func (s *scanner) object(member func(key string)) {
	s.members('{', '}', func() {
		key := s.text()
		if !s.take(':') {
			return
		}
		s.peek()
		begin := s.at
		if member(key); s.at == begin {
			s.skip()
		}
	})
}

// array calls element for each element, which it must consume.
func (s *scanner) array(element func()) { s.members('[', ']', element) }

// null consumes a null if there is one.
func (s *scanner) null() bool {
	if s.err == nil && s.peek() == 'n' && bytes.HasPrefix(s.data[s.at:], []byte("null")) {
		s.at += 4
		return s.value()
	}
	return false
}

// raw returns the content of a string before its escapes are resolved.
func (s *scanner) raw() (content []byte, escaped bool) {
	if !s.value() || !s.take('"') {
		return nil, false
	}
	start := s.at
	for {
		i := bytes.IndexByte(s.data[s.at:], '"')
		if i < 0 {
			s.err = errTruncated
			return nil, false
		}
		s.at += i + 1
		back := 0
		for k := s.at - 2; k >= start && s.data[k] == '\\'; k-- {
			back++
		}
		if back%2 == 0 {
			content = s.data[start : s.at-1]
			return content, bytes.IndexByte(content, '\\') >= 0
		}
	}
}

// text returns a string. Equal strings share their memory: names and traces repeat.
func (s *scanner) text() string {
	content, escaped := s.raw()
	if escaped {
		content = s.unescape(content)
	}
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

// unescape resolves escapes; the result is valid until the next call.
func (s *scanner) unescape(content []byte) []byte {
	out := s.buffer[:0]
	for i := 0; i < len(content); i++ {
		c := content[i]
		if c != '\\' {
			out = append(out, c)
			continue
		}
		i++ // raw has seen to it that something follows
		switch c = content[i]; c {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		case 'r':
			out = append(out, '\r')
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'u':
			if i+4 >= len(content) {
				s.fail("an incomplete escape")
				return nil
			}
			code, err := strconv.ParseUint(string(content[i+1:i+5]), 16, 32)
			if err != nil {
				s.fail("%q is no escape", content[i-1:i+5])
				return nil
			}
			out = utf8.AppendRune(out, rune(code)) // halves of a pair become U+FFFD
			i += 4
		default:
			out = append(out, c)
		}
	}
	s.buffer = out
	return out
}

// word returns a token of letters and digits: a number, true, false.
func (s *scanner) word() []byte {
	if !s.value() {
		return nil
	}
	s.peek()
	start := s.at
	for s.at < len(s.data) {
		switch c := s.data[s.at]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '-', c == '+', c == '.':
			s.at++
			continue
		}
		break
	}
	if s.at == start {
		if s.at >= len(s.data) {
			s.err = errTruncated
		} else {
			s.fail("%q where a value is due", s.data[s.at])
		}
	}
	return s.data[start:s.at]
}

// integer returns a whole number.
func (s *scanner) integer() int64 {
	w := s.word()
	if s.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(w), 10, 64)
	if err != nil {
		s.fail("%q is no whole number of 64 bits", w)
	}
	return n
}

// number reads any number. Infinities and NaN are words or strings.
func (s *scanner) number() float64 {
	var w []byte
	if s.err == nil && s.peek() == '"' {
		w, _ = s.raw()
	} else {
		w = s.word()
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

// boolean reads true or false.
func (s *scanner) boolean() bool {
	switch w := s.word(); string(w) {
	case "true":
		return true
	case "false":
	default:
		s.fail("%q is neither true nor false", w)
	}
	return false
}

// skip passes over a value of any kind.
func (s *scanner) skip() {
	if s.err != nil {
		return
	}
	switch s.peek() {
	case '{':
		s.members('{', '}', func() {
			s.raw()
			if s.take(':') {
				s.skip()
			}
		})
	case '[':
		s.array(s.skip)
	case '"':
		s.raw()
	default:
		s.word()
	}
}
