// Package pickle reads and writes the plain data of Python's pickle format: numbers, text, lists, tuples and dicts. The
// reader refuses instructions that name or call code, so it never runs anything of a file.
package pickle

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// The values of a pickle are nil, bool, int64, float64, string, *[List] (also for tuples) and *[Dict].

// A List is a list or a tuple.
type List struct{ Items []any }

// A Dict has those items of a dict whose keys were passed to [Read]: so few that a slice is smaller than a map.
type Dict struct {
	items []item
	// Decoded is for the reader's caller, who can note in it that this dict was visited: several places of a pickle may
	// refer to one dict. Read leaves it false.
	Decoded bool
}

type item struct {
	key   string
	value any
}

// A mark is the position on the stack where the items of a collection begin.
type mark struct{}

// Get returns the value of a key; nil if there is none.
func (d *Dict) Get(key string) any {
	for i := range d.items {
		if d.items[i].key == key {
			return d.items[i].value
		}
	}
	return nil
}

func (d *Dict) set(key string, value any) {
	for i := range d.items {
		if d.items[i].key == key {
			d.items[i].value = value
			return
		}
	}
	d.items = append(d.items, item{key, value})
}

// What values take in memory, in bytes, as a budget counts them.
const (
	scalarCost = 8  // an integer or a float behind an interface
	textCost   = 16 // a string's header
	ItemCost   = 16 // a place in a list or in the memo
	entryCost  = 32 // an item of a dict
	objectCost = 32 // a list or a dict without its items
)

// A Budget limits the memory of reading a file, so that a small file cannot fill a machine.
type Budget struct{ left, all int64 }

// NewBudget returns the budget for a file of a length in bytes: 32 MiB and six times the length. Memory snapshots of
// PyTorch need three to four times their length.
func NewBudget(file int) *Budget {
	all := 32<<20 + 6*int64(file)
	return &Budget{all, all}
}

// Spend takes bytes from the budget. The error reports that there are too few.
func (b *Budget) Spend(bytes int64) error {
	if b.left -= bytes; b.left < 0 {
		return fmt.Errorf("its contents unpack to more than %d MiB, too much for a snapshot of this length; save the "+
			"snapshot again", b.all>>20)
	}
	return nil
}

// MaxStack limits how many values may wait to become items of a collection.
// Python's pickler writes collections in pieces of a thousand.
const MaxStack = 1 << 21

// unpickler is the stack machine of the pickle protocol, without the instructions that name or call code.
type unpickler struct {
	data   []byte
	at     int
	stack  []any
	memo   []any
	budget *Budget
	// keys are the keys of the items that dicts keep.
	keys map[string]bool
}

// A pickleError is an error with the byte at which a pickle is wrong.
type pickleError struct {
	at     int
	reason string
}

func (e *pickleError) Error() string { return fmt.Sprintf("byte %d: %s", e.at, e.reason) }

// IsPickle reports whether a file that begins with head is a pickle of protocol 2 or newer.
func IsPickle(head []byte) bool { return len(head) > 1 && head[0] == 0x80 && head[1] <= 5 }

// Read reads the one value of a pickle of protocol 2 to 5. Of dicts it keeps the
// items with the given keys. The error names the byte at which the pickle is wrong.
func Read(data []byte, keys map[string]bool, b *Budget) (v any, err error) {
	u := &unpickler{data: data, budget: b, keys: keys}
	defer func() {
		// A read beyond the end or an underflow of the stack panics and ends here, instead of in a check at each of a
		// hundred places.
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

// take reads n bytes. It never allocates more than the rest of the input.
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

func (u *unpickler) spend(bytes int) {
	if err := u.budget.Spend(int64(bytes)); err != nil {
		u.fail("%v", err)
	}
}

func (u *unpickler) push(v any) {
	if len(u.stack) == MaxStack {
		u.fail("more than %d values wait on the stack", MaxStack)
	}
	u.stack = append(u.stack, v)
}

func (u *unpickler) pushInt(v int64) {
	u.spend(scalarCost)
	u.push(v)
}

func (u *unpickler) pushText(length uint64) {
	b := u.take(length)
	u.spend(textCost + len(b))
	u.push(string(b))
}

func (u *unpickler) pushList(items []any) {
	u.spend(objectCost + ItemCost*len(items))
	u.push(&List{slices.Clone(items)})
}

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

// popN pops n values. They are valid until the next push, like the values of popToMark.
func (u *unpickler) popN(n int) []any {
	rest := len(u.stack)
	for range n {
		u.pop()
	}
	return u.stack[rest-n : rest]
}

// popToMark pops the values above the last mark, and the mark.
func (u *unpickler) popToMark() []any {
	for i := len(u.stack) - 1; i >= 0; i-- {
		if _, is := u.stack[i].(mark); is {
			items := u.stack[i+1:]
			u.stack = u.stack[:i]
			return items
		}
	}
	u.fail("there is no mark")
	return nil
}

// step executes one instruction other than the last.
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
		u.popToMark()
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

// scalar executes an instruction that pushes a scalar.
func (u *unpickler) scalar(op byte) bool {
	switch op {
	case 'N':
		u.push(nil)
	case 0x88:
		u.push(true)
	case 0x89:
		u.push(false)
	case 'J': // BININT
		u.pushInt(int64(int32(u.number(4))))
	case 'K':
		u.push(int64(u.number(1))) // Go has the first 256 integers ready
	case 'M':
		u.pushInt(int64(u.number(2)))
	case 0x8a: // LONG1
		u.pushInt(u.readLong(u.number(1)))
	case 0x8b: // LONG4
		u.pushInt(u.readLong(u.number(4)))
	case 'G': // BINFLOAT
		u.spend(scalarCost)
		u.push(math.Float64frombits(binary.BigEndian.Uint64(u.take(8))))
	case 0x8c, 'C', 'U': // SHORT_BINUNICODE, SHORT_BINBYTES, SHORT_BINSTRING
		u.pushText(u.number(1))
	case 'X', 'B', 'T': // BINUNICODE, BINBYTES, BINSTRING
		u.pushText(u.number(4))
	case 0x8d, 0x8e: // BINUNICODE8, BINBYTES8
		u.pushText(u.number(8))
	default:
		return false
	}
	return true
}

// readLong returns a little-endian two's complement number of n bytes.
func (u *unpickler) readLong(n uint64) int64 {
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

// collection executes an instruction that makes or fills a collection.
func (u *unpickler) collection(op byte) bool {
	switch op {
	case ']', ')': // EMPTY_LIST, EMPTY_TUPLE
		u.pushList(nil)
	case 'l', 't': // LIST, TUPLE
		u.pushList(u.popToMark())
	case 0x85, 0x86, 0x87: // TUPLE1 to TUPLE3
		u.pushList(u.popN(int(op) - 0x84))
	case 'a': // APPEND
		u.extend(u.popN(1))
	case 'e': // APPENDS
		u.extend(u.popToMark())
	case '}': // EMPTY_DICT
		u.pushDict(nil)
	case 'd': // DICT
		u.pushDict(u.popToMark())
	case 's': // SETITEM
		u.set(u.popN(2))
	case 'u': // SETITEMS
		u.set(u.popToMark())
	default:
		return false
	}
	return true
}

func (u *unpickler) extend(items []any) {
	l, ok := u.top().(*List)
	if !ok {
		u.fail("appends to what is no list")
	}
	u.spend(ItemCost * len(items))
	l.Items = append(l.Items, items...)
}

func (u *unpickler) pushDict(items []any) {
	u.spend(objectCost)
	d := &Dict{}
	u.fill(d, items)
	u.push(d)
}

func (u *unpickler) set(items []any) {
	d, ok := u.top().(*Dict)
	if !ok {
		u.fail("sets items of what is no dict")
	}
	u.fill(d, items)
}

// fill adds the items whose keys u.keys names to a dict, and drops the others.
func (u *unpickler) fill(d *Dict, items []any) {
	if len(items)%2 != 0 {
		u.fail("sets a key of a dict without a value")
	}
	if d.items == nil {
		d.items = make([]item, 0, u.kept(items))
	}
	before := len(d.items)
	for i := 0; i < len(items); i += 2 {
		if key, ok := items[i].(string); ok && u.keys[key] {
			d.set(key, items[i+1])
		}
	}
	u.spend(entryCost * (len(d.items) - before))
}

// kept returns the number of items that a dict keeps.
func (u *unpickler) kept(items []any) (n int) {
	for i := 0; i < len(items); i += 2 {
		if key, ok := items[i].(string); ok && u.keys[key] {
			n++
		}
	}
	return min(n, len(u.keys))
}

func (u *unpickler) top() any {
	v := u.pop()
	u.push(v)
	return v
}

// memory executes an instruction on the memo.
func (u *unpickler) memory(op byte) bool {
	switch op {
	case 0x94: // MEMOIZE
		u.put(uint64(len(u.memo)))
	case 'q':
		u.put(u.number(1))
	case 'r':
		u.put(u.number(4))
	case 'h':
		u.get(u.number(1))
	case 'j':
		u.get(u.number(4))
	default:
		return false
	}
	return true
}

// put stores the top of the stack in the memo under a number. Picklers count from zero.
func (u *unpickler) put(i uint64) {
	switch n := uint64(len(u.memo)); {
	case i > n:
		u.fail("sets memo %d before %d", i, n)
	case i == n:
		u.spend(ItemCost)
		u.memo = append(u.memo, u.top())
	default:
		u.memo[i] = u.top()
	}
}

func (u *unpickler) get(i uint64) {
	if i >= uint64(len(u.memo)) {
		u.fail("uses memo %d before it is set", i)
	}
	u.push(u.memo[i])
}
