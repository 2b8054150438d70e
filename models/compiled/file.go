package compiled

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace/cudnn/oracle"
)

// Schema is the format of files: JSON, compressed by gzip.
const Schema = "vprof.compiled/v1"

// mostBytes bounds what is read of a file, expanded: a recording of a large model takes some MiB.
const mostBytes = 256 << 20

// File is what vprof capture --compile has recorded of a model.
type File struct {
	Schema string `json:"schema"`
	// Torch is the PyTorch that compiled, "2.15.0+cu132", and GPU the GPU that it found.
	Torch string `json:"torch"`
	GPU   string `json:"gpu"`
	// Model is what was captured, as the user named it.
	Model string `json:"model"`
	// Form is what was compiled: "whole" is the model, "loss" the model and its loss, "blocks" each block by itself;
	// [Eager] if nothing was.
	Form string `json:"form"`
	// Loss is the one that --loss names; empty for the model's own.
	Loss string `json:"loss"`
	// Dynamic is torch.compile(dynamic=True), Budget the activation_memory_budget; zero for PyTorch's own.
	Dynamic bool    `json:"dynamic"`
	Budget  float64 `json:"budget"`
	// Sizes are the symbols of the inputs besides the batch: {"seq": 256}.
	Sizes map[string]int64 `json:"sizes"`
	// Parameters and Buffers are in the order in which .to(device) moves them; of Inputs a dimension of -1 is the
	// batch.
	Parameters []Tensor `json:"parameters"`
	Buffers    []Tensor `json:"buffers"`
	Inputs     []Tensor `json:"inputs"`
	// Setup is how the model came to the device; absent from files of earlier releases.
	Setup *Setup   `json:"setup,omitempty"`
	Sites []string `json:"sites"`
	// Names are of what is in allocations: nodes of the compiled graph whose results are there one after the other,
	// "mul_34 > gelu_3", or empty. Absent from files of earlier releases.
	Names      []string    `json:"names,omitempty"`
	Recordings []Recording `json:"recordings"`
	// Guessed are the lines, "net.py:12", whose course hung on numbers that were never computed.
	Guessed []string `json:"guessed,omitempty"`

	last *atomic.Pointer[planned] // nil to interpolate anew each time
}

// Tensor is a tensor of the model or of the batch.
type Tensor struct {
	Name    string  `json:"name"`
	Shape   []int64 `json:"shape"`
	DType   string  `json:"dtype"`
	Trained bool    `json:"trained,omitempty"`
}

// Setup is how a model came to the device: the bytes of each allocation, and Order as a [Step] has it.
type Setup struct {
	Allocations []int64 `json:"allocations"`
	Order       []int   `json:"order"`
	// Held are where parameters and then buffers lie in the end: in which allocation, -1 for none, behind how many
	// bytes.
	Held [][2]int64 `json:"held"`
}

// Recording is what was recorded at a batch size.
type Recording struct {
	// AMP is the precision of autocast, empty for none.
	AMP   string `json:"amp"`
	Batch int    `json:"batch"`
	// Breaks is how many graph breaks Dynamo met.
	Breaks int `json:"breaks"`
	// FusesFrom are the batch sizes from which on Inductor fuses some of its reductions.
	FusesFrom []int `json:"fuses_from,omitempty"`
	// SplitsAt are, of each sum that Inductor splits, the batch sizes at which the pieces are the samples, so that it
	// fuses them with what goes through the samples.
	SplitsAt [][]int `json:"splits_at,omitempty"`
	// Steps are the first, which compiles and tunes and leaves what stays for good, and one of those that follow.
	Steps [2]Step `json:"steps"`
}

// Step is forward, loss and backward, and what goes at the end of the step.
type Step struct {
	// Allocations are bytes, site and name of each, in order.
	Allocations [][3]int64 `json:"allocations"`
	// Order has the allocation n as n and its free as ^n. Forward and Backward are how many of these come before the
	// end of the phase.
	Order    []int `json:"order"`
	Forward  int   `json:"forward"`
	Backward int   `json:"backward"`
	// Returned are the allocations that hold what the model returned. Order has their frees where a loop lets go of it
	// once it has the loss. It is nil in files of earlier releases, whose loop kept it to the end.
	Returned []int `json:"returned"`
	// Gradients say which allocations hold gradients.
	Gradients []Gradient `json:"gradients"`
	// Convolutions are those that cuDNN ran; absent from files of earlier releases, and before PyTorch 2.11.
	Convolutions []Convolution `json:"convolutions,omitempty"`

	// asked are those whose workspaces cuDNN is asked about, at a batch size that was not recorded.
	asked []Convolution
}

// Convolution is a direction of a convolution: the place of its workspace in a step's order, the allocation that is the
// workspace, -1 for none, and what cuDNN is asked about it.
type Convolution struct {
	Place, Workspace int
	Question         oracle.Question
}

// UnmarshalJSON reads [12, 7, "0 2 1 2 8 3 ..."].
func (c *Convolution) UnmarshalJSON(data []byte) error {
	var question string
	if err := json.Unmarshal(data, &[]any{&c.Place, &c.Workspace, &question}); err != nil {
		return err
	}
	var err error
	c.Question, err = oracle.ParseQuestion(question)
	return err
}

// MarshalJSON writes what UnmarshalJSON reads.
func (c Convolution) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{c.Place, c.Workspace, c.Question.String()})
}

// Gradient is the gradient of a parameter: where it lies, and how many bytes come before it there.
type Gradient struct {
	Allocation int
	Parameter  string
	Offset     int64
}

// UnmarshalJSON reads [12, "wte.weight", 0].
func (g *Gradient) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&g.Allocation, &g.Parameter, &g.Offset})
}

// MarshalJSON writes what UnmarshalJSON reads.
func (g Gradient) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{g.Allocation, g.Parameter, g.Offset})
}

const suffix = ".compiled"

// FileOf returns the name of the file for a model's file: "vit.compiled" for vit.pt2.
func FileOf(model string) string { return strings.TrimSuffix(model, filepath.Ext(model)) + suffix }

// Write writes a file.
func (f *File) Write(w io.Writer) error {
	f.Schema = Schema
	packed := gzip.NewWriter(w)
	return errors.Join(json.NewEncoder(packed).Encode(f), packed.Close())
}

// Read reads the content of a file of a name. The error is an [*input.FormatError].
func Read(content []byte, name string) (*File, error) {
	bad := func(key, reason string) (*File, error) {
		return nil, &input.FormatError{
			File: name, Key: key,
			Reason: reason + "; record it again with vprof capture --compile",
		}
	}
	text, err := input.Expand(content, mostBytes)
	if err != nil {
		return bad("", "is damaged: "+err.Error())
	}
	f := new(File)
	if err := json.Unmarshal(text, f); err != nil {
		return bad("", "is damaged: "+err.Error())
	}
	if f.Schema != Schema {
		return bad("schema", fmt.Sprintf("is %q, and this vprof reads %s", f.Schema, Schema))
	}
	if key, err := f.check(); err != nil {
		return bad(key, err.Error())
	}
	return f, nil
}

// check finds what a file must have and does not.
func (f *File) check() (key string, err error) {
	if _, err := stack.Lookup(f.Torch); err != nil {
		return "torch", err
	}
	if f.Form != Eager && !slices.Contains(Forms(), f.Form) {
		return "form", fmt.Errorf("is %q, and none of %s, %s", f.Form, strings.Join(Forms(), ", "), Eager)
	}
	known := map[string]int64{}
	for _, list := range [][]Tensor{f.Parameters, f.Buffers, f.Inputs} {
		for _, t := range list {
			n, err := t.bytes(1)
			if err != nil {
				return t.Name, err
			}
			known[t.Name] = n
		}
	}
	if f.Setup != nil && !f.Setup.holds(slices.Concat(f.Parameters, f.Buffers)) {
		return "setup", errors.New("holds other tensors than the model's")
	}
	if len(f.Recordings) == 0 {
		return "recordings", errors.New("are none")
	}
	for i := range f.Recordings {
		r := &f.Recordings[i]
		if err := models.CheckBatch(r.Batch); err != nil {
			return fmt.Sprintf("recordings[%d].batch", i), err
		}
		for k := range r.Steps {
			if err := r.Steps[k].check(known, len(f.Sites), max(len(f.Names), 1)); err != nil {
				return fmt.Sprintf("recordings[%d].steps[%d]", i, k), err
			}
		}
	}
	return "", nil
}

// holds tells whether each tensor lies within an allocation that is there in the end, and each free is of one that was
// made.
func (s *Setup) holds(tensors []Tensor) bool {
	freed, err := checkOrder(s.Order, len(s.Allocations))
	if err != nil || len(s.Held) != len(tensors) {
		return false
	}
	for i, h := range s.Held {
		n, _ := tensors[i].bytes(1)
		if h[0] < -1 || h[0] >= int64(len(freed)) || h[1] < 0 {
			return false
		}
		if h[0] >= 0 && (freed[h[0]] || s.Allocations[h[0]] > mostSize || n > s.Allocations[h[0]]-h[1]) {
			return false
		}
	}
	return !slices.ContainsFunc(s.Allocations, func(n int64) bool { return n < 0 || n > mostSize })
}

// Forms returns what can be compiled.
func Forms() []string { return []string{"whole", "loss", "blocks"} }

// mostSize bounds sizes in bytes, and mostDim those of dimensions.
const mostSize, mostDim = 1 << 50, 1 << 40

// check holds a step against the parameters' bytes and the numbers of sites and of names.
func (r *Step) check(parameters map[string]int64, sites, names int) error {
	if r.Forward < 0 || r.Backward < r.Forward || len(r.Order) < r.Backward {
		return errors.New("its phases end in another order")
	}
	for _, a := range r.Allocations {
		if a[0] < 0 || a[0] > mostSize || a[1] < 0 || a[1] >= int64(sites) || a[2] < 0 || a[2] >= int64(names) {
			return fmt.Errorf("an allocation of %d bytes at site %d of %d, name %d of %d", a[0], a[1], sites, a[2],
				names)
		}
	}
	freed, err := checkOrder(r.Order, len(r.Allocations))
	if err != nil {
		return err
	}
	if slices.ContainsFunc(r.Returned, func(n int) bool { return n < 0 || n >= len(freed) }) {
		return errors.New("what the model returned is where none can be")
	}
	for _, c := range r.Convolutions {
		at := c.Place >= 0 && c.Place <= len(r.Order)
		if !at || c.Workspace != -1 && (c.Place == len(r.Order) || c.Workspace < 0 || r.Order[c.Place] != c.Workspace) {
			return fmt.Errorf("the workspace of a convolution is where none can be, at event %d", c.Place)
		}
	}
	for _, g := range r.Gradients {
		n, ok := parameters[g.Parameter]
		if !ok || g.Allocation < 0 || g.Allocation >= len(freed) ||
			g.Offset < 0 || g.Offset > mostSize || freed[g.Allocation] {
			return fmt.Errorf("the gradient of %q is where none can be", g.Parameter)
		}
		if r.Allocations[g.Allocation][0] < g.Offset+n {
			return fmt.Errorf("the gradient of %q has no room", g.Parameter)
		}
	}
	return nil
}

// checkOrder finds which of so many allocations are freed in an order, which must have each of them, one after the
// other, and frees of such alone as are there.
func checkOrder(order []int, allocations int) (freed []bool, err error) {
	next := 0
	freed = make([]bool, allocations)
	for _, n := range order {
		switch {
		case n == next && n < allocations:
			next++
		case n < 0 && ^n < next && !freed[^n]:
			freed[^n] = true
		default:
			return nil, fmt.Errorf("event %d is neither the next allocation nor the free of one that is there", n)
		}
	}
	if next != allocations {
		return nil, fmt.Errorf("%d of %d allocations happen", next, allocations)
	}
	return freed, nil
}

// bytes returns those of a tensor at a batch size.
func (t *Tensor) bytes(batch int64) (int64, error) {
	d, ok := dtypes[t.DType]
	if !ok {
		return 0, fmt.Errorf("there is no type %q", t.DType)
	}
	n := d.Size()
	for _, s := range t.at(batch) {
		if s < 0 || s > mostDim || n > 0 && s > mostSize/n {
			return 0, fmt.Errorf("%v is no shape", t.Shape)
		}
		n *= s
	}
	return n, nil
}

// at returns the shape at a batch size.
func (t *Tensor) at(batch int64) []int64 {
	shape := slices.Clone(t.Shape)
	for i, n := range shape {
		if n == -1 {
			shape[i] = batch
		}
	}
	return shape
}
