package compiled

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

// A file that is written is read again, and one whose content cannot be is refused by the key that is wrong.
func TestFiles(t *testing.T) {
	var content bytes.Buffer
	require.NoError(t, file(step(4), step(8)).Write(&content))
	f, err := Read(content.Bytes(), "toy.compiled")
	require.NoError(t, err)
	require.Equal(t, file(step(4), step(8)), f)
	for key, spoil := range map[string]func(*File){
		"schema":                 func(f *File) { f.Schema = "other" },
		"torch":                  func(f *File) { f.Torch = "one" },
		"form":                   func(f *File) { f.Form = "half" },
		"recordings":             func(f *File) { f.Recordings = nil },
		"w":                      func(f *File) { f.Parameters[0].DType = "int3" },
		"recordings[0].steps[1]": func(f *File) { f.Recordings[0].Steps[1].Order[0] = 3 },
		"recordings[1].steps[1]": func(f *File) { f.Recordings[1].Steps[1].Gradients[0].Offset = 8 },
		"recordings[0].steps[0]": func(f *File) { f.Recordings[0].Steps[0].Returned = []int{3} },
		"recordings[1].steps[0]": func(f *File) {
			f.Recordings[1].Steps[0].Convolutions = []Convolution{{Place: 3, Workspace: 1, Question: question(8)}}
		},
	} {
		bad := file(step(4), step(8))
		spoil(bad)
		_, err := Read(packed(t, bad), "toy.compiled")
		var format *input.FormatError
		require.ErrorAs(t, err, &format)
		require.Equal(t, key, format.Key)
	}
}

// No content makes reading fail otherwise than by an error of the file.
func FuzzRead(f *testing.F) {
	var content bytes.Buffer
	_ = file(step(4), step(8)).Write(&content)
	f.Add(content.Bytes())
	f.Fuzz(func(t *testing.T, content []byte) {
		read, err := Read(content, "x")
		var format *input.FormatError
		if err != nil {
			require.ErrorAs(t, err, &format)
			return
		}
		for i := range read.Recordings {
			r := &read.Recordings[i]
			c := toyCase(r.Batch)
			c.AMP = models.Autocast(r.AMP)
			tape := trace.New(trace.GPU{}, trace.Rules{}, trace.Options{Warm: true})
			_ = newTrainer(read, r, c, nil).Record(tape, 1)
		}
	})
}
