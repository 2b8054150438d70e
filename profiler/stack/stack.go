// Package stack describes the releases of PyTorch and its libraries, and their rules for allocating memory.
//
// Rules are written as differences. A release has one row in releases.json or libraries.json with its changes, and its
// rules are the changes of all releases up to it. Folder cudnn has the engine choices of cuDNN, by version.
package stack

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// Versions are the versions of PyTorch and NVIDIA's libraries in a training step; empty if unknown.
type Versions struct {
	Torch  string `json:"torch"`
	CUDA   string `json:"cuda,omitempty"`
	CuDNN  string `json:"cudnn,omitempty"`
	CuBLAS string `json:"cublas,omitempty"`
}

// A Stack is a release of PyTorch with its libraries and their rules. It is immutable and safe for concurrent use.
type Stack struct {
	versions Versions
	// rulesOf is the release whose rules the stack uses.
	rulesOf string
	// cudnnOf is the version of cuDNN whose choices of engines the stack uses.
	cudnnOf string
	// askedFor is the only compute capability for which that cuDNN was queried; empty for all.
	askedFor string
	// rows returns the rules of the release's row and of the rows before it, decoded on first use.
	rows         func() (trace.Rules, allocator.Rules)
	convolutions *cudnn.Rules
	libraryRules trace.Libraries
	// libraries are the releases of packages other than PyTorch.
	libraries Libraries
}

// Versions returns the versions of the libraries that PyPI's wheel of the release requires.
func (s *Stack) Versions() Versions { return s.versions }

// Release returns the name of the release: "2.11".
func (s *Stack) Release() string { return s.versions.Torch }

// Rules returns the rules for recordings on this stack. The caller must not change data that they point to.
func (s *Stack) Rules() trace.Rules {
	r, _ := s.rows()
	r.Convolutions, r.Libraries = s.convolutions, s.libraryRules
	return r
}

// Allocator returns the rules for parsing allocator settings.
func (s *Stack) Allocator() allocator.Rules {
	_, r := s.rows()
	return r
}

// Notes returns notes that name the release whose rules are used instead, if the release was not measured or its cuDNN
// was not queried.
func (s *Stack) Notes() (notes []string) {
	switch {
	case s.rulesOf != s.versions.Torch:
		notes = append(notes, unmeasured("PyTorch", s.versions.Torch, s.rulesOf))
	case s.askedFor != "":
		notes = append(notes, fmt.Sprintf("PyTorch %s comes with cuDNN %s, which was asked about compute capability "+
			"%s alone; elsewhere workspaces of convolutions follow %s",
			s.versions.Torch, s.versions.CuDNN, s.askedFor, completeRelease))
	case s.cudnnOf != s.versions.CuDNN:
		notes = append(notes, fmt.Sprintf("PyTorch %s comes with cuDNN %s; workspaces of convolutions follow %s, the "+
			"nearest that was asked", s.versions.Torch, s.versions.CuDNN, s.cudnnOf))
	}
	for _, name := range s.libraries.Unknown() {
		nearest := s.libraries.nearest(name)
		if libraryNamed(name).Oldest != "" && mustParse(s.libraries[name]).before(mustParse(nearest)) {
			notes = append(notes, fmt.Sprintf("nobody measured all of %s %s: values follow what is known of releases "+
				"before %s", name, s.libraries[name], nearest))
			continue
		}
		notes = append(notes, unmeasured(name, s.libraries[name], nearest))
	}
	return notes
}

func unmeasured(name, release, nearest string) string {
	return fmt.Sprintf("nobody measured %s %s: by the rules of %s, the nearest known", name, release, nearest)
}

// defaultRelease is the release of cases that name none.
const defaultRelease = "2.15"

// Default returns the stack for cases that name none.
func Default() *Stack {
	s, err := Lookup(defaultRelease)
	if err != nil {
		panic(err)
	}
	return s
}

// All returns the stacks of all known releases, oldest first. The caller must not change the slice.
func All() []*Stack { return knownStacks() }

// Releases returns the names of all known releases, oldest first.
func Releases() []string {
	return lists.Map(knownStacks(), func(s *Stack) string { return s.Release() })
}

// Lookup returns the stack of a release, such as "2.11" or "v2.11.0+cu130". An unknown release has the rules of the
// nearest earlier one, or of the first; see [Stack.Notes].
func Lookup(release string) (*Stack, error) {
	at, err := parse(release)
	if err != nil {
		return nil, err
	}
	nearest := knownStacks()[0]
	for _, s := range knownStacks() {
		have, _ := parse(s.Release())
		if have == at {
			return s, nil
		}
		if have.before(at) {
			nearest = s
		}
	}
	other := *nearest
	other.versions = Versions{Torch: at.String()}
	return &other, nil
}

// version is a release without its patch number, which does not change rules.
type version struct{ major, minor int }

func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

func (v version) before(w version) bool {
	return v.major < w.major || v.major == w.major && v.minor < w.minor
}

// parse parses the name of a release. It drops the patch number and everything after it.
func parse(s string) (version, error) {
	var numbers [2]int
	rest := strings.TrimPrefix(s, "v")
	for i := range numbers {
		var word string
		word, rest, _ = strings.Cut(rest, ".")
		if i == 1 {
			word, _, _ = strings.Cut(word, "+")
		}
		n, err := strconv.ParseUint(word, 10, 16)
		if err != nil {
			return version{}, &UnknownError{Release: s}
		}
		numbers[i] = int(n)
	}
	return version{numbers[0], numbers[1]}, nil
}

// An UnknownError reports that text names no release of PyTorch.
type UnknownError struct{ Release string }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("unknown release of PyTorch %q: write it like 2.11; known are %s", e.Release,
		strings.Join(Releases(), ", "))
}

// Usage marks the error as bad input.
func (e *UnknownError) Usage() bool { return true }

// convolutionRules returns the rules of several versions of cuDNN, of which later ones override earlier ones.
func convolutionRules(versions ...string) *cudnn.Rules {
	var folders overlayFS
	for _, v := range versions {
		files, err := fs.Sub(cudnnFiles, "cudnn/"+v)
		if err != nil {
			panic("stack: " + err.Error())
		}
		folders = append(folders, files)
	}
	return cudnn.NewRules(folders)
}

// overlayFS is a list of folders. A file is searched in the last folder first.
type overlayFS []fs.FS

// Open opens a file.
func (f overlayFS) Open(name string) (fs.File, error) {
	for i := len(f) - 1; i >= 0; i-- {
		file, err := f[i].Open(name)
		if i == 0 || !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
