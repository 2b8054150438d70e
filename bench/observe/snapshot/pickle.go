package snapshot

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The values of a pickle that holds data: nil, bool, int64, float64, string,
// *list (also for tuples) and *dict.
type (
	list struct{ items []any }
	// dict keeps what has a string for a key; PyTorch's have no other.
	dict struct{ items map[string]any }
	mark struct{}
)

// unpickler is the stack machine of the pickle protocol, without the
// instructions that name or call code: whatever a file holds, nothing of it
// runs.
type unpickler struct {
	data  []byte
	at    int
	stack []any
	memo  map[uint64]any
}

// A pickleError says at which byte a pickle is wrong.
type pickleError struct {
	at     int
	reason string
}

func (e *pickleError) Error() string { return fmt.Sprintf("byte %d: %s", e.at, e.reason) }

// unpickle reads the one value of a pickle, protocols 0 to 5.
func unpickle(data []byte) (v any, err error) {
	u := &unpickler{data: data, memo: map[uint64]any{}}
	defer func() {
		// Reading beyond the end and underflows of the stack end here instead
		// of in a check at each of a hundred places.
		switch stop := recover().(type) {
		case nil:
		case *pickleError:
			v, err = nil, stop
		default:
			panic(stop)
		}
	}()
	for {
		op := u.take(1)[0]
		if op == '.' {
			v := u.pop()
			if len(u.stack) > 0 {
				u.fail("values are left over")
			}
			return v, nil
		}
		u.step(op)
	}
}

func (u *unpickler) fail(format string, args ...any) {
	panic(&pickleError{u.at, fmt.Sprintf(format, args...)})
}

// take reads n bytes. It never allocates what is not there.
func (u *unpickler) take(n uint64) []byte {
	if n > uint64(len(u.data)-u.at) {
		u.fail("cut off: %d bytes are missing", n-uint64(len(u.data)-u.at))
	}
	b := u.data[u.at : u.at+int(n)]
	u.at += int(n)
	return b
}

func (u *unpickler) number(bytes int) uint64 {
	var wide [8]byte
	copy(wide[:], u.take(uint64(bytes)))
	return binary.LittleEndian.Uint64(wide[:])
}

func (u *unpickler) push(v any) { u.stack = append(u.stack, v) }

func (u *unpickler) pop() any {
	if len(u.stack) == 0 {
		u.fail("takes a value where there is none")
	}
	v := u.stack[len(u.stack)-1]
	u.stack = u.stack[:len(u.stack)-1]
	if _, is := v.(mark); is {
		u.fail("takes a mark for a value")
	}
	return v
}

func (u *unpickler) popN(n int) []any {
	items := make([]any, n)
	for i := range items {
		items[n-1-i] = u.pop()
	}
	return items
}

// toMark pops what lies above the last mark, and the mark.
func (u *unpickler) toMark() []any {
	for i := len(u.stack) - 1; i >= 0; i-- {
		if _, is := u.stack[i].(mark); is {
			items := append([]any(nil), u.stack[i+1:]...)
			u.stack = u.stack[:i]
			return items
		}
	}
	u.fail("there is no mark")
	return nil
}

// step carries out one instruction other than the last.
func (u *unpickler) step(op byte) {
	switch op {
	case 0x80: // PROTO
		if p := u.take(1)[0]; p > 5 {
			u.fail("protocol %d is newer than 5", p)
		}
	case 0x95: // FRAME
		u.take(8)
	case '(':
		u.push(mark{})
	case '0': // POP
		u.pop()
	case '1': // POP_MARK
		u.toMark()
	case '2': // DUP
		v := u.pop()
		u.push(v)
		u.push(v)
	default:
		if !u.scalar(op) && !u.collection(op) && !u.memory(op) {
			u.at--
			u.fail("instruction %q is not data: a memory snapshot calls no code, and nothing of this file was run", op)
		}
	}
}

// scalar carries out an instruction that pushes a scalar.
func (u *unpickler) scalar(op byte) bool {
	switch op {
	case 'N':
		u.push(nil)
	case 0x88:
		u.push(true)
	case 0x89:
		u.push(false)
	case 'J': // BININT
		u.push(int64(int32(u.number(4))))
	case 'K':
		u.push(int64(u.number(1)))
	case 'M':
		u.push(int64(u.number(2)))
	case 0x8a: // LONG1
		u.push(u.long(u.number(1)))
	case 0x8b: // LONG4
		u.push(u.long(u.number(4)))
	case 'G': // BINFLOAT
		u.push(math.Float64frombits(binary.BigEndian.Uint64(u.take(8))))
	case 0x8c, 'C', 'U': // SHORT_BINUNICODE, SHORT_BINBYTES, SHORT_BINSTRING
		u.push(string(u.take(u.number(1))))
	case 'X', 'B', 'T': // BINUNICODE, BINBYTES, BINSTRING
		u.push(string(u.take(u.number(4))))
	case 0x8d, 0x8e: // BINUNICODE8, BINBYTES8
		u.push(string(u.take(u.number(8))))
	default:
		return false
	}
	return true
}

// long is a little-endian two's complement number of n bytes.
func (u *unpickler) long(n uint64) int64 {
	b := u.take(n)
	if n == 0 {
		return 0
	}
	if n > 9 || n == 9 && b[8] != 0 || n == 9 && b[7]&0x80 != 0 {
		u.fail("an integer of %d bytes is more than any address", n)
	}
	negative := b[n-1]&0x80 != 0
	var v uint64
	for i := int(min(n, 8)) - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	if negative && n < 8 {
		v |= ^uint64(0) << (8 * n)
	}
	return int64(v)
}

// collection carries out an instruction that makes or fills a collection.
func (u *unpickler) collection(op byte) bool {
	switch op {
	case ']', ')': // EMPTY_LIST, EMPTY_TUPLE
		u.push(&list{})
	case 'l', 't': // LIST, TUPLE
		u.push(&list{u.toMark()})
	case 0x85, 0x86, 0x87: // TUPLE1 to TUPLE3
		u.push(&list{u.popN(int(op) - 0x84)})
	case 'a': // APPEND
		v := u.pop()
		u.extend([]any{v})
	case 'e': // APPENDS
		u.extend(u.toMark())
	case '}': // EMPTY_DICT
		u.push(&dict{map[string]any{}})
	case 'd': // DICT
		items := u.toMark()
		u.push(&dict{map[string]any{}})
		u.set(items)
	case 's': // SETITEM
		u.set(u.popN(2))
	case 'u': // SETITEMS
		u.set(u.toMark())
	default:
		return false
	}
	return true
}

func (u *unpickler) extend(items []any) {
	l, ok := u.top().(*list)
	if !ok {
		u.fail("appends to what is no list")
	}
	l.items = append(l.items, items...)
}

func (u *unpickler) set(items []any) {
	d, ok := u.top().(*dict)
	if !ok || len(items)%2 != 0 {
		u.fail("sets items of what is no dict")
	}
	for i := 0; i < len(items); i += 2 {
		if key, ok := items[i].(string); ok {
			d.items[key] = items[i+1]
		}
	}
}

func (u *unpickler) top() any {
	v := u.pop()
	u.push(v)
	return v
}

// memory carries out an instruction on the memo.
func (u *unpickler) memory(op byte) bool {
	switch op {
	case 0x94: // MEMOIZE
		u.memo[uint64(len(u.memo))] = u.top()
	case 'q':
		u.memo[u.number(1)] = u.top()
	case 'r':
		u.memo[u.number(4)] = u.top()
	case 'h':
		u.get(u.number(1))
	case 'j':
		u.get(u.number(4))
	default:
		return false
	}
	return true
}

func (u *unpickler) get(i uint64) {
	v, ok := u.memo[i]
	if !ok {
		u.fail("uses memo %d before it is set", i)
	}
	u.push(v)
}
