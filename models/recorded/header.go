package recorded

import (
	"errors"
	"fmt"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
)

// Schema is the format of files.
const Schema = "vprof.program/v1"

// Header is the first line of a file: where a program comes from, and its tables.
type Header struct {
	// Schema is [Schema]; [Write] fills it in.
	Schema string `json:"schema"`
	// Name says what ran: "train.py".
	Name string `json:"name"`
	// GPU is the board that the program was recorded for, by its name in the catalog: "rtx-3090".
	GPU string `json:"gpu"`
	// Torch is the release of PyTorch that ran: "2.15".
	Torch string `json:"torch"`
	// AllocConf is the PYTORCH_CUDA_ALLOC_CONF of the run; empty for the defaults.
	AllocConf string `json:"alloc_conf,omitempty"`
	// Batch is the number of samples of a micro-batch, zero if nobody knows it.
	Batch int `json:"batch,omitempty"`
	// Parameters and Trainable count the elements of the model; zero if nobody knows them.
	Parameters int64 `json:"parameters,omitempty"`
	Trainable  int64 `json:"trainable,omitempty"`
	// Allocated and Reserved are the peaks that PyTorch counted in the run, in bytes; zero if it
	// was not asked.
	Allocated int64 `json:"allocated_bytes,omitempty"`
	Reserved  int64 `json:"reserved_bytes,omitempty"`

	// Classes, Streams, Sites and Products are the tables that instructions refer to. [Write]
	// fills them in from the program.
	Classes  []string          `json:"classes"`
	Streams  []string          `json:"streams,omitempty"`
	Sites    []program.Site    `json:"sites"`
	Products []program.Product `json:"products,omitempty"`
}

// check finds what a header must have and does not.
func (h *Header) check() (key string, err error) {
	switch {
	case h.Name == "":
		return "name", errors.New("is empty; it says what ran")
	case h.Batch != 0 && models.CheckBatch(h.Batch) != nil:
		return "batch", models.CheckBatch(h.Batch)
	case h.Parameters < 0 || h.Trainable < 0 || h.Trainable > h.Parameters:
		return "trainable", fmt.Errorf("%d of %d parameters", h.Trainable, h.Parameters)
	case h.Allocated < 0 || h.Reserved < h.Allocated:
		return "reserved_bytes", fmt.Errorf("%d, with %d allocated", h.Reserved, h.Allocated)
	case len(h.Streams) > maxStreams:
		return "streams", fmt.Errorf("%d of them; at most %d are read", len(h.Streams), maxStreams)
	}
	release, err := stack.Lookup(h.Torch)
	if err != nil {
		return "torch", err
	}
	_, err = release.Allocator().Parse(h.AllocConf)
	return "alloc_conf", err
}

// maxStreams is how many streams a [program.Stream] can tell apart.
const maxStreams = 1 << 8

// classNames are the names of all classes.
func classNames() []string {
	names := make([]string, program.NumClasses)
	for c := range names {
		names[c] = program.Class(c).String()
	}
	return names
}
