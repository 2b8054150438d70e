package forest

import "encoding/binary"

// numbers is a list of unsigned numbers that lie in bits one after the other, all equally wide.
type numbers struct {
	packed []byte // see packedSize
	width  int    // bits of a number, at most mostBits
}

// A number is read with the four bytes that it begins in, of which up to seven bits are those of the
// number before it.
const mostBits = 32 - 7

// packedSize is how many bytes n numbers of that width take, so that four can be read at each.
func packedSize(n, width int) int { return n*width/8 + 4 }

// pack makes a list of values below 1<<width.
func pack(values []int, width int) numbers {
	p := numbers{make([]byte, packedSize(len(values), width)), width}
	for i, v := range values {
		at := p.packed[i*width/8:]
		binary.LittleEndian.PutUint32(at, binary.LittleEndian.Uint32(at)|uint32(v)<<(i*width%8))
	}
	return p
}

// at is number i.
func (p numbers) at(i int) int {
	bit := i * p.width
	return int(binary.LittleEndian.Uint32(p.packed[bit/8:])>>(bit%8)) & (1<<p.width - 1)
}
