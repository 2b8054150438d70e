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
			{Kind: program.Mark, Arg: 0},
			{Kind: program.Launch},
			{Kind: program.Alloc, Arg: 1},
			{Kind: program.EmptyCache},
			{Kind: program.Free, Arg: 1},
			{Kind: program.Mark, Arg: 1},
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

func TestReadUndoesWrite(t *testing.T) {
	events, err := Read(strings.NewReader(toyList))
	require.NoError(t, err)
	require.Equal(t, []Event{
		{Kind: Alloc, ID: 1, Bytes: 8, Site: program.Site{Op: "to_dtype_layout"}},
		{Kind: Mark, Phase: program.Phase{Step: -1, Name: "model"}},
		{Kind: Alloc, ID: 2, Bytes: 693504, Site: program.Site{
			Op: "mm", Native: "gpu_reduce", Node: "MmBackward0",
			Where: "models/toy.go:3:Forward",
		}, Stream: 2},
		{Kind: Free, ID: 2},
		{Kind: Mark, Phase: program.Phase{Step: 0, Name: "forward"}},
	}, events)
}

func TestBadEventNamesItsLine(t *testing.T) {
	for list, want := range map[string]string{
		"a 1 8 - - - -\nx":             "line 2: \"x\" with 1 fields is not an event",
		"\n\na 1 8":                    "line 3: \"a\" with 3 fields",
		"a one 8 - - - -":              `line 1: "one" is not an ID`,
		"a 1 -8 - - - -":               `line 1: "-8" is not a number of bytes`,
		"a 1 8 - - - - stream=x":       `line 1: "stream=x" is not stream=N`,
		"a 1 8 - - - - stream=999":     `line 1: "stream=999" is not stream=N`,
		"f 1":                          "line 1: buffer 1 is freed but does not live",
		"f one":                        `line 1: "one" is not an ID`,
		"a 1 8 - - - -\na 1 8 - - - -": "line 2: buffer 1 is allocated twice",
		"a 1 8 - - - -\nf 1\nf 1":      "line 3: buffer 1 is freed but does not live",
		"m forward":                    `line 1: "forward" is not STEP:PHASE`,
		"m -2:forward":                 `line 1: "-2:forward" is not STEP:PHASE`,
		"m 0:":                         `line 1: "0:" is not STEP:PHASE`,
	} {
		_, err := Read(strings.NewReader(list))
		require.ErrorContains(t, err, want, list)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteReportsTheWriter(t *testing.T) {
	require.ErrorContains(t, Write(full{}, toy()), "disk full")
}

func FuzzRead(f *testing.F) {
	f.Add(toyList)
	f.Add("f 9999999999999999999")
	f.Fuzz(func(t *testing.T, list string) {
		events, err := Read(strings.NewReader(list))
		if err != nil {
			return
		}
		live := 0
		for _, e := range events {
			switch e.Kind {
			case Alloc:
				require.GreaterOrEqual(t, e.Bytes, int64(0))
				live++
			case Free:
				live--
			}
			require.GreaterOrEqual(t, live, 0)
		}
	})
}
