package pickle

import (
	"bufio"
	"encoding/binary"
	"io"
)

// A Writer writes a pickle of protocol 2, with only those instructions that the page pytorch.org/memory_viz reads. Each
// method writes a value; Close returns the first error of the underlying writer.
type Writer struct {
	out *bufio.Writer
	// memo numbers the values written so far that may come again: strings, and what goes through Shared.
	memo map[any]uint32
}

// The opcodes, as Python's pickletools names them.
const (
	opProto      = 0x80
	opStop       = '.'
	opMark       = '('
	opEmptyDict  = '}'
	opEmptyList  = ']'
	opSetItems   = 'u'
	opAppends    = 'e'
	opTuple2     = 0x86
	opBinUnicode = 'X'
	opBinInt     = 'J'
	opLong1      = 0x8a
	opNewTrue    = 0x88
	opNewFalse   = 0x89
	opLongBinPut = 'r'
	opLongBinGet = 'j'
)

// NewWriter returns a Writer and writes the pickle's header.
func NewWriter(w io.Writer) *Writer {
	p := &Writer{bufio.NewWriter(w), map[any]uint32{}}
	p.bytes(opProto, 2)
	return p
}

// Close writes the end of the pickle. It does not close the underlying writer.
func (p *Writer) Close() error {
	p.bytes(opStop)
	return p.out.Flush() // a bufio.Writer keeps its first error
}

func (p *Writer) bytes(b ...byte) { _, _ = p.out.Write(b) }

// String writes text.
func (p *Writer) String(s string) {
	p.Shared(s, func() {
		p.bytes(binary.LittleEndian.AppendUint32([]byte{opBinUnicode}, uint32(len(s)))...)
		_, _ = p.out.WriteString(s)
	})
}

// Shared writes a value the first time and afterwards a reference to it. Values of one key must be equal.
func (p *Writer) Shared(key any, value func()) {
	if id, ok := p.memo[key]; ok {
		p.bytes(binary.LittleEndian.AppendUint32([]byte{opLongBinGet}, id)...)
		return
	}
	value()
	id := uint32(len(p.memo))
	p.memo[key] = id
	p.bytes(binary.LittleEndian.AppendUint32([]byte{opLongBinPut}, id)...)
}

// Int writes a whole number; those beyond 32 bits, like addresses, as a long.
func (p *Writer) Int(n int64) {
	if n == int64(int32(n)) {
		p.bytes(binary.LittleEndian.AppendUint32([]byte{opBinInt}, uint32(int32(n)))...)
		return
	}
	p.bytes(binary.LittleEndian.AppendUint64([]byte{opLong1, 8}, uint64(n))...)
}

// Bool writes a bool.
func (p *Writer) Bool(b bool) {
	if b {
		p.bytes(opNewTrue)
	} else {
		p.bytes(opNewFalse)
	}
}

// Pair writes a tuple of two whole numbers.
func (p *Writer) Pair(a, b int64) {
	p.Int(a)
	p.Int(b)
	p.bytes(opTuple2)
}

// List writes a list of n elements, each written by element.
func (p *Writer) List(n int, element func(i int)) {
	p.bytes(opEmptyList, opMark)
	for i := range n {
		element(i)
	}
	p.bytes(opAppends)
}

// Dict writes a dictionary whose entries the function writes, with p.Key before each value.
func (p *Writer) Dict(entries func()) {
	p.bytes(opEmptyDict, opMark)
	entries()
	p.bytes(opSetItems)
}

// Key writes the key of an entry.
func (p *Writer) Key(s string) *Writer {
	p.String(s)
	return p
}
