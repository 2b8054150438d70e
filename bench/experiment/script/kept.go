package script

import (
	"errors"
	"io"

	"github.com/vprof/vprof/models/recorded"
	"github.com/vprof/vprof/profiler/stack"
)

// WriteProgram writes what the process that trained allocated as a recorded program, which vprof
// takes as a model (train.vprof): on other GPUs, with other settings of the allocator.
func (o *Outcome) WriteProgram(w io.Writer) error {
	if o.Program == nil {
		return errors.New("nothing was recorded, since nothing trained")
	}
	release, err := stack.Lookup(o.Torch().Version)
	if err != nil {
		return err
	}
	f := recorded.File{
		Header: recorded.Header{
			Name: o.name(), GPU: o.GPU.Name, Torch: release.Release(), AllocConf: o.allocConf(),
			Allocated: o.End().Allocated, Reserved: o.End().Reserved,
		},
		Recordings: []*recorded.Recording{{Program: o.Program}},
	}
	return f.Write(w)
}
