package profile

import (
	"io"

	"github.com/vprof/vprof/models/recorded"
)

// WriteProgram writes the steps as a recorded program, which vprof reads as a model (run.vprof).
func (p *Profile) WriteProgram(w io.Writer) error {
	return recorded.Write(w, recorded.Header{
		Name: p.Case.Model, GPU: p.GPU.Name, Torch: p.Case.ReleaseName(), AllocConf: p.Case.AllocConf, Batch: p.Batch,
	}, p.Program)
}
