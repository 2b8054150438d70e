package export

import "github.com/vprof/vprof/models/pt2/asked"

// Program is an exported model.
type Program struct {
	// Torch is the version that wrote the file, as far as the file says.
	Torch string `json:"torch,omitempty"`
	// Class is the class of the model: "timm.models.resnet.ResNet".
	Class string `json:"class,omitempty"`
	// Modules are the paths of all modules in the order of named_modules(); the
	// model itself is "".
	Modules []string `json:"modules,omitempty"`
	// Inputs are the inputs of the graph in order: parameters, buffers and
	// constants of the model, then what forward is called with.
	Inputs []Input `json:"inputs"`
	// Results are what forward returns, in order, with their names if they have
	// any (those of a dict or a dataclass).
	Results []Result `json:"results"`
	// Nodes are the calls in the order in which they run.
	Nodes []Node `json:"nodes"`
	// Values are how many values there are; they are numbered from 0.
	Values int `json:"values"`
	// Names are the names of values in their own graphs.
	Names []string `json:"-"`
	// Blocks is the pattern of the modules that checkpointing recomputes unless it
	// is told others.
	Blocks string `json:"blocks,omitempty"`
	// Ranges are the bounds of symbols.
	Ranges map[string]Range `json:"ranges,omitempty"`
	// Functions are the calls of autograd.Functions, in order.
	Functions []FunctionCall `json:"functions,omitempty"`
	// Kernels are the nodes in whose place liger-kernel has kernels of its own, in order.
	Kernels []KernelCall `json:"liger,omitempty"`
	// Extra is what vprof capture put beside the graph, nil if nothing.
	Extra *Extra `json:"extra,omitempty"`
	// Asked is what cuDNN said itself about the convolutions, nil if nobody asked.
	Asked asked.Answers `json:"asked,omitempty"`
	// Oracle is whom to ask about others; nil for nobody.
	Oracle asked.Oracle `json:"-"`
}

// Role is what an input of the graph is for.
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
	Role Role `json:"role,omitempty"`
	// Name is that in named_parameters() or named_buffers(); of a user input it is
	// the argument's.
	Name  string `json:"name"`
	Value int32  `json:"value"`
	// Type and Sizes are those of a tensor. Number says that it is none but a
	// whole number, Size.
	Type         ScalarType `json:"type,omitempty"`
	Sizes        []Size     `json:"sizes,omitempty"`
	RequiresGrad bool       `json:"requires_grad,omitempty"`
	Number       bool       `json:"number,omitempty"`
	Size         Size       `json:"size,omitzero"`
}

// Result is something that forward returns.
type Result struct {
	Name string `json:"name,omitempty"`
	// Value is -1 for what is no value of the graph: None, a number.
	Value int32 `json:"value"`
	// Type and Dims are the element type and the number of dimensions.
	Type ScalarType `json:"type,omitempty"`
	Dims int        `json:"dims,omitempty"`
}

// Range bounds a symbol. Max is 0 if there is no bound.
type Range struct {
	Min int64 `json:"min,omitempty"`
	Max int64 `json:"max,omitempty"`
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

// FunctionCall is the nodes from Begin to End, which ran in the forward of an
// autograd.Function. Line is the line of the model that called it.
type FunctionCall struct {
	Name  string `json:"name"`
	Line  string `json:"line"`
	Begin int    `json:"begin"`
	End   int    `json:"end"`
}

// KernelCall is the nodes from Begin to End, in whose place liger-kernel has a kernel.
type KernelCall struct {
	Kernel Kernel `json:"kernel"`
	Begin  int    `json:"begin"`
	End    int    `json:"end"`
}

// Kernel is what liger-kernel has in the place of nodes.
type Kernel string

// The kernels. A gated product is the first and the last of its nodes: the activation and
// the product.
const (
	RMSNorm      Kernel = "rms-norm"
	FreshRMSNorm Kernel = "rms-norm-fresh" // whose gradient is a tensor of its own
	Rotary       Kernel = "rotary"
	GatedProduct Kernel = "gated-product"
)

// Kind says what an argument or result is.
type Kind uint8

// The kinds of arguments; those of lists have their elements in List.
const (
	None Kind = iota
	// Ref is a value of the graph: a tensor or a number.
	Ref
	Integer
	Real
	Boolean
	Text
	Type
	MemoryFormat
	List
	// TypeOf is the element type of the first tensor of floating point in List.
	TypeOf
	// Opaque is what no recording needs: a device, a layout, an object.
	Opaque
)

// Argument is what a call is given, or what it returns.
type Argument struct {
	Kind Kind `json:"k,omitempty"`
	// Ref is the number of a value.
	Ref  int32      `json:"v,omitempty"`
	Int  int64      `json:"i,omitempty"`
	Real RealNumber `json:"f,omitempty"`
	Text string     `json:"t,omitempty"`
	List []Argument `json:"l,omitempty"`
}

// Named is an argument with the name that the operator's schema gives it.
type Named struct {
	Name string `json:"n,omitempty"`
	Argument
}

// Node is a call in the graph, or the beginning or end of a block.
type Node struct {
	// Target is what is called: "torch.ops.aten.layer_norm.default".
	Target string `json:"target,omitempty"`
	// Number counts the nodes of all graphs, those of a nested one after the node
	// that holds it; a Close has that of the node before it.
	Number  int32      `json:"number"`
	Block   Block      `json:"block,omitempty"`
	Inputs  []Named    `json:"in,omitempty"`
	Outputs []Argument `json:"out,omitempty"`
	// Module is the path of the module whose code made the call, Class its class.
	Module string `json:"module,omitempty"`
	Class  string `json:"class,omitempty"`
	// Line is the innermost line of the model itself, "file.py:12:forward".
	Line string `json:"line,omitempty"`
	// CastsNothing says that the node is a cast to the type that its argument had
	// in the export.
	CastsNothing bool `json:"-"`
	// Stack are the paths of the modules whose calls the call is in, the outermost
	// first; the second call of a module has "@1" after its path. Classes are the
	// classes of the modules.
	Stack   []string `json:"-"`
	Classes []string `json:"-"`
	// Trace are the Python frames of the call, the outermost first.
	Trace []Frame `json:"-"`
	// Dies are the values that Python lets go of once the node has run, in order.
	Dies []int32 `json:"dies,omitempty"`
}

// Block says whether a node is a call, or opens or closes a block of Python's with statement
// (no_grad, autocast), which surrounds the nodes between.
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
