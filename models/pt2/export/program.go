package export

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/vprof/vprof/models/pt2/cudnnanswers"
)

// Program is a model exported by torch.export.
type Program struct {
	// Torch is the version of PyTorch that wrote the file; empty if the file does not hold it.
	Torch string
	// Class is the Python class of the model, such as "timm.models.resnet.ResNet".
	Class string
	// Modules are the paths of all modules in the order of named_modules(); the model itself is "".
	Modules []string
	// Inputs are the graph's inputs in order: the model's parameters, buffers and constants, then forward's arguments.
	Inputs []Input
	// Results are the values that forward returns, in order, with their names if it returns a dict or a dataclass.
	Results []Result
	// Nodes are the operator calls of the graph in the order in which they run.
	Nodes []Node
	// Values is the number of values; they are numbered from 0.
	Values int
	// Names are the names that the graphs give to values, by value number.
	Names []string
	// Blocks is a pattern of module paths: the modules that activation checkpointing recomputes by default.
	Blocks string
	// Ranges are the bounds of symbols, by name.
	Ranges map[string]Range
	// Functions are the calls of autograd.Functions, in order.
	Functions []FunctionCall
	// Kernels are the groups of nodes that liger-kernel replaces by one kernel, in order.
	Kernels []KernelCall
	// First are the graphs of the first forward, one per captured batch size, if it does more than later ones.
	First []*Program
	// Extra is what vprof capture put next to the graph, nil if nothing.
	Extra *Extra
	// Asked holds the workspace sizes that cuDNN itself returned for the convolutions; nil if it was not asked.
	Asked cudnnanswers.Answers
	// CuDNN asks cuDNN for the workspaces of convolutions that are not in Asked; nil if it cannot be asked.
	CuDNN cudnnanswers.Source

	// model and extra are the contents of the archive entries that the program was read from.
	model, extra []byte
}

// Role is the kind of a graph's input: parameter, buffer, constant or an argument of forward.
type Role uint8

// The roles of a graph's inputs.
const (
	Parameter Role = iota
	Buffer
	Constant
	UserInput
)

// Input is an input of the graph: a tensor or a number.
type Input struct {
	Role Role
	// Name is the name in named_parameters() or named_buffers(), or the name of forward's argument.
	Name  string
	Value int32
	// Type, Sizes and Strides describe a tensor. If Number is true, the input is an integer, and Size is its value.
	Type         ScalarType
	Sizes        []Size
	Strides      []Size
	RequiresGrad bool
	Number       bool
	Size         Size
}

// Result is a value that forward returns.
type Result struct {
	Name string
	// Value is the number of the graph's value, or -1 for a result that the graph does not compute: None or a number.
	Value int32
	// Type and Dims are the tensor's dtype and number of dimensions.
	Type ScalarType
	Dims int
}

// Range holds the bounds of a symbol. Max is 0 if there is no upper bound.
type Range struct {
	Min int64
	Max int64
}

// ScalarType is a dtype, by its number in the export schema.
type ScalarType uint8

// The dtypes that occur in training.
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

// FunctionCall is a call of an autograd.Function: its forward ran the nodes from Begin to End. Line is the source line
// of the model that called it.
type FunctionCall struct {
	Name  string `json:"name"`
	Line  string `json:"line"`
	Begin int    `json:"begin"`
	End   int    `json:"end"`
	// Backward is the index of the first node of the function's backward in the graph, 0 if it is unknown. AMP reports
	// whether backward runs under forward's autocast. Gives marks the tensor arguments that get a gradient.
	Backward int    `json:"backward,omitempty"`
	AMP      bool   `json:"amp,omitempty"`
	Gives    []bool `json:"gives,omitempty"`
}

// KernelCall is a group of nodes, from Begin to End, that liger-kernel replaces by one kernel.
type KernelCall struct {
	Kernel Kernel
	Begin  int
	End    int
}

// Kernel is the name of a liger-kernel kernel that replaces nodes.
type Kernel string

// The kernels. A GatedProduct (SwiGLU, GeGLU) replaces its first and last node: the activation and the product.
const (
	RMSNorm           Kernel = "rms-norm"
	OutOfPlaceRMSNorm Kernel = "rms-norm-fresh" // see [liger.Norm]
	Rotary            Kernel = "rotary"
	GatedProduct      Kernel = "gated-product"
)

// Kind is the type of an argument or result.
type Kind uint8

// The kinds of arguments. A List holds its elements in Argument.List.
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
	// TypeOf is the dtype of the first floating-point tensor in Argument.List.
	TypeOf
	// Opaque is an argument that the recorder does not need: a device, a layout, an object.
	Opaque
)

// Argument is an argument or a result of an operator call.
type Argument struct {
	Kind Kind
	// Ref is the number of the graph's value, if Kind is Ref.
	Ref  int32
	Int  int64
	Real float64
	Text string
	List []Argument
	// Autocast tells what autocast does to a dtype argument that is float32 in the graph.
	Autocast UnderAutocast
}

// UnderAutocast tells whether autocast changes a dtype argument, if that was observed.
type UnderAutocast int8

// A constant dtype (x.to(torch.float32)) stays. A tensor's dtype (x.to(y.dtype)) halves if y is in half precision.
const (
	AutocastUnknown UnderAutocast = iota
	AutocastKeeps
	AutocastHalves
)

// NamedArgument is an argument with its name in the operator's schema.
type NamedArgument struct {
	Name string
	Argument
}

// Node is an operator call in the graph, or the beginning or end of a block.
type Node struct {
	// Target is the called operator, such as "torch.ops.aten.layer_norm.default".
	Target string
	// Number is the node's number over all graphs: nodes of a nested graph follow the node that holds it. The end of a
	// block has the number of the node before it.
	Number  int32
	Block   Block
	Inputs  []NamedArgument
	Outputs []Argument
	// Module is the path of the module whose forward made the call, Class is its Python class.
	Module string
	Class  string
	// Line is the innermost source line of the model's own code, as "file.py:12:forward".
	Line string
	// CastsNothing reports whether the node is a cast to the dtype that its argument already had at export.
	CastsNothing bool
	// Stack are the paths of the modules that the call is inside, outermost first; a module's second call has "@1"
	// after its path. Classes are the Python classes of these modules.
	Stack   []string
	Classes []string
	// Trace are the Python frames of the call, the outermost first.
	Trace []Frame
	// Dies are the values that Python releases after the node, in order.
	Dies []int32
}

// Block tells whether a node is an operator call or begins or ends a block: the body of a Python with statement.
type Block uint8

// The kinds of blocks (no_grad, enable_grad, autocast, and one without effect on the recorder). Close ends any of them.
const (
	Call Block = iota
	OpenNoGrad
	OpenGrad
	OpenAutocast
	OpenPlain
	Close
)

// Frame is a Python frame of a node's stack trace.
type Frame struct {
	File string
	Line int
	Func string
	// Source is the text of the source line, empty if it is unknown.
	Source string
}

// parseTrace reads the frames of a Python traceback:
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

// ownLine returns the innermost source line outside of PyTorch's modules.
func ownLine(trace []Frame) string {
	for i := len(trace) - 1; i >= 0; i-- {
		f := trace[i]
		if !strings.Contains(f.File, "/torch/nn/") && !strings.Contains(f.File, "-packages/torch/") {
			return fmt.Sprintf("%s:%d:%s", path.Base(f.File), f.Line, f.Func)
		}
	}
	return ""
}
