package export

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/vprof/vprof/models/pt2/cudnnanswers"
)

// Program is an exported model.
type Program struct {
	// Torch is the version that wrote the file, as far as the file gives it.
	Torch string
	// Class is the class of the model: "timm.models.resnet.ResNet".
	Class string
	// Modules are the paths of all modules in the order of named_modules(); the model itself is "".
	Modules []string
	// Inputs are the inputs of the graph in order: parameters, buffers and
	// constants of the model, then what forward is called with.
	Inputs []Input
	// Results are what forward returns, in order, with their names if they have any (in a dict or a dataclass).
	Results []Result
	// Nodes are the calls in the order in which they run.
	Nodes []Node
	// Values is the number of values; they are numbered from 0.
	Values int
	// Names are the names of values in their own graphs.
	Names []string
	// Blocks is the pattern of the modules that checkpointing recomputes by default.
	Blocks string
	// Ranges are the bounds of symbols.
	Ranges map[string]Range
	// Functions are the calls of autograd.Functions, in order.
	Functions []FunctionCall
	// Kernels are the nodes that liger-kernel replaces by its kernels, in order.
	Kernels []KernelCall
	// First are graphs of the first forward, where it does more than those after it, each of other batches.
	First []*Program
	// Extra is what vprof capture put next to the graph, nil if nothing.
	Extra *Extra
	// Asked holds cuDNN's own answers about the convolutions, nil if it was not asked.
	Asked cudnnanswers.Answers
	// CuDNN answers questions about other convolutions; nil for none.
	CuDNN cudnnanswers.Source

	// model and extra are the entries that it was read from.
	model, extra []byte
}

// Role is the purpose of a graph's input.
type Role uint8

// The roles of inputs.
const (
	Parameter Role = iota
	Buffer
	Constant
	UserInput
)

// Input is a tensor or a number that the graph takes.
type Input struct {
	Role Role
	// Name is that in named_parameters() or named_buffers(); of a user input it is the argument's.
	Name  string
	Value int32
	// Type, Sizes and Strides describe a tensor. Number reports whether it is no tensor but a whole number, Size.
	Type         ScalarType
	Sizes        []Size
	Strides      []Size
	RequiresGrad bool
	Number       bool
	Size         Size
}

// Result is something that forward returns.
type Result struct {
	Name string
	// Value is -1 for what is no value of the graph: None, a number.
	Value int32
	// Type and Dims are the element type and the number of dimensions.
	Type ScalarType
	Dims int
}

// Range bounds a symbol. Max is 0 if there is no bound.
type Range struct {
	Min int64
	Max int64
}

// ScalarType is an element type by its number in the schema.
type ScalarType uint8

// The element types that occur in training.
const (
	Byte     ScalarType = 1
	Char     ScalarType = 2
	Short    ScalarType = 3
	Int      ScalarType = 4
	Long     ScalarType = 5
	Half     ScalarType = 6
	Float    ScalarType = 7
	Double   ScalarType = 8
	Complex  ScalarType = 10
	Bool     ScalarType = 12
	BFloat16 ScalarType = 13
)

// FunctionCall is the nodes from Begin to End, which ran in the forward of an autograd.Function. Line is the model's
// line that called it.
type FunctionCall struct {
	Name  string `json:"name"`
	Line  string `json:"line"`
	Begin int    `json:"begin"`
	End   int    `json:"end"`
	// Backward is the index of its backward's first node in the graph, 0 if it is unknown. AMP reports whether backward
	// runs under the autocast of forward, Gives marks the tensor arguments that get a gradient.
	Backward int    `json:"backward,omitempty"`
	AMP      bool   `json:"amp,omitempty"`
	Gives    []bool `json:"gives,omitempty"`
}

// KernelCall is the nodes from Begin to End, which a kernel of liger-kernel replaces.
type KernelCall struct {
	Kernel Kernel
	Begin  int
	End    int
}

// Kernel is a kernel of liger-kernel that replaces nodes.
type Kernel string

// The kernels. A gated product is the first and the last of its nodes: the activation and the product.
const (
	RMSNorm           Kernel = "rms-norm"
	OutOfPlaceRMSNorm Kernel = "rms-norm-fresh" // see [liger.Norm]
	Rotary            Kernel = "rotary"
	GatedProduct      Kernel = "gated-product"
)

// Kind describes what an argument or result is.
type Kind uint8

// The kinds of arguments; lists have their elements in List.
const (
	None Kind = iota
	// Ref is a value of the graph: a tensor or a number.
	Ref
	Integer
	Real
	Imaginary // a complex number
	Boolean
	Text
	Type
	MemoryFormat
	List
	// TypeOf is the element type of the first tensor of floating point in List.
	TypeOf
	// Opaque is an argument that no recording needs: a device, a layout, an object.
	Opaque
)

// Argument is an argument or a result of a call.
type Argument struct {
	Kind Kind
	// Ref is the number of a value.
	Ref  int32
	Int  int64
	Real float64
	Text string
	List []Argument
	// Autocast describes the type that float32 in the graph becomes under autocast.
	Autocast UnderAutocast
}

// UnderAutocast describes how a type changes under autocast, if that was observed.
type UnderAutocast int8

// A type of the code stays, a tensor's type (x.to(y.dtype)) is half precision where the tensor is.
const (
	NotSeen UnderAutocast = iota
	Stays
	Halves
)

// Named is an argument with the name that the operator's schema gives it.
type Named struct {
	Name string
	Argument
}

// Node is a call in the graph, or the beginning or end of a block.
type Node struct {
	// Target is the called function: "torch.ops.aten.layer_norm.default".
	Target string
	// Number counts the nodes of all graphs, nodes of a nested one after the node
	// that holds it; a Close has the number of the node before it.
	Number  int32
	Block   Block
	Inputs  []Named
	Outputs []Argument
	// Module is the path of the module whose code made the call, Class its class.
	Module string
	Class  string
	// Line is the innermost line of the model itself, "file.py:12:forward".
	Line string
	// CastsNothing reports whether the node is a cast to the type that its argument had in the export.
	CastsNothing bool
	// Stack are the paths of the modules whose calls the call is in, the outermost first; the second call of a module
	// has "@1" after its path. Classes are the classes of the modules.
	Stack   []string
	Classes []string
	// Trace are the Python frames of the call, the outermost first.
	Trace []Frame
	// Dies are the values that Python releases once the node has run, in order.
	Dies []int32
}

// Block reports whether a node is a call, or the beginning or end of a Python with statement (no_grad, autocast) around
// the nodes between.
type Block uint8

// The blocks; each is closed by a Close.
const (
	Call Block = iota
	OpenNoGrad
	OpenGrad
	OpenAutocast
	OpenPlain
	Close
)

// Frame is a Python frame of a stack trace.
type Frame struct {
	File string
	Line int
	Func string
	// Source is the text of the line, "" if it is not known.
	Source string
}

// parseTrace reads Python's frames:
//
//	File "model.py", line 12, in forward
//	  x = self.conv(x)
func parseTrace(text string) []Frame {
	var out []Frame
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(trimmed, `File "`); ok {
			file, rest, _ := strings.Cut(rest, `", line `)
			number, name, _ := strings.Cut(rest, ", in ")
			n, err := strconv.Atoi(number)
			if err != nil {
				continue
			}
			out = append(out, Frame{File: file, Line: n, Func: name})
			continue
		}
		if last := len(out) - 1; last >= 0 && out[last].Source == "" {
			out[last].Source = trimmed
		}
	}
	return out
}

// ownLine returns the innermost line outside of PyTorch's own modules.
func ownLine(trace []Frame) string {
	for i := len(trace) - 1; i >= 0; i-- {
		f := trace[i]
		if !strings.Contains(f.File, "/torch/nn/") && !strings.Contains(f.File, "-packages/torch/") {
			return fmt.Sprintf("%s:%d:%s", path.Base(f.File), f.Line, f.Func)
		}
	}
	return ""
}
