package export

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/vprof/vprof/internal/lists"
)

// extraVersion is the version of [Extra] that this package reads.
const extraVersion = 1

// Extra has observations of "vprof capture" in Python that the graph of a model lacks. Every part is optional; source
// lines are for readers.
type Extra struct {
	Version int `json:"version"`
	// Dies says when Python released values; nil if that was not observed.
	Dies []Death `json:"dies,omitempty"`
	// Checkpointed and Reentrant are the paths of modules whose calls ran under torch.utils.checkpoint.
	Checkpointed []string `json:"checkpointed,omitempty"`
	Reentrant    []string `json:"reentrant,omitempty"`
	// CustomFunctions are autograd.Functions, whose backward a graph does not have.
	CustomFunctions []CustomFunction `json:"custom_functions,omitempty"`
	// Functions are calls of autograd.Functions with their backward, by the numbers of nodes.
	Functions []FunctionCall `json:"functions,omitempty"`
	// Tied are names of one parameter: another name, and that in the graph.
	Tied  [][2]string `json:"tied,omitempty"`
	Batch *Batch      `json:"batch,omitempty"`
	// BatchDims are the dimensions that the user called batch, by input: the first by default.
	BatchDims map[string]int `json:"batch_dims,omitempty"`
	// Autocast has types that are float32 in the graph.
	Autocast []TypeMark `json:"autocast,omitempty"`
	// Attention has the kernels that scaled_dot_product_attention may use, where not all are allowed.
	Attention []AttentionMark `json:"attention,omitempty"`
	// Counts say of nodes with a mask how many of its elements were true in the example.
	Counts []Count `json:"counts,omitempty"`
	// Numbers are the lines at which forward went by numbers in tensors, if it was captured with some.
	Numbers []string `json:"numbers,omitempty"`
	// Replaced says of values kept after forward (self.attention = a) behind which node of the next forward they go.
	Replaced []Death `json:"replaced,omitempty"`
	// State are buffers and other attributes of modules that each forward replaces (self.memory = new).
	State []State `json:"state,omitempty"`
	// Leaves are values that forward itself has require gradients (x.detach().requires_grad_()), by name.
	Leaves []string `json:"leaves,omitempty"`
	// Assigned are copy_ nodes that stand for p.data = x.
	Assigned []int32 `json:"assigned,omitempty"`
	// Host is what is in the host's memory.
	Host Host `json:"host,omitzero"`
	// OtherWay reports whether forward calls other operators at another batch; nil if not, or not observed.
	OtherWay *OtherWay `json:"other_way,omitempty"`
	// Scripted reports whether functions of torch.jit.script were captured as Python runs them.
	Scripted bool `json:"scripted,omitempty"`
	// CublasWorkspace is the CUBLAS_WORKSPACE_CONFIG of the process; MONAI sets it when it is imported.
	CublasWorkspace string `json:"cublas_workspace,omitempty"`
	// Symbols are the sizes that are open, by the symbols of the graph.
	Symbols map[string]Symbol `json:"symbols,omitempty"`
	// First is the forward that prepares what later ones find there (a codebook, a table), where one does: its graphs
	// at batches that follow each other, and the Extra of each, whose State and Replaced are of later ones' graph.
	First []struct{ Graph, Extra json.RawMessage } `json:"first,omitempty"`
}

// inOrder reads the elements of an array into the fields of a struct, as many as there are.
func inOrder[T any](data []byte, to *T) error {
	v := reflect.ValueOf(to).Elem()
	fields := lists.Make(v.NumField(), func(i int) any { return v.Field(i).Addr().Interface() })
	return json.Unmarshal(data, &fields)
}

// TypeMark reports whether an argument of a node is half precision under autocast.
type TypeMark struct {
	Node     int32
	Argument string
	Half     bool
}

// UnmarshalJSON reads [12, "dtype", true].
func (m *TypeMark) UnmarshalJSON(data []byte) error { return inOrder(data, m) }

// AttentionMark names which kernels of attention a node may use (torch.nn.attention.sdpa_kernel).
type AttentionMark struct {
	Node    int32
	Kernels []string
}

// UnmarshalJSON reads [12, ["math"]].
func (m *AttentionMark) UnmarshalJSON(data []byte) error { return inOrder(data, m) }

// Count is the number of true elements of a node's mask: a polynomial of the batch, plus True of each Among elements.
type Count struct {
	Node                  int32
	Least, Linear, Square int64
	True, Among           int64
}

// Of returns the count of a mask of n elements, rounded down.
func (c Count) Of(n, batch int64) int64 {
	among := max(c.Among, 1)
	count := c.Least + c.Linear*batch + c.Square*batch*batch + n/among*c.True + n%among*c.True/among
	return min(max(count, 0), n) // a file can say anything
}

// UnmarshalJSON reads [12, 0, 0, 0, 3, 4].
func (c *Count) UnmarshalJSON(data []byte) error { return inOrder(data, c) }

// OtherWay is a batch size at which forward differs from the graph, and the first line that differs.
type OtherWay struct {
	Batch int64
	Line  string
}

// UnmarshalJSON reads [1031, "model.py:30"].
func (o *OtherWay) UnmarshalJSON(data []byte) error { return inOrder(data, o) }

// Symbol is the user's name of a size and its value in the example; Given reports whether the user chose that value.
type Symbol struct {
	Name    string
	Example int64
	Given   bool
}

// UnmarshalJSON reads ["seq", 512] and ["seq", 512, true].
func (s *Symbol) UnmarshalJSON(data []byte) error { return inOrder(data, s) }

// CustomFunction is an autograd.Function and the line that called it.
type CustomFunction struct {
	Name string `json:"name"`
	Line string `json:"line"`
}

// State is an input of the graph, the value that forward replaces it by, and whether it is half precision under
// autocast from the first forward on.
type State struct {
	Input, Value string
	Half         bool
}

// UnmarshalJSON reads ["b_memory", "add_3", true].
func (s *State) UnmarshalJSON(data []byte) error { return inOrder(data, s) }

// Death lists the values, by name and in order, whose last Python reference was dropped after a node of the graph had
// run; Node is its index. Detached reports whether the reference was to x.detach(), which keeps only the memory.
type Death struct {
	Node     int32
	Values   []string
	Detached bool
}

// UnmarshalJSON reads [12, ["conv2d_3", "relu"]] and [12, ["std"], true].
func (d *Death) UnmarshalJSON(data []byte) error { return inOrder(data, d) }

// Host lists what is in the host's memory when the model trains on a GPU: results of nodes, and tensors that modules
// hold without registering them (self.positions = torch.arange(n)), by their values.
type Host struct {
	Nodes []int32  `json:"nodes,omitempty"`
	Kept  []string `json:"kept,omitempty"`
}

// Batch names which integers of a graph with fixed shapes depend on the batch.
type Batch struct {
	// Exported is the batch size of the graph.
	Exported int64         `json:"exported"`
	Inputs   []AffineInput `json:"inputs"`
	Args     []AffineArg   `json:"args"`
}

// AffineInput is an input dimension whose size is A + B * batch.
type AffineInput struct {
	Name      string
	Dimension int
	A, B      int64
}

// UnmarshalJSON reads ["x", 0, 0, 1].
func (a *AffineInput) UnmarshalJSON(data []byte) error { return inOrder(data, a) }

// AffineArg is an integer argument of a node that is A + B * batch.
type AffineArg struct {
	Node  int32
	Name  string
	Index int
	A, B  int64
}

// UnmarshalJSON reads [57, "size", 0, 0, 1].
func (a *AffineArg) UnmarshalJSON(data []byte) error { return inOrder(data, a) }

// decodeExtra reads extra/vprof.json.
func decodeExtra(data []byte) (*Extra, error) {
	e := new(Extra)
	if err := json.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("extra/vprof.json: %w", err)
	}
	if e.Version > extraVersion {
		return nil, fmt.Errorf("extra/vprof.json is of version %d; this vprof reads version %d: use a newer one, or "+
			"capture again", e.Version, extraVersion)
	}
	return e, nil
}
