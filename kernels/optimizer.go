package kernels

import (
	"math"

	"github.com/vprof/vprof/internal/ceil"
)

// Part is a parameter of an update. Addrs are the addresses of its tensors, one per list (weight, gradient, moments),
// and Bytes is the size of each tensor.
type Part struct {
	Bytes int64
	Addrs []uint64
}

// The number of words in the table of parts of a kernel's arguments (table_words of optimizer.cu), and the number of
// bytes of each list that a block processes.
const (
	tableWords = 480
	chunkBytes = 32 << 10
)

// MaxParts returns the largest number of parts of a launch with a number of lists.
func MaxParts(lists int) int { return tableWords / (2 + lists) }

// Update updates many tensors in one launch. Like [Elementwise], it writes the sum of the read lists, after applying
// Scale and Shift Rounds times.
type Update struct {
	Type Type
	// Read and Written are bit masks of the lists that are read and written: bit l stands for list l.
	Read, Written uint64
	Parts         []Part
	Rounds        int64
	Scale, Shift  float64
	// Settled is the same as in [Elementwise].
	Settled bool
}

var updateNames = forTypes("update")

// Launch returns the kernel launch. There must be one to [MaxParts] parts, all with the same number of lists.
func (k Update) Launch() Launch {
	l, sum := updateLaunch(updateNames[k.Type], k.Parts)
	lists := len(k.Parts[0].Addrs)
	var read, written int64
	for list := range lists {
		read += int64(k.Read >> list & 1)
		written += int64(k.Written >> list & 1)
	}
	l.Args[2], l.Args[3], l.Args[4], l.Args[5] = k.Read, k.Written, uint64(k.Rounds), bit(k.Settled)
	l.Args[6], l.Args[7] = math.Float64bits(k.Scale), math.Float64bits(k.Shift)
	l.Reads, l.Writes = read*sum, written*sum
	l.FLOPs = sum / k.Type.Size() * (max(read-1, 0) + 2*k.Rounds)
	return l
}

func updateLaunch(name string, parts []Part) (l Launch, bytes int64) {
	const table = 8 // words before it
	lists := len(parts[0].Addrs)
	if len(parts) > MaxParts(lists) {
		panic("kernels: " + name + ": too many parts")
	}
	args := make([]uint64, table+tableWords)
	args[0], args[1] = uint64(len(parts)), uint64(lists)
	chunks := int64(0)
	for i, p := range parts {
		entry := args[table+i*(2+lists):]
		entry[0], entry[1] = uint64(chunks), uint64(p.Bytes)
		copy(entry[2:2+lists], p.Addrs)
		chunks += ceil.Div(p.Bytes, chunkBytes)
		bytes += p.Bytes
	}
	return newLaunch(name, chunks, 0, args), bytes
}
