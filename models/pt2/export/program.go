package export

// Program is an exported model.
type Program struct {
	// Torch is the version that wrote the file, as far as the file says.
	Torch string
	// Modules are the paths of all modules in the order of named_modules(); the
	// model itself is "".
	Modules []string
	// Inputs are the inputs of the graph in order: parameters, buffers and
	// constants of the model, then what forward is called with.
	Inputs []Input
	// Results are what forward returns, in order, with their names if they have
	// any (those of a dict or a dataclass).
	Results []Result
	// Nodes are the calls in the order in which they run.
	Nodes []Node
	// Values are how many values there are; they are numbered from 0.
	Values int
	// Names are the names of values in their own graphs, for messages.
	Names []string
	// Ranges are the bounds of symbols.
	Ranges map[string]Range
	// Extra is what vprof capture put beside the graph, nil if nothing.
	Extra *Extra
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
	Role Role
	// Name is that in named_parameters() or named_buffers(); of a user input it is
	// the argument's.
	Name  string
	Value int32
	// Type and Sizes are those of a tensor; Number says that it is none.
	Type         ScalarType
	Sizes        []Size
	RequiresGrad bool
	Number       bool
	Size         Size
}

// Result is something that forward returns.
type Result struct {
	Name string
	// Value is -1 for what is no value of the graph: None, a number.
	Value int32
}

// Range bounds a symbol. Max is 0 if there is no bound.
type Range struct{ Min, Max int64 }

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
	// Opaque is what no recording needs: a device, a layout, an object.
	Opaque
)

// Argument is what a call is given, or what it returns.
type Argument struct {
	Kind Kind
	// Ref is the number of a value.
	Ref  int32
	Int  int64
	Real float64
	Text string
	List []Argument
}

// Named is an argument with the name that the operator's schema gives it.
type Named struct {
	Name string
	Argument
}

// Node is a call in the graph, or the beginning or end of a block.
type Node struct {
	// Target is what is called: "torch.ops.aten.layer_norm.default".
	Target string
	// Number counts the nodes of all graphs, those of a nested one after the node
	// that holds it; a Close has that of the node before it.
	Number  int32
	Block   Block
	Inputs  []Named
	Outputs []Argument
	// Module is the path of the module whose code made the call, Class its class.
	Module, Class string
	// Trace are the Python frames of the call, the outermost first.
	Trace []Frame
}

// Block says that a node opens or closes a block of Python's with statement.
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
