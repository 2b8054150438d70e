package step_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/device"
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
	held := step.LiveAtPeak(p)
	require.Equal(t, []report.Component{{Name: "net.py:2:forward", Bytes: 270}}, held.Lines(5))
	require.Equal(t, []report.Buffer{
		{Name: "mul", Line: "net.py:2:forward", Bytes: 200, Count: 2, Saved: true, Reused: []string{"add_1"}},
		{Name: "mul", Line: "net.py:2:forward", Bytes: 20, Count: 1, Reused: []string{"add_1"}},
	}, held.CompiledBuffers(5))
	require.Len(t, held.CompiledBuffers(1), 1)
	require.Empty(t, step.LiveAtPeak(&program.Program{}).Lines(5))
}

// Buffers of a save are found by its phase, with other buffers of their lines, and a replay leaves them out. Buffers
// that each batch of an evaluation frees are not outputs that it keeps.
func TestBuffersOfSavesAndEvaluations(t *testing.T) {
	p := &program.Program{
		Sites: []program.Site{{Where: "a.py:1:train"}, {Where: "a.py:2:save"}, {Where: "a.py:3:validate"}},
		Phases: []program.Phase{
			{Step: 0, Name: "forward"},
			{Step: 0, Name: "saving"},
			{Step: 0, Name: "evaluation"},
		},
	}
	add := func(site uint32, mebibytes int64) uint32 {
		n := uint32(len(p.Buffers))
		p.Buffers = append(p.Buffers, program.Buffer{Bytes: mebibytes << 20, Site: site})
		p.Instructions = append(p.Instructions, program.Instruction{Kind: program.Alloc, Arg: n})
		return n
	}
	free := func(n uint32) {
		p.Instructions = append(p.Instructions, program.Instruction{Kind: program.Free, Arg: n})
	}
	mark := func(phase uint32) {
		p.Instructions = append(p.Instructions, program.Instruction{Kind: program.MarkPhase, Arg: phase})
	}
	add(0, 40)
	before := add(1, 20)
	mark(0)
	add(1, 60)
	mark(1)
	free(before)
	for range 3 {
		free(add(2, 24))
		free(add(2, 24))
	}
	kept := []uint32{add(2, 24), add(2, 24), add(2, 24)}
	mark(2)

	saved := step.CheckpointCopies(p)
	require.Equal(t, []report.Component{{Name: "a.py:2:save", Bytes: 80 << 20}}, saved.Lines(2))
	gpu, err := device.Lookup("rtx-3090")
	require.NoError(t, err)
	there, err := saved.PeaksWithout(t.Context(), gpu, allocator.DefaultConfig())
	require.NoError(t, err)
	require.EqualValues(t, (40+3*24)<<20, there.Allocated)

	within := func(p *program.Phase) bool { return p.Name == "evaluation" }
	none, _ := step.LiveAtPeakOf(p, within).RepeatedLine(3, false)
	require.Empty(t, none.Lines(1), "most were freed")
	p.Instructions = p.Instructions[:len(p.Instructions)-1]
	for range 6 {
		kept = append(kept, add(2, 24))
	}
	mark(2)
	for range 3 {
		add(1, 60)
	}
	mark(0)
	for _, every := range []bool{false, true} {
		outputs, line := step.LiveAtPeakOf(p, within).RepeatedLine(3, every)
		require.Equal(t, "a.py:3:validate", line)
		there, err = outputs.PeaksWithout(t.Context(), gpu, allocator.DefaultConfig())
		require.NoError(t, err)
		require.EqualValues(t, (40+60+24+3*60)<<20, there.Allocated, "the outputs live on, but for the last of them")
	}
}
