package recorded

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/vprof/vprof/internal/input"
)

// maxBytes limits the JSON that is read: a step of a large model has some hundred thousand instructions of 40 bytes.
const maxBytes = 1 << 30

// Read reads a .vprof file. name is the file's name for errors, which are [*input.FormatError].
func Read(from io.Reader, name string) (*File, error) {
	bad := func(key, reason string) (*File, error) {
		return nil, &input.FormatError{File: name, Key: key, Reason: reason}
	}
	expanded, err := gzip.NewReader(from)
	if err != nil {
		return bad("", "is no recorded program, which is compressed by gzip")
	}
	f := &File{last: new(atomic.Pointer[cachedRecording])}
	if err := decodeJSON(expanded, f); err != nil {
		return bad("", err.Error())
	}
	if key, err := f.check(); err != nil {
		return bad(key, err.Error())
	}
	return f, nil
}

// ReadRecording reads a recording from the uncompressed JSON that the Python hook writes.
func ReadRecording(from io.Reader, name string) (*Recording, error) {
	r := new(Recording)
	err := decodeJSON(from, r)
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return nil, &input.FormatError{File: name, Reason: err.Error()}
	}
	return r, nil
}

func decodeJSON(from io.Reader, to any) error {
	err := json.NewDecoder(io.LimitReader(from, maxBytes)).Decode(to)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file ends in the middle; copy it again, or record again")
	}
	return err
}

// Write writes the file. The error names an invalid value, or comes from writing.
func (f *File) Write(to io.Writer) error {
	f.Schema = Schema
	if key, err := f.check(); err != nil {
		return fmt.Errorf("%s: %s: %w", f.Name, key, err)
	}
	compressed := gzip.NewWriter(to)
	return errors.Join(json.NewEncoder(compressed).Encode(f), compressed.Close())
}

// maxStep limits step numbers, so that they can be added without overflow.
const maxStep = 1 << 30

// check returns an error about the first invalid value in a recording. It does not check the division into steps.
func (r *Recording) check() error {
	p := r.Program
	if p == nil {
		return errors.New("the recording has no program; record again")
	}
	if err := p.Validate(); err != nil {
		return err
	}
	for _, phase := range p.Phases {
		if phase.Step < -1 || phase.Step > maxStep || phase.Name == "" {
			return fmt.Errorf("phase %q has the invalid step %d: need -1 (set-up) or more; record again",
				phase.Name, phase.Step)
		}
	}
	for i := range p.Ops {
		if p.Ops[i].FLOPs < 0 {
			return fmt.Errorf("operator call %d has the negative number of FLOPs %d; record again", i, p.Ops[i].FLOPs)
		}
	}
	for _, n := range r.Notes {
		if n.At < 0 || n.Buffer < -1 || n.Buffer >= len(p.Buffers) {
			return fmt.Errorf("a note at instruction %d is about buffer %d, which the recording does not have; "+
				"record again", n.At, n.Buffer)
		}
	}
	if !slices.IsSortedFunc(r.Notes, func(a, b Note) int { return a.At - b.At }) {
		return errors.New("notes are not in the order of instructions; record again")
	}
	return nil
}
