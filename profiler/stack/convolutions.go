package stack

import (
	"embed"
	"io/fs"

	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// cudnnFiles are the decision rules of convolutions, a folder for each version of
// cuDNN; command fit of package cudnn writes them. They are not compressed: a
// short run would take longer to unpack them than for all else.
//
//go:embed cudnn
var cudnnFiles embed.FS

// convolutions are the choices of a version of cuDNN.
func convolutions(version string) *cudnn.Rules {
	files, err := fs.Sub(cudnnFiles, "cudnn/"+version)
	if err != nil {
		panic("stack: " + err.Error())
	}
	return cudnn.NewRules(files)
}
