// Package program holds the narrow waist of vprof: the flat, ordered list of instructions that a recorded training step
// comes down to. It knows no tensors, models, allocators or devices; a recorder writes a Program, a replay reads it.
package program

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
)

// Kind describes what an [Instruction] does.
type Kind uint8

const (
	// Alloc allocates buffer Arg.
	Alloc Kind = iota
	// Free ends buffer Arg.
	Free
	// Launch runs op Arg over its operands.
	Launch
	// MarkPhase ends phase Arg, which consists of the instructions since the previous mark.
	MarkPhase
	// EmptyCache gives cached memory back to the device, as torch.cuda.empty_cache() does. Arg is unused.
	EmptyCache
	// RecordEvent puts event Arg into the queue of its stream.
	RecordEvent
	// AwaitEvent is wait Arg: its stream continues only once its event was reached.
	AwaitEvent
)

var kindNames = [...]string{"alloc", "free", "launch", "mark", "empty-cache", "record", "await"}

// Instruction is one entry of a program. Arg indexes the table that Kind names: Buffers, Ops, Phases, Events or Waits.
type Instruction struct {
	Kind Kind
	Arg  uint32
}

// Buffer is one allocation: a storage that tensors and their views share.
// Every buffer is allocated exactly once and freed at most once.
type Buffer struct {
	// Bytes is the size as requested, before the allocator rounds it.
	Bytes int64
	// Class describes what the buffer was for, over its whole life.
	Class Class
	// Stream is the one that was current when it was allocated: its memory is
	// taken from that stream's pool and goes back there.
	Stream Stream
	// Site indexes Sites: where the buffer was allocated.
	Site uint32
}

// Operand is a buffer read or written by an op, with the bytes touched.
type Operand struct {
	Buffer uint32
	Bytes  int64
}

// Op is a piece of work on the device: what a synthetic kernel must do to
// have the traffic and the arithmetic of the real one.
type Op struct {
	Work Work
	// Precision of the arithmetic.
	Precision Precision
	// Stream is the queue that the op waits in.
	Stream Stream
	// ChannelsLast reports whether the images that the op reads or writes are laid out with their channels last.
	ChannelsLast bool `json:",omitempty"`
	Site         uint32
	// Reads and Writes are half-open ranges of Program.Operands.
	Reads, Writes Span
	// FLOPs counts a multiply-add as two.
	FLOPs int64
	// ProductIndex is the number of the matrix product in Program.Products that an op of Work [Matmul], [Convolution]
	// or [Attention] amounts to, or of the groups of a [Normalization], counted from one; zero is none. Ops may share
	// one.
	ProductIndex uint32 `json:"Product"`
	// GroupSize is the number of ranks that take part in a collective; zero for other works.
	GroupSize uint32 `json:"Group"`
}

// Stream is a queue of work on the device, an index into [Program.Streams]. Zero is
// the stream that computes, the only one unless ranks communicate.
type Stream uint8

// Event is a point in the work of a stream.
type Event struct{ Stream Stream }

// Wait holds up a stream until an event was reached.
type Wait struct {
	Stream Stream
	Event  uint32
}

// Product is a batch of matrix products of [M, K] with [K, N]. For a [Normalization] it is M groups with a mean each,
// made of Batch runs of N elements; K is zero.
type Product struct {
	M, N, K, Batch int64
	// Window is the geometry of a convolution in two dimensions.
	Window Window
}

// Window is the geometry of a two-dimensional convolution's filters over its images: the input, or the output of a
// transposed convolution. Sizes are in pixels; the zero value is no window.
type Window struct {
	Images, Height, Width int64
	// TapsY and TapsX are the extent of a filter.
	TapsY, TapsX, StrideY, StrideX, PadY, PadX, DilationY, DilationX int64
	// Groups is the largest power of two that divides the channels of the input and of the output, over all groups.
	Groups int64 `json:"Lanes"`
}

// Span is a half-open range of indices.
type Span struct{ From, To uint32 }

// Work is the kind of kernel an op needs.
type Work uint8

// The kinds of work.
const (
	Elementwise Work = iota
	Copy
	Reduction
	Normalization
	Softmax
	Index
	Matmul
	Convolution
	Attention
	OptimizerUpdate

	// The collectives, in which the ranks of a group exchange data. They read the data that the rank sends and write
	// the data that it receives.

	AllGather
	ReduceScatter
	AllReduce
	Broadcast
	Send
	Receive
	numWorks
)

var workNames = [numWorks]string{
	"elementwise", "copy", "reduction", "normalization", "softmax", "index", "matmul", "convolution", "attention",
	"optimizer-update",
	"all-gather", "reduce-scatter", "all-reduce", "broadcast", "send", "receive",
}

// IsCollective reports whether ranks take part in the work together.
func (w Work) IsCollective() bool { return w >= AllGather && w < numWorks }

func (w Work) String() string {
	if w < numWorks {
		return workNames[w]
	}
	return "unknown"
}

// Precision is the arithmetic of an op.
type Precision uint8

// The precisions a device has different speeds for.
const (
	FP32 Precision = iota
	TF32
	FP16
	BF16
	FP64
	numPrecisions
)

var precisionNames = [numPrecisions]string{"fp32", "tf32", "fp16", "bf16", "fp64"}

func (p Precision) String() string {
	if p < numPrecisions {
		return precisionNames[p]
	}
	return "unknown"
}

// Site is where an allocation or an operator happened, by PyTorch's names.
type Site struct {
	// Op is the operator called from the model or by the autograd node.
	Op string
	// Native is the function inside Op that allocated.
	Native string
	// Node is the autograd node; empty in forward.
	Node string
	// Module is the path of the module, as in named_modules(); empty outside.
	Module string
	// Where is the line of the model, file:line:function, if recorded.
	Where string
}

// Phase is a section of the program, such as the forward pass of a step.
type Phase struct {
	// Step is -1 for set-up, then 0, 1, ...
	Step int
	Name string
}

// String returns the phase as people count steps: "1:forward" belongs to the first step. Set-up has no number.
func (p Phase) String() string {
	if p.Step < 0 {
		return p.Name
	}
	return fmt.Sprintf("%d:%s", p.Step+1, p.Name)
}

// Program is one or more recorded training steps.
type Program struct {
	Instructions []Instruction
	Buffers      []Buffer
	Ops          []Op
	Operands     []Operand
	Products     []Product
	Sites        []Site
	Phases       []Phase
	// Streams are the names of the streams, the computing one first; empty for a program that has only that one.
	Streams []string
	Events  []Event
	Waits   []Wait
}

// ProductOf returns the matrix product of an op; zero if it is none.
func (p *Program) ProductOf(op *Op) Product {
	if op.ProductIndex == 0 {
		return Product{}
	}
	return p.Products[op.ProductIndex-1]
}

// SentBytes returns the bytes that a rank sends over its links in a collective. In a ring every byte is sent once to
// each other rank, and the ranks share this work; an all-reduce sends twice as much. It is zero for other ops.
func (p *Program) SentBytes(op *Op) int64 {
	if op.GroupSize < 2 {
		return 0
	}
	others := func(bytes int64) int64 { return bytes / int64(op.GroupSize) * int64(op.GroupSize-1) }
	switch op.Work {
	case AllGather:
		return others(p.bytes(op.Writes))
	case ReduceScatter:
		return others(p.bytes(op.Reads))
	case AllReduce:
		return 2 * others(p.bytes(op.Writes))
	case Broadcast, Receive:
		return p.bytes(op.Writes)
	case Send:
		return p.bytes(op.Reads)
	default:
		return 0
	}
}

// MovedBytes returns the bytes that an op reads and writes.
func (p *Program) MovedBytes(op *Op) int64 { return p.bytes(op.Reads) + p.bytes(op.Writes) }

func (p *Program) bytes(s Span) int64 {
	var sum int64
	for _, o := range p.Operands[s.From:s.To] {
		sum += o.Bytes
	}
	return sum
}

// Live visits the instructions in order, each with the bytes as requested that are allocated after it.
func (p *Program) Live() iter.Seq2[Instruction, int64] {
	return func(yield func(Instruction, int64) bool) {
		now := int64(0)
		for _, in := range p.Instructions {
			switch in.Kind {
			case Alloc:
				now += p.Buffers[in.Arg].Bytes
			case Free:
				now -= p.Buffers[in.Arg].Bytes
			}
			if !yield(in, now) {
				return
			}
		}
	}
}

// Peak returns the largest number of requested bytes that are allocated at one time.
func (p *Program) Peak() (peak int64) {
	for _, now := range p.Live() {
		peak = max(peak, now)
	}
	return peak
}

// LeftBytes returns the requested bytes that are still allocated at the end of the program.
func (p *Program) LeftBytes() (left int64) {
	for _, now := range p.Live() {
		left = now
	}
	return left
}

// FLOPs returns the floating-point operations of all ops; a multiply-add is two.
func (p *Program) FLOPs() int64 { return lists.Sum(p.Ops, func(op Op) int64 { return op.FLOPs }) }

// In files the kinds, classes, works and precisions have their names.

// MarshalText returns the text of String, for [encoding.TextMarshaler].
func (k Kind) MarshalText() ([]byte, error) { return []byte(kindNames[k]), nil }

// UnmarshalText parses the text that MarshalText returns.
func (k *Kind) UnmarshalText(text []byte) error { return parseName(k, text, kindNames[:]) }

// MarshalText returns the text of String, for [encoding.TextMarshaler].
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText parses the text that MarshalText returns.
func (c *Class) UnmarshalText(text []byte) error { return parseName(c, text, classNames[:]) }

// MarshalText returns the text of String, for [encoding.TextMarshaler].
func (w Work) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText parses the text that MarshalText returns.
func (w *Work) UnmarshalText(text []byte) error { return parseName(w, text, workNames[:]) }

// MarshalText returns the text of String, for [encoding.TextMarshaler].
func (p Precision) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses the text that MarshalText returns.
func (p *Precision) UnmarshalText(text []byte) error { return parseName(p, text, precisionNames[:]) }

// parseName sets a constant by its name.
func parseName[T ~uint8](to *T, text []byte, names []string) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("unknown name %q: need one of %s", text, strings.Join(names, ", "))
	}
	*to = T(i)
	return nil
}
