package recorded

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

// Schema is the format name in .vprof files.
const Schema = "vprof.program/v1"

// File is a recording of a complete run, or recordings of a model's step at several batch sizes.
type File struct {
	Header
	Recordings []*Recording `json:"recordings"`

	last *atomic.Pointer[cachedRecording] // nil to interpolate anew each time
}

// Header describes what ran.
type Header struct {
	// Schema is [Schema]; Write fills it in.
	Schema string `json:"schema"`
	// Name is the script or the model, as "train.py" or "timm:vit_small_patch16_224".
	Name string `json:"name"`
	// GPU is the simulated GPU's name in the catalog, as "rtx-3090".
	GPU string `json:"gpu"`
	// Torch is the release of PyTorch that ran, as "2.15".
	Torch string `json:"torch"`
	// AllocConf is PYTORCH_CUDA_ALLOC_CONF during the run; empty for the defaults.
	AllocConf string `json:"alloc_conf,omitempty"`
	// Allocated and Reserved are a run's peaks as PyTorch's allocator reported them, in bytes; zero if unknown.
	Allocated int64 `json:"allocated_bytes,omitempty"`
	Reserved  int64 `json:"reserved_bytes,omitempty"`
	// Steps describes recorded forward and backward passes; nil for a whole run.
	Steps *Steps `json:"steps,omitempty"`
}

// Steps describes the model whose forward and backward passes were recorded, and how they ran.
type Steps struct {
	// Form tells which part was compiled: "whole" is the model, "loss" the model with its loss, "blocks" each block by
	// itself, and [Eager] none.
	Form string `json:"form"`
	// Loss is the value of --loss; empty for the model's own.
	Loss string `json:"loss,omitempty"`
	// Dynamic is the argument of torch.compile, Budget is activation_memory_budget; zero is PyTorch's default.
	Dynamic bool    `json:"dynamic,omitempty"`
	Budget  float64 `json:"budget,omitempty"`
	// Sizes are the sizes of the inputs besides the batch, as {"seq": 256}.
	Sizes map[string]int64 `json:"sizes,omitempty"`
	// Parameters and Buffers are in the order of .to(device). A dimension of -1 in Inputs is the batch.
	Parameters []Tensor `json:"parameters"`
	Buffers    []Tensor `json:"buffers"`
	Inputs     []Tensor `json:"inputs"`
	// Guessed are source lines ("net.py:12") whose control flow depends on tensor values that were not computed.
	Guessed []string `json:"guessed,omitempty"`
}

// Tensor is a tensor of the model or of the batch.
type Tensor struct {
	Name    string  `json:"name"`
	Shape   []int64 `json:"shape"`
	DType   string  `json:"dtype"`
	Trained bool    `json:"trained,omitempty"`
}

// Recording is a program of training steps.
type Recording struct {
	// AMP is the precision of autocast, empty for none. Batch is the micro-batch size, zero if unknown.
	AMP   string `json:"amp,omitempty"`
	Batch int    `json:"batch,omitempty"`
	// Breaks is the number of graph breaks of torch.compile.
	Breaks int `json:"breaks,omitempty"`
	// FusesFrom are batch sizes from which on Inductor fuses additional reductions.
	FusesFrom []int `json:"fuses_from,omitempty"`
	// SplitsAt lists, for each sum that Inductor splits, the batch sizes at which it gets one part per sample. Inductor
	// then fuses them with the kernels that loop over samples.
	SplitsAt [][]int `json:"splits_at,omitempty"`
	// Program is the recorded program.
	Program *program.Program `json:"program"`
	// Notes describe buffers of the recorded steps, in the order of the program.
	Notes []Note `json:"notes,omitempty"`

	setup Step
	// steps are the first step, in which torch.compile compiles and autotunes, and a later one.
	steps [2]Step
}

// A Note describes the content of a buffer of a recorded step.
type Note struct {
	// At is the number of the program's instructions before the note.
	At int
	// Kind is one of the kinds below, such as "gradient".
	Kind string
	// Buffer is the buffer that the note describes, -1 for none. Offset is a position in the buffer, in bytes.
	Buffer int
	Offset int64
	// Text is the name of a parameter, or the convolution that cuDNN is asked about.
	Text string
}

// The values of [Note.Kind].
const (
	// heldNote gives the position of the model's next parameter or buffer at the end of set-up.
	heldNote = "tensor"
	// returnedNote marks a buffer that holds a result of the model.
	returnedNote = "returned"
	// gradientNote gives the position of the gradient of the parameter Text.
	gradientNote = "gradient"
	// convolutionNote precedes the workspace of a convolution, which is the next buffer; Buffer is -1 if it has none.
	// Text describes the convolution for cuDNN.
	convolutionNote = "convolution"
)

// Forms returns the values of [Steps.Form] for torch.compile.
func Forms() []string { return []string{"whole", "loss", "blocks"} }

// Eager is the value of [Steps.Form] for steps without torch.compile.
const Eager = "eager"

// Add adds a recording of the model that h describes. The error names what is invalid.
func (f *File) Add(h Header, r *Recording) error {
	if f.Steps == nil {
		f.Header = h
	}
	f.Recordings = append(f.Recordings, r)
	return r.splitIntoSteps(f.Steps)
}

// check returns an error about the first invalid value in a header, and its key.
func (h *Header) check() (key string, err error) {
	switch {
	case h.Schema != Schema:
		return "schema", errors.New("need " + Schema + ", the format that this vprof reads; record it again")
	case h.Name == "":
		return "name", errors.New("the name of the model or command is empty; record again with vprof run")
	case h.Allocated < 0 || h.Reserved < h.Allocated:
		return "reserved_bytes", fmt.Errorf("%d reserved bytes are less than the %d allocated bytes; record again "+
			"with vprof run", h.Reserved, h.Allocated)
	}
	release, err := stack.Lookup(h.Torch)
	if err != nil {
		return "torch", err
	}
	if _, err := release.Allocator().Parse(h.AllocConf); err != nil {
		return "alloc_conf", err
	}
	if h.Steps == nil {
		return "", nil
	}
	if f := h.Steps.Form; f != Eager && !slices.Contains(Forms(), f) {
		return "form", fmt.Errorf("%q is no kind of recorded step: need one of %s, %s",
			f, strings.Join(Forms(), ", "), Eager)
	}
	for _, t := range slices.Concat(h.Steps.Parameters, h.Steps.Buffers, h.Steps.Inputs) {
		if _, err := t.bytes(1); err != nil {
			return t.Name, err
		}
	}
	return "", nil
}

// check returns an error about the first invalid value in a file, and its key. It divides the recordings into steps.
func (f *File) check() (key string, err error) {
	if key, err := f.Header.check(); err != nil {
		return key, err
	}
	if len(f.Recordings) == 0 {
		return "", errors.New("the file holds no recording; record again with vprof run or vprof capture")
	}
	for i, r := range f.Recordings {
		at := fmt.Sprintf("recordings[%d]", i)
		if r == nil {
			return at, errors.New("the recording is empty; record again")
		}
		if err := models.CheckBatch(r.Batch); err != nil && (r.Batch != 0 || f.Steps != nil) {
			return at + ".batch", err
		}
		if err := r.check(); err != nil {
			return at, err
		}
		if len(r.Program.Phases) == 0 {
			return at, errors.New("the recording has no phases, which mark the steps; record again")
		}
		if f.Steps != nil {
			if err := r.splitIntoSteps(f.Steps); err != nil {
				return at, err
			}
		}
	}
	return "", nil
}

// dtypes maps PyTorch's names of dtypes to the recorder's.
var dtypes = map[string]trace.DType{
	"uint8": trace.U8, "int8": trace.U8, "int32": trace.I32, "int64": trace.I64, "float16": trace.F16,
	"bfloat16": trace.BF16,
	"float32":  trace.F32, "float64": trace.F64, "complex64": trace.C64, "bool": trace.Bool,
}

// mostSize limits sizes in bytes, mostDim dimensions.
const mostSize, mostDim = 1 << 50, 1 << 40

// bytes returns the size of a tensor at a batch size.
func (t *Tensor) bytes(batch int64) (int64, error) {
	d, ok := dtypes[t.DType]
	if !ok {
		return 0, fmt.Errorf("there is no type %q of tensors; record again", t.DType)
	}
	n := d.Size()
	for _, s := range t.shapeAt(batch) {
		if s < 0 || s > mostDim || n > 0 && s > mostSize/n {
			return 0, fmt.Errorf("invalid shape %v: a size is negative or too large; record again", t.Shape)
		}
		n *= s
	}
	return n, nil
}

// shapeAt returns the tensor's shape at a batch size.
func (t *Tensor) shapeAt(batch int64) []int64 {
	shape := slices.Clone(t.Shape)
	for i, n := range shape {
		if n == -1 {
			shape[i] = batch
		}
	}
	return shape
}
