// Package program holds the narrow waist of vprof: the flat, ordered list of
// instructions that a recorded training step comes down to. It knows nothing
// of tensors, models, allocators or devices; a recorder writes a Program and
// a replay reads it.
package program

// Kind says what an [Instruction] does.
type Kind uint8

const (
	// Alloc brings buffer Arg to life.
	Alloc Kind = iota
	// Free ends buffer Arg.
	Free
	// Launch runs op Arg over its operands.
	Launch
	// Mark ends phase Arg: everything since the mark before belongs to it.
	Mark
	// EmptyCache gives cached memory back to the device, as
	// torch.cuda.empty_cache() does. Arg is unused.
	EmptyCache
)

// Instruction is one entry of a program. Arg indexes the table that Kind
// names: Buffers, Ops or Phases.
type Instruction struct {
	Kind Kind
	Arg  uint32
}

// Buffer is one allocation: a storage that tensors and their views share.
// Every buffer is allocated exactly once and freed at most once.
type Buffer struct {
	// Bytes is the size as requested, before the allocator rounds it.
	Bytes int64
	// Class says what the buffer was for, over its whole life.
	Class Class
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
	Site      uint32
	// Reads and Writes are half-open ranges of Program.Operands.
	Reads, Writes Span
	// FLOPs counts a multiply-add as two.
	FLOPs int64
	// Product is the number of the matrix product in Program.Products that an
	// op of Work [Matmul], [Convolution] or [Attention] amounts to, counted from
	// one; zero is none. Ops may share one.
	Product uint32
}

// Product is Batch matrix products of [M, K] with [K, N].
type Product struct{ M, N, K, Batch int64 }

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
	numWorks
)

var workNames = [numWorks]string{"elementwise", "copy", "reduction", "normalization", "softmax", "index", "matmul", "convolution", "attention", "optimizer-update"}

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

// Site says where something happened, in the words of PyTorch.
type Site struct {
	// Op is the operator called from the model or by the autograd node.
	Op string
	// Native is the function inside it that allocated.
	Native string
	// Node is the autograd node; empty in forward.
	Node string
	// Module is the path of the module, as in named_modules(); empty outside.
	Module string
	// Where is the line of the model, file:line:function, if recorded.
	Where string
}

// Phase is a stretch of the program, named as the reference data does.
type Phase struct {
	// Step is -1 for set-up, then 0, 1, ...
	Step int
	Name string
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
}

// ProductOf is the matrix product that an op amounts to; zero if it is none.
func (p *Program) ProductOf(op *Op) Product {
	if op.Product == 0 {
		return Product{}
	}
	return p.Products[op.Product-1]
}
