// Package program defines the interface between recording and replay: a flat, ordered list of instructions, to which a
// recorded training step is reduced. It has no tensors, models, allocators or devices. A recorder writes a Program, and
// a replay reads it.
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
	// Free frees buffer Arg.
	Free
	// Launch runs op Arg on its operands.
	Launch
	// MarkPhase ends phase Arg, which consists of the instructions since the previous mark.
	MarkPhase
	// EmptyCache releases cached memory to the device, as torch.cuda.empty_cache() does. Arg is unused.
	EmptyCache
	// RecordEvent records event Arg on its stream.
	RecordEvent
	// AwaitEvent performs wait Arg: the stream continues only after the event.
	AwaitEvent
)

var kindNames = [...]string{"alloc", "free", "launch", "mark", "empty-cache", "record", "await"}

// Instruction is one entry of a program. Arg indexes the table that Kind names: Buffers, Ops, Phases, Events or Waits.
type Instruction struct {
	Kind Kind
	Arg  uint32
}

// Buffer is one allocation: a storage that tensors and their views share. Each buffer is allocated exactly once and
// freed at most once.
type Buffer struct {
	// Bytes is the requested size, before the allocator rounds it.
	Bytes int64
	// Class is the buffer's use, over its whole life.
	Class Class
	// Stream is the current stream at the allocation. The buffer's memory comes from its pool and returns to it.
	Stream Stream
	// Site is the index in Program.Sites of the place that allocated the buffer.
	Site uint32
}

// Operand is a buffer that an op reads or writes, with the number of bytes.
type Operand struct {
	Buffer uint32
	Bytes  int64
}

// Op is a kernel launch of the training step: the memory traffic and arithmetic that a synthetic kernel reproduces.
type Op struct {
	Work Work
	// Precision is the precision of the arithmetic.
	Precision Precision
	// Stream is the stream on which the op runs.
	Stream Stream
	// ChannelsLast reports whether the images that the op reads or writes are laid out with their channels last.
	ChannelsLast bool `json:",omitempty"`
	Site         uint32
	// Reads and Writes are half-open ranges of Program.Operands.
	Reads, Writes Span
	// FLOPs counts a multiply-add as two.
	FLOPs int64
	// ProductIndex is the one-based index in Program.Products of the op's matrix product if its Work is [Matmul],
	// [Convolution] or [Attention], or of the groups of a [Normalization]; zero is none. Several ops may share one.
	ProductIndex uint32 `json:"Product"`
	// GroupSize is the number of ranks that take part in a collective; zero for other kinds of work.
	GroupSize uint32 `json:"Group"`
}

// Stream is a CUDA stream, as an index into [Program.Streams]. Zero is the compute stream, the only one unless ranks
// communicate.
type Stream uint8

// Event is a CUDA event recorded on a stream.
type Event struct{ Stream Stream }

// Wait makes a stream wait for an event.
type Wait struct {
	Stream Stream
	Event  uint32
}

// Product is a batch of matrix products of [M, K] with [K, N]. For a [Normalization] it describes M groups that each
// have a mean. A group consists of Batch runs of N elements; K is zero.
type Product struct {
	M, N, K, Batch int64
	// Window is the geometry of a two-dimensional convolution.
	Window Window
}

// Window is the geometry of a two-dimensional convolution's filters over its images, which are the input, or the output
// of a transposed convolution. Sizes are in pixels. The zero value means no convolution.
type Window struct {
	Images, Height, Width int64
	// TapsY and TapsX are the height and width of a filter.
	TapsY, TapsX, StrideY, StrideX, PadY, PadX, DilationY, DilationX int64
	// Groups is the largest power of two that divides the numbers of input and output channels over all groups.
	Groups int64 `json:"Lanes"`
}

// Span is a half-open range of indices.
type Span struct{ From, To uint32 }

// Work is the kind of kernel that an op needs.
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
	// the data that the rank receives.

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

// Precision is the precision of an op's arithmetic.
type Precision uint8

// The precisions at which GPUs have different speeds.
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

// Site is the place of an allocation or an operator, by PyTorch's names.
type Site struct {
	// Op is the operator that the model or the autograd node called.
	Op string
	// Native is the C++ function within Op that allocated.
	Native string
	// Node is the name of the autograd node; empty in forward.
	Node string
	// Module is the module's path, as in named_modules(); empty outside of modules.
	Module string
	// Where is the source line of the model as file:line:function, if recorded.
	Where string
}

// Phase is a section of the program, such as the forward pass of a step.
type Phase struct {
	// Step is -1 for set-up, then the index of the step.
	Step int
	Name string
}

// String formats the phase with the number of its step, counted from one: "1:forward" belongs to the first step. Set-up
// has no number.
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
	// Streams are the names of the streams, the compute stream first; empty if it is the only one.
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

// SentBytes returns the bytes that a rank sends over its links in a collective. In a ring, every byte passes each other
// rank once, and the ranks share this work; an all-reduce sends twice as much. It is zero for other ops.
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

// MovedBytes returns the number of bytes that an op reads and writes.
func (p *Program) MovedBytes(op *Op) int64 { return p.bytes(op.Reads) + p.bytes(op.Writes) }

func (p *Program) bytes(s Span) int64 {
	var sum int64
	for _, o := range p.Operands[s.From:s.To] {
		sum += o.Bytes
	}
	return sum
}

// Live iterates over the instructions, each with the requested bytes that are live after it.
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

// Peak returns the maximum of the requested live bytes.
func (p *Program) Peak() (peak int64) {
	for _, now := range p.Live() {
		peak = max(peak, now)
	}
	return peak
}

// LeftBytes returns the requested bytes that are live at the program's end.
func (p *Program) LeftBytes() (left int64) {
	for _, now := range p.Live() {
		left = now
	}
	return left
}

// FLOPs returns the floating-point operations of all ops. A multiply-add counts as two.
func (p *Program) FLOPs() int64 { return lists.Sum(p.Ops, func(op Op) int64 { return op.FLOPs }) }

// JSON files contain the names of kinds, classes, works and precisions.

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

// parseName sets a constant to the value with the given name.
func parseName[T ~uint8](to *T, text []byte, names []string) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("unknown name %q: need one of %s", text, strings.Join(names, ", "))
	}
	*to = T(i)
	return nil
}
