package page

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/show/profile"
	"github.com/vprof/vprof/profiler/program"
)

func TestStreamsHaveLanesOfTheirMost(t *testing.T) {
	p := &profile.Profile{Program: &program.Program{
		Streams: []string{"compute", "all-gather", "idle"},
		Buffers: []program.Buffer{{Bytes: 1 << 30}, {Bytes: 1 << 20, Stream: 1}, {Bytes: 3 << 20, Stream: 1}},
		Instructions: []program.Instruction{
			{Kind: program.Alloc, Arg: 0},
			{Kind: program.Alloc, Arg: 1},
			{Kind: program.Free, Arg: 1},
			{Kind: program.Alloc, Arg: 2},
			{Kind: program.Free, Arg: 2},
		},
	}}
	lanes := newLanes(p, 1, 5)
	require.Len(t, lanes, 2)
	require.Equal(t, "compute", lanes[0].Name)
	require.Equal(t, "1.00 GiB", lanes[0].Most) // from before the step
	require.Equal(t, "3.00 MiB", lanes[1].Most)
	// a third of the height
	require.True(t, strings.HasPrefix(lanes[1].Path, "M0 40L0.0 26.7L250.0 26.7"), lanes[1].Path)

	p.Program.Streams = nil
	require.Empty(t, newLanes(p, 0, 5))
}
