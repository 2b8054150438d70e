package script

import (
	"errors"
	"io"

	"github.com/vprof/vprof/models/recorded"
	"github.com/vprof/vprof/profiler/stack"
)

// WriteProgram writes the allocations of the training process as a recorded program, a model for other GPUs and
// allocator settings (train.vprof).
func (o *Outcome) WriteProgram(w io.Writer) error {
	if o.Program == nil {
		return errors.New("nothing was recorded, because the command did not train; check that it reaches a training " +
			"step")
	}
	release, err := stack.Lookup(o.Torch().Version)
	if err != nil {
		return err
	}
	f := recorded.File{
		Header: recorded.Header{
			Name: o.scriptName(), GPU: o.GPU.Name, Torch: release.Release(), AllocConf: o.allocConf(),
			Allocated: o.EndEvent().Allocated, Reserved: o.EndEvent().Reserved,
		},
		Recordings: []*recorded.Recording{{Program: o.Program}},
	}
	return f.Write(w)
}
