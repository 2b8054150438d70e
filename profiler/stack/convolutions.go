package stack

import (
	"embed"
	"errors"
	"io/fs"

	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// cudnnFiles are the decision rules of convolutions, a folder for each version of
// cuDNN; command fit of package cudnn writes them. A folder has what differs from
// the versions before: rules of their own, or corrections of theirs. They are not compressed: a short run would take
// longer to unpack them than for all else.
//
//go:embed cudnn
var cudnnFiles embed.FS

// convolutions are the choices of a version of cuDNN, the last of those in order.
func convolutions(versions ...string) *cudnn.Rules {
	var folders folders
	for _, v := range versions {
		files, err := fs.Sub(cudnnFiles, "cudnn/"+v)
		if err != nil {
			panic("stack: " + err.Error())
		}
		folders = append(folders, files)
	}
	return cudnn.NewRules(folders)
}

// folders are files of which the last folder that has one holds.
type folders []fs.FS

// Open opens a file.
func (f folders) Open(name string) (fs.File, error) {
	for i := len(f) - 1; i >= 0; i-- {
		file, err := f[i].Open(name)
		if i == 0 || !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
