package export

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/vprof/vprof/internal/lists"
)

// extraVersion is the version of [Extra] that this package reads.
const extraVersion = 1

// Extra holds facts that "vprof capture" observes in Python and that the exported graph of the model lacks. Every field
// is optional. Source lines ("model.py:30") are shown to users only.
type Extra struct {
	Version int `json:"version"`
	// Dies lists when Python released the graph's values; nil if that was not observed.
	Dies []Death `json:"dies,omitempty"`
	// Checkpointed and Reentrant are paths of modules run under torch.utils.checkpoint (use_reentrant=False, True).
	Checkpointed []string `json:"checkpointed,omitempty"`
	Reentrant    []string `json:"reentrant,omitempty"`
	// CustomFunctions are the autograd.Functions that forward calls. The graph does not contain their backward.
	CustomFunctions []CustomFunction `json:"custom_functions,omitempty"`
	// Functions are calls of autograd.Functions with a captured backward. Begin and End are node numbers.
	Functions []FunctionCall `json:"functions,omitempty"`
	// Tied are pairs of names of one shared parameter. The second is its name in the graph.
	Tied  [][2]string `json:"tied,omitempty"`
	Batch *Batch      `json:"batch,omitempty"`
	// BatchDims is the index of the batch dimension by input, as the user gave it; 0 for other inputs.
	BatchDims map[string]int `json:"batch_dims,omitempty"`
	// Autocast are the dtype arguments that are float32 in the graph and may be half precision under autocast.
	Autocast []TypeMark `json:"autocast,omitempty"`
	// Attention lists the allowed kernels of calls of scaled_dot_product_attention, where not all are allowed.
	Attention []AttentionMark `json:"attention,omitempty"`
	// Counts are the numbers of true elements in boolean masks of the example batch.
	Counts []MaskCount `json:"counts,omitempty"`
	// Numbers are the source lines at which forward read values of tensors in Python (such as x.item() or if x > 0).
	Numbers []string `json:"numbers,omitempty"`
	// Replaced lists values that modules keep (self.attention = a) and the node of the next forward that releases them.
	Replaced []Death `json:"replaced,omitempty"`
	// State are buffers and other attributes of modules that each forward replaces (self.memory = new).
	State []State `json:"state,omitempty"`
	// Leaves are the names of values on which forward calls requires_grad_().
	Leaves []string `json:"leaves,omitempty"`
	// Assigned are the numbers of copy_ nodes that represent the assignment p.data = x.
	Assigned []int32 `json:"assigned,omitempty"`
	// Host lists the values in CPU memory.
	Host Host `json:"host,omitzero"`
	// OtherWay is a batch size at which forward calls other operators; nil if there is none, or it is not known.
	OtherWay *OtherWay `json:"other_way,omitempty"`
	// Scripted reports whether functions of torch.jit.script were captured as plain Python functions.
	Scripted bool `json:"scripted,omitempty"`
	// CublasWorkspace is CUBLAS_WORKSPACE_CONFIG of the captured process; importing MONAI sets it.
	CublasWorkspace string `json:"cublas_workspace,omitempty"`
	// Symbols are the sizes that were exported as dynamic, by their symbols in the graph.
	Symbols map[string]Symbol `json:"symbols,omitempty"`
	// First holds the graphs of the first forward at several batch sizes, if it differs from later ones (it fills a
	// codebook or a table), and the Extra of each. Their State and Replaced refer to the graph of later forwards.
	First []struct{ Graph, Extra json.RawMessage } `json:"first,omitempty"`
}

// unmarshalArray reads the elements of a JSON array into the fields of a struct, in order. The array may be shorter.
func unmarshalArray[T any](data []byte, to *T) error {
	v := reflect.ValueOf(to).Elem()
	fields := lists.Make(v.NumField(), func(i int) any { return v.Field(i).Addr().Interface() })
	return json.Unmarshal(data, &fields)
}

// TypeMark tells whether the named dtype argument of a node is half precision under autocast.
type TypeMark struct {
	Node     int32
	Argument string
	Half     bool
}

// UnmarshalJSON reads [12, "dtype", true].
func (m *TypeMark) UnmarshalJSON(data []byte) error { return unmarshalArray(data, m) }

// AttentionMark lists the attention kernels that a node may use (torch.nn.attention.sdpa_kernel).
type AttentionMark struct {
	Node    int32
	Kernels []string
}

// UnmarshalJSON reads [12, ["math"]].
func (m *AttentionMark) UnmarshalJSON(data []byte) error { return unmarshalArray(data, m) }

// MaskCount estimates how many elements of a node's boolean mask are true: Least + Linear*batch + Square*batch^2, plus
// True of every Among elements.
type MaskCount struct {
	Node                  int32
	Least, Linear, Square int64
	True, Among           int64
}

// TrueElements returns the number of true elements in a mask of n elements, rounded down.
func (c MaskCount) TrueElements(n, batch int64) int64 {
	among := max(c.Among, 1)
	count := c.Least + c.Linear*batch + c.Square*batch*batch + n/among*c.True + n%among*c.True/among
	return min(max(count, 0), n) // a file can say anything
}

// UnmarshalJSON reads [12, 0, 0, 0, 3, 4].
func (c *MaskCount) UnmarshalJSON(data []byte) error { return unmarshalArray(data, c) }

// OtherWay is a batch size at which forward calls other operators than the graph, and the first line that differs.
type OtherWay struct {
	Batch int64
	Line  string
}

// UnmarshalJSON reads [1031, "model.py:30"].
func (o *OtherWay) UnmarshalJSON(data []byte) error { return unmarshalArray(data, o) }

// Symbol is a dynamic size with the user's name and its value in the example. Given: the user chose that value.
type Symbol struct {
	Name    string
	Example int64
	Given   bool
}

// UnmarshalJSON reads ["seq", 512] and ["seq", 512, true].
func (s *Symbol) UnmarshalJSON(data []byte) error { return unmarshalArray(data, s) }

// CustomFunction is a class derived from autograd.Function, and the source line that called it.
type CustomFunction struct {
	Name string `json:"name"`
	Line string `json:"line"`
}

// State is a buffer or attribute that forward replaces: Input is the graph's input that holds it, Value the graph's
// value that replaces it. Half reports whether autocast makes it half precision from the first forward on.
type State struct {
	Input, Value string
	Half         bool
}

// UnmarshalJSON reads ["b_memory", "add_3", true].
func (s *State) UnmarshalJSON(data []byte) error { return unmarshalArray(data, s) }

// Death lists the names of values whose last Python reference was dropped after the node with number Node, in order.
// Detached reports whether the reference was to x.detach(), which keeps only the memory.
type Death struct {
	Node     int32
	Values   []string
	Detached bool
}

// UnmarshalJSON reads [12, ["conv2d_3", "relu"]] and [12, ["std"], true].
func (d *Death) UnmarshalJSON(data []byte) error { return unmarshalArray(data, d) }

// Host lists the tensors that stay in CPU memory when the model trains on a GPU: the results of Nodes, and tensors that
// modules hold without registering them (self.positions = torch.arange(n)), by their names in the graph.
type Host struct {
	Nodes []int32  `json:"nodes,omitempty"`
	Kept  []string `json:"kept,omitempty"`
}

// Batch lists the integers of a graph with fixed shapes that depend on the batch size.
type Batch struct {
	// Exported is the batch size of the graph.
	Exported int64         `json:"exported"`
	Inputs   []AffineInput `json:"inputs"`
	Args     []AffineArg   `json:"args"`
}

// AffineInput is a dimension of a graph's input. Its size is A + B*batch.
type AffineInput struct {
	Name      string
	Dimension int
	A, B      int64
}

// UnmarshalJSON reads ["x", 0, 0, 1].
func (a *AffineInput) UnmarshalJSON(data []byte) error { return unmarshalArray(data, a) }

// AffineArg is an integer argument of a node. Its value is A + B*batch.
type AffineArg struct {
	Node  int32
	Name  string
	Index int
	A, B  int64
}

// UnmarshalJSON reads [57, "size", 0, 0, 1].
func (a *AffineArg) UnmarshalJSON(data []byte) error { return unmarshalArray(data, a) }

// decodeExtra reads extra/vprof.json.
func decodeExtra(data []byte) (*Extra, error) {
	e := new(Extra)
	if err := json.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("extra/vprof.json in the archive: %w; capture the model again", err)
	}
	if e.Version > extraVersion {
		return nil, fmt.Errorf("extra/vprof.json has version %d, and this vprof reads version %d; use a newer vprof, "+
			"or capture the model again", e.Version, extraVersion)
	}
	return e, nil
}
