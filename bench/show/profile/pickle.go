package profile

import (
	"bufio"
	"encoding/binary"
	"io"
)

// pickler writes Python's pickle format, protocol 2, with the opcodes alone
// that the memory_viz page reads. Its own methods are the values; a writer's
// error shows in close.
type pickler struct {
	out *bufio.Writer
	// memo numbers the values written so far that may come again: strings, and
	// what goes through shared.
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

func newPickler(w io.Writer) *pickler {
	p := &pickler{bufio.NewWriter(w), map[any]uint32{}}
	p.bytes(opProto, 2)
	return p
}

func (p *pickler) close() error {
	p.bytes(opStop)
	return p.out.Flush() // a bufio.Writer keeps its first error
}

func (p *pickler) bytes(b ...byte) { _, _ = p.out.Write(b) }

func (p *pickler) string(s string) {
	p.shared(s, func() {
		p.bytes(binary.LittleEndian.AppendUint32([]byte{opBinUnicode}, uint32(len(s)))...)
		_, _ = p.out.WriteString(s)
	})
}

// shared writes a value the first time and refers to it from then on. Values
// of one key must be the same.
func (p *pickler) shared(key any, value func()) {
	if id, ok := p.memo[key]; ok {
		p.bytes(binary.LittleEndian.AppendUint32([]byte{opLongBinGet}, id)...)
		return
	}
	value()
	id := uint32(len(p.memo))
	p.memo[key] = id
	p.bytes(binary.LittleEndian.AppendUint32([]byte{opLongBinPut}, id)...)
}

// int writes a whole number; those beyond 32 bits, like addresses, as a long.
func (p *pickler) int(n int64) {
	if n == int64(int32(n)) {
		p.bytes(binary.LittleEndian.AppendUint32([]byte{opBinInt}, uint32(int32(n)))...)
		return
	}
	p.bytes(binary.LittleEndian.AppendUint64([]byte{opLong1, 8}, uint64(n))...)
}

func (p *pickler) bool(b bool) {
	if b {
		p.bytes(opNewTrue)
	} else {
		p.bytes(opNewFalse)
	}
}

// pair writes a tuple of two whole numbers.
func (p *pickler) pair(a, b int64) {
	p.int(a)
	p.int(b)
	p.bytes(opTuple2)
}

// list writes a list of n elements, each written by element.
func (p *pickler) list(n int, element func(i int)) {
	p.bytes(opEmptyList, opMark)
	for i := range n {
		element(i)
	}
	p.bytes(opAppends)
}

// dict writes a dictionary whose entries the function writes, with p.key
// before each value.
func (p *pickler) dict(entries func()) {
	p.bytes(opEmptyDict, opMark)
	entries()
	p.bytes(opSetItems)
}

// key writes the key of an entry.
func (p *pickler) key(s string) *pickler {
	p.string(s)
	return p
}
