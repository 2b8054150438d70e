package recorded

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
)

// The sites of recordings in tests, "line > op" for lines and ops.
var toySites = []program.Site{{Where: "toy.py:3:forward"}, {}}

// step returns a step of a model of one weight w of 4 x 8 floats at a batch size: logits and a hidden tensor in
// forward, a gradient in backward; logits live to the end of the step. The first step leaves a workspace, and has no
// hidden tensor.
func step(batch int) *Recording {
	n := int64(batch)
	first := Step{
		Allocations: []Allocation{{n * 64, 0}, {8 << 10, 1}, {128, 1}},
		Order:       []int{0, 1, 2, ^0},
		Forward:     2, Backward: 3,
		Gradients: []Gradient{{Place{2, 0}, "w"}},
	}
	r := &Recording{AMP: "bf16", Batch: batch, Program: &program.Program{Sites: toySites}, steps: [2]Step{first, {
		Allocations: []Allocation{{n * 64, 0}, {n * 32, 1}, {4, 0}, {128, 1}, {n * 16, 0}},
		Order:       []int{0, 1, 2, 3, 4, ^4, ^1, ^2, ^0},
		Forward:     3, Backward: 7,
		Gradients: []Gradient{{Place{3, 0}, "w"}},
	}}}
	r.setup.Held = []Place{{Allocation: -1}, {Allocation: -1}}
	r.setup.sites, r.steps[0].sites, r.steps[1].sites = toySites, toySites, toySites
	return r
}

func file(recordings ...*Recording) *File {
	return &File{
		Header: Header{
			Schema: Schema, Name: "toy", Torch: "2.15.0+cu132", GPU: "a100-40",
			Steps: &Steps{
				Form:       "whole",
				Parameters: []Tensor{{"w", []int64{4, 8}, "float32", true}},
				Buffers:    []Tensor{{"b", []int64{3}, "int64", false}},
				Inputs:     []Tensor{{"x", []int64{-1, 8}, "float32", false}},
			},
		},
		Recordings: recordings,
	}
}

func toyCase(batch int) models.Case {
	return models.Case{
		Model: "pt2:toy", Stage: "full", Batch: batch, AMP: "bf16", Accumulate: 1, Torch: "2.15",
		MemoryOptions: models.MemoryOptions{Compile: true},
	}
}

// recorder writes the program and the notes that divide into the steps of a recording.
type recorder struct {
	*Recording
	buffers []uint32 // of the allocations of a step
}

func (r *recorder) add(kind program.Kind, arg int) {
	r.Program.Instructions = append(r.Program.Instructions, program.Instruction{Kind: kind, Arg: uint32(arg)})
}

func (r *recorder) mark(step int, name string) {
	r.Program.Phases = append(r.Program.Phases, program.Phase{Step: step, Name: name})
	r.add(program.MarkPhase, len(r.Program.Phases)-1)
}

func (r *recorder) note(kind string, allocation int, offset int64, text string) {
	buffer := -1
	if allocation >= 0 && allocation < len(r.buffers) {
		buffer = int(r.buffers[allocation])
	} else if allocation >= 0 {
		buffer = len(r.Program.Buffers)
	}
	r.Notes = append(r.Notes, Note{len(r.Program.Instructions), kind, buffer, offset, text})
}

// run adds the events of a step, from one to another.
func (r *recorder) run(s *Step, from, to int) {
	for i := from; i <= to; i++ {
		for _, c := range s.Convolutions {
			if c.Place == i && (i < to || to == len(s.Order)) {
				r.note(convolutionNote, c.Workspace, 0, c.Question.String())
			}
		}
		switch {
		case i == to:
		case s.Order[i] < 0:
			r.add(program.Free, int(r.buffers[^s.Order[i]]))
		default:
			r.buffers = append(r.buffers, uint32(len(r.Program.Buffers)))
			a := s.Allocations[s.Order[i]]
			r.add(program.Alloc, len(r.Program.Buffers))
			r.Program.Buffers = append(r.Program.Buffers, program.Buffer{
				Bytes: a.Bytes, Class: program.Temporaries, Site: a.Site,
			})
		}
	}
}

// asRun returns a recording of which a program and notes tell the steps.
func asRun(of *Recording) *Recording {
	one := *of
	one.Program, one.Notes = &program.Program{Sites: of.Program.Sites}, nil
	r := &recorder{Recording: &one}
	r.run(&of.setup, 0, len(of.setup.Order))
	for _, h := range of.setup.Held {
		r.note(heldNote, h.Allocation, h.Offset, "")
	}
	r.mark(-1, modelPhase)
	for k := range of.steps {
		s := &of.steps[k]
		r.buffers = nil
		r.run(s, 0, s.Forward)
		r.mark(k, forwardPhase)
		r.run(s, s.Forward, s.Backward)
		for _, n := range s.Returned {
			r.note(returnedNote, n, 0, "")
		}
		for _, g := range s.Gradients {
			r.note(gradientNote, g.Allocation, g.Offset, g.Parameter)
		}
		r.mark(k, backwardPhase)
		r.run(s, s.Backward, len(s.Order))
		r.mark(k, endPhase)
	}
	return r.Recording
}

// asFile returns a file of which programs and notes tell the steps.
func asFile(f *File) *File {
	out := &File{Header: f.Header}
	for _, r := range f.Recordings {
		out.Recordings = append(out.Recordings, asRun(r))
	}
	return out
}

// packed returns the content of a file, which may be wrong.
func packed(t testing.TB, f *File) []byte {
	var content bytes.Buffer
	w := gzip.NewWriter(&content)
	require.NoError(t, json.NewEncoder(w).Encode(asFile(f)))
	require.NoError(t, w.Close())
	return content.Bytes()
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}
