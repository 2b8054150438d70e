package main

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vprof/vprof/internal/requirements"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/stack"
)

// autoRelease is the value of --torch that finds the release by itself.
const autoRelease = "auto"

// release is the release of PyTorch that the flags name for a model, as cases have
// it.
func (f *caseFlags) release(m models.Model) (string, error) {
	name := cmp.Or(f.torch, stack.Default().Release())
	if name == autoRelease {
		var err error
		if name, err = findRelease(m); err != nil {
			return "", err
		}
	}
	release, err := models.ParseRelease(name)
	if err != nil {
		return "", usagef("--torch: %w", err)
	}
	return release, nil
}

// findRelease is the release that wrote the model's file, or else the one that the
// project asks for: the folder with the project file, here or above, or this one.
func findRelease(m models.Model) (string, error) {
	if m.Torch != "" {
		return m.Torch, nil
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	pin, err := requirements.Find(projectFolder(here), "torch")
	if errors.Is(err, requirements.ErrNotFound) {
		return "", usagef("--torch auto: %w; name the release, like --torch %s", err, stack.Default().Release())
	}
	return pin.Version, err
}

// projectFolder is the folder of the project file that holds in a directory, or
// that directory if there is none.
func projectFolder(dir string) string {
	for at := dir; ; at = filepath.Dir(at) {
		_, err := os.Stat(filepath.Join(at, projectFile))
		switch {
		case err == nil:
			return at
		case !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at):
			return dir
		}
	}
}
