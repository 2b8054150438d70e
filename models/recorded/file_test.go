package recorded

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// A file of steps that is written is read again, and one whose content cannot be is refused by the key that is wrong.
func TestFilesOfSteps(t *testing.T) {
	want := file(step(4), step(8))
	f, err := Read(bytes.NewReader(packed(t, want)), "toy.vprof")
	require.NoError(t, err)
	require.Equal(t, want.Header, f.Header)
	for i, r := range want.Recordings {
		require.Equal(t, r.setup, f.Recordings[i].setup)
		require.Equal(t, r.steps, f.Recordings[i].steps)
	}
	for key, spoil := range map[string]func(*File){
		"recordings[1].batch": func(f *File) { f.Recordings[1].Batch = 0 },
		"recordings[1]":       func(f *File) { f.Recordings[1].steps[1].Gradients[0].Offset = 8 },
		"recordings[0]": func(f *File) {
			f.Recordings[0].steps[0].Gradients[0].Parameter = "v"
		},
	} {
		bad := file(step(4), step(8))
		spoil(bad)
		_, err := Read(bytes.NewReader(packed(t, bad)), "toy.vprof")
		var format *input.FormatError
		require.ErrorAs(t, err, &format)
		require.Equal(t, key, format.Key)
	}
	for key, spoil := range map[string]func(*File){
		"torch": func(f *File) { f.Torch = "one" },
		"form":  func(f *File) { f.Steps.Form = "half" },
		"w":     func(f *File) { f.Steps.Parameters[0].DType = "int3" },
	} {
		bad := file(step(4), step(8))
		spoil(bad)
		require.ErrorContains(t, asFile(bad).Write(&bytes.Buffer{}), "toy: "+key)
	}
	misplaced := asRun(step(4))
	misplaced.Notes = slices.Insert(misplaced.Notes, 3, Note{6, convolutionNote, 0, 0, question(8).String()})
	require.ErrorContains(t, misplaced.splitIntoSteps(want.Steps), "the workspace of a convolution")
	unknown := asRun(step(4))
	unknown.Notes[0].Kind = "other"
	require.ErrorContains(t, unknown.splitIntoSteps(want.Steps), `unknown note "other"`)
	once := asRun(step(4))
	once.Program.Instructions = once.Program.Instructions[:7]
	require.ErrorContains(t, once.splitIntoSteps(want.Steps), "the recording has one step")
}

// What the first step leaves and the second frees is freed at the end of the first, and what happens between steps is
// no part of them.
func TestStepsOfARun(t *testing.T) {
	r := asRun(step(4))
	p := r.Program
	require.NoError(t, r.splitIntoSteps(file().Steps))
	want := r.steps
	// The workspace of the first step, buffer 1, goes in the middle of the second, and its gradient, buffer 2, before.
	from := len(p.Instructions) - 12
	p.Instructions = append(p.Instructions[:from:from], append([]program.Instruction{
		{Kind: program.Free, Arg: 2}, {Kind: program.MarkPhase, Arg: uint32(len(p.Phases))},
	}, p.Instructions[from:]...)...)
	p.Phases = append(p.Phases, program.Phase{Step: 0, Name: "zero_grad"})
	for i := range r.Notes {
		if r.Notes[i].At >= from {
			r.Notes[i].At += 2
		}
	}
	last := len(p.Instructions) - 1
	p.Instructions = append(p.Instructions[:last:last], append([]program.Instruction{
		{Kind: program.Free, Arg: 1},
	}, p.Instructions[last:]...)...)
	require.NoError(t, p.Validate())
	require.NoError(t, r.splitIntoSteps(file().Steps))
	want[0].Order = append(want[0].Order, ^1)
	require.Equal(t, want, r.steps)
}

// No content makes reading or playing fail otherwise than by an error of the file.
func FuzzSteps(f *testing.F) {
	f.Add(packed(f, file(step(4), step(8))))
	f.Fuzz(func(t *testing.T, content []byte) {
		read, err := Read(bytes.NewReader(content), "x")
		var format *input.FormatError
		if err != nil {
			require.ErrorAs(t, err, &format)
			return
		}
		if read.Steps == nil {
			return
		}
		for _, r := range read.Recordings {
			c := toyCase(r.Batch)
			c.AMP = models.Autocast(r.AMP)
			tape := trace.New(trace.GPU{}, trace.Rules{}, trace.Options{Warm: true})
			_ = newTrainer(read, r, c, nil).Record(tape, 1)
		}
	})
}
