package step_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/program"
)

// What is held at the peak is what was allocated before it and freed after it, by line and by name of the graph.
func TestWhatIsHeldAtThePeak(t *testing.T) {
	p := &program.Program{
		Sites: []program.Site{
			{Where: "net.py:1:forward"},
			{Op: "mul > add_1", Where: "net.py:2:forward"},
			{Op: "empty_strided", Where: "net.py:2:forward"},
			{Op: "zeros_like"}, // the optimizer's, which Inductor has not compiled
		},
		Buffers: []program.Buffer{
			{Bytes: 8, Site: 0},
			{Bytes: 100, Site: 1, Class: program.Activations},
			{Bytes: 50, Site: 2, Class: program.Temporaries},
			{Bytes: 100, Site: 1, Class: program.Activations},
			{Bytes: 20, Site: 1, Class: program.Temporaries},
			{Bytes: 16, Site: 0},
			{Bytes: 300, Site: 3, Class: program.OptimizerState},
		},
	}
	for _, n := range []int{0, 1, 2, ^0, 3, 6, 4, ^2, ^1, 5} { // numbers of buffers; complements free
		in := program.Instruction{Kind: program.Alloc, Arg: uint32(n)}
		if n < 0 {
			in = program.Instruction{Kind: program.Free, Arg: uint32(^n)}
		}
		p.Instructions = append(p.Instructions, in)
	}
	held := step.AtPeak(p)
	require.Equal(t, []report.Component{{Name: "net.py:2:forward", Bytes: 270}}, held.Lines(5))
	require.Equal(t, []report.Buffer{
		{Name: "mul", Line: "net.py:2:forward", Bytes: 200, Count: 2, Saved: true, Reused: []string{"add_1"}},
		{Name: "mul", Line: "net.py:2:forward", Bytes: 20, Count: 1, Reused: []string{"add_1"}},
	}, held.Compiled(5))
	require.Len(t, held.Compiled(1), 1)
	require.Empty(t, step.AtPeak(&program.Program{}).Lines(5))
}
