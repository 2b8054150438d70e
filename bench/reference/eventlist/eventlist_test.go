package eventlist

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
)

// toy loads one weight, then allocates and frees an output in forward.
func toy() *program.Program {
	return &program.Program{
		Buffers: []program.Buffer{{Bytes: 8}, {Bytes: 693504, Site: 1, Stream: 2}},
		Sites: []program.Site{
			{Op: "to_dtype_layout"},
			{Op: "mm", Native: "gpu reduce", Node: "MmBackward0", Where: "models/toy.go:3:Forward"},
		},
		Phases: []program.Phase{{Step: -1, Name: "model"}, {Step: 0, Name: "forward"}},
		Instructions: []program.Instruction{
			{Kind: program.Alloc, Arg: 0},
			{Kind: program.MarkPhase, Arg: 0},
			{Kind: program.Launch},
			{Kind: program.Alloc, Arg: 1},
			{Kind: program.EmptyCache},
			{Kind: program.Free, Arg: 1},
			{Kind: program.MarkPhase, Arg: 1},
		},
	}
}

const toyList = `a 1 8 to_dtype_layout - - -
m -1:model
a 2 693504 mm gpu_reduce MmBackward0 models/toy.go:3:Forward stream=2
f 2
m 0:forward
`

func TestWriteListsAllocationsFreesAndPhases(t *testing.T) {
	var b strings.Builder
	require.NoError(t, Write(&b, toy()))
	require.Equal(t, toyList, b.String())
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteReportsTheWriter(t *testing.T) {
	require.ErrorContains(t, Write(full{}, toy()), "disk full")
}
