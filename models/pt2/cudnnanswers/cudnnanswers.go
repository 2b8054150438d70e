// Package cudnnanswers stores the workspace sizes that cuDNN returned for a model's convolutions, beside the model.
package cudnnanswers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/rewrite"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

// format is the format name in the file of answers.
const format = "vprof.cudnn/v1"

// mostBytes limits the size of a file of answers: some hundred thousand answers.
const mostBytes = 64 << 20

// Answers are workspace sizes returned by cuDNN, one set for each version and GPU architecture.
type Answers []Set

// Set holds the answers of one cuDNN version for one GPU architecture.
type Set struct {
	// CuDNN is the version of cuDNN, as "9.19".
	CuDNN string `json:"cudnn"`
	// Capability is the GPU generation by compute capability, as [cudnn.Generation] returns it.
	Capability int `json:"capability"`
	// Bytes are workspace sizes by convolution, whose key is [query.Question.String].
	Bytes map[string]int64 `json:"bytes"`
}

// file is the JSON file of cuDNN's answers about a model.
type file struct {
	Format  string  `json:"format"`
	Answers Answers `json:"answers"`
}

// FileOf returns the name of the file with cuDNN's answers about the given .pt2 file.
func FileOf(model string) string { return strings.TrimSuffix(model, ".pt2") + ".cudnn.json" }

// Read reads a file of answers; a missing file has none. The error is an [*input.FormatError] or from reading it.
func Read(path string) (Answers, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return Parse(path, text)
}

// Parse returns the answers in the text of a file. The error is an [*input.FormatError].
func Parse(path string, text []byte) (Answers, error) {
	const again = "; remove it and ask again with vprof capture ask"
	damaged := func(reason string) error { return &input.FormatError{File: path, Reason: reason + again} }
	if len(text) > mostBytes {
		return nil, damaged("has more than 64 MiB")
	}
	var of file
	if err := json.Unmarshal(text, &of); err != nil {
		return nil, damaged("is damaged: " + err.Error())
	}
	if of.Format != format {
		return nil, damaged(fmt.Sprintf("is in the format %q; this vprof reads %s", of.Format, format))
	}
	for _, s := range of.Answers {
		for question, n := range s.Bytes {
			if n < 0 {
				return nil, damaged(fmt.Sprintf("has %d bytes for %q", n, question))
			}
		}
	}
	return of.Answers, nil
}

// Add returns a with the answers of s, which replace older answers about the same convolutions.
func (a Answers) Add(s Set) Answers {
	a = slices.Clone(a)
	i := slices.IndexFunc(a, func(o Set) bool { return o.CuDNN == s.CuDNN && o.Capability == s.Capability })
	if i < 0 {
		a = append(a, s)
	} else {
		both := make(map[string]int64, len(a[i].Bytes)+len(s.Bytes))
		maps.Copy(both, a[i].Bytes)
		maps.Copy(both, s.Bytes)
		a[i].Bytes = both
	}
	slices.SortFunc(a, func(x, y Set) int {
		return cmp.Or(cmp.Compare(x.Capability, y.Capability), cmp.Compare(x.CuDNN, y.CuDNN))
	})
	return a
}

// Save adds a set of answers to a file, which is replaced as a whole and created if it does not exist.
func Save(ctx context.Context, path string, s Set) error {
	backup, err := rewrite.Update(ctx, path, func(before []byte) ([]byte, error) {
		var a Answers
		if before != nil {
			var err error
			if a, err = Parse(path, before); err != nil {
				return nil, err
			}
		}
		text, err := json.MarshalIndent(file{format, a.Add(s)}, "", " ")
		return append(text, '\n'), err
	})
	if err != nil || backup == "" {
		return err
	}
	return os.Remove(backup) // what it held is in the new one
}

// Source returns a function that asks a version of cuDNN for workspaces on a generation of GPUs, nil if it cannot.
type Source func(version string, generation int) cudnn.Answer

// Answer sets the tape to use the source's answers of a cuDNN version for the tape's GPU.
func (o Source) Answer(tape *trace.Tape, version string) {
	tape.AnswerConvolutions(func(b trace.GPU) cudnn.Answer {
		return o(version, cudnn.Generation(cudnn.GPU{Capability: b.Capability}))
	})
}

// With returns a source that looks in these answers first and then asks o, which may be nil.
func (a Answers) With(o Source) Source {
	return func(version string, generation int) cudnn.Answer {
		known := a.For(version, generation)
		if o == nil {
			return known
		}
		further := o(version, generation)
		return func(c cudnn.Config, d cudnn.Direction) (int64, bool) {
			n, ok := known(c, d)
			if !ok && further != nil {
				n, ok = further(c, d)
			}
			return n, ok
		}
	}
}

// For returns a function that looks up the answers of one cuDNN version for one GPU architecture.
func (a Answers) For(version string, generation int) cudnn.Answer {
	var bytes map[string]int64
	for _, s := range a {
		if s.CuDNN == version && s.Capability == generation {
			bytes = s.Bytes
		}
	}
	return func(c cudnn.Config, d cudnn.Direction) (int64, bool) {
		n, ok := bytes[query.Question{Operation: d, Config: c}.String()]
		return n, ok
	}
}
