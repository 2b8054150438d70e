package replay_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/allocator"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/replay"
)

// training returns a training loop of steps of micro-batches whose lengths are given: weights, a batch that stays until
// the next is there, activations, gradients, and an optimizer whose state comes with the first step.
func training(microBatches int, lengths ...int64) *program.Program {
	const width = 300_000
	s := newScript()
	s.alloc("weight", program.Weights, 8*mib)
	s.alloc("bias", program.Weights, 700)
	s.mark(-1, "model")
	s.alloc("batch", program.Batch, 8*lengths[0])
	s.mark(-1, "batch")
	for step := range len(lengths) / microBatches {
		for i := range microBatches {
			at := step*microBatches + i
			n := lengths[at]
			if at > 0 && n != lengths[at-1] {
				old := s.buffers["batch"]
				s.alloc("batch", program.Batch, 8*n)
				s.emit(program.Free, old)
			}
			for layer := range 3 {
				s.alloc(fmt.Sprint("hidden", layer), program.Activations, n*width)
			}
			if at > 0 {
				s.free("loss")
			}
			s.alloc("loss", program.Activations, 4*n)
			s.mark(step, "loss")
			for layer := 2; layer >= 0; layer-- {
				s.alloc("grad", program.Temporaries, n*width/2)
				s.free(fmt.Sprint("hidden", layer))
				s.free("grad")
			}
			if i == 0 {
				s.alloc("weight.grad", program.Gradients, 8*mib)
			}
			s.mark(step, "backward")
		}
		if step == 0 {
			s.alloc("momentum", program.OptimizerState, 8*mib)
		}
		s.free("weight.grad")
		s.mark(step, "step_end")
	}
	return &s.Program
}

// A loop over programs of one length each is the program of all the lengths.
func TestALoopIsTheProgramOfAllItsSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		microBatches := rapid.IntRange(1, 3).Draw(t, "micro-batches")
		steps := rapid.IntRange(1, 12).Draw(t, "steps")
		lengths := rapid.SliceOfN(rapid.Int64Range(1, 40), steps*microBatches, steps*microBatches).Draw(t, "lengths")
		memory := rapid.Int64Range(60, 400).Draw(t, "MiB") * mib
		config := drawConfig(t)

		whole, err := replay.Replay(t.Context(), training(microBatches, lengths...),
			replay.Options{Config: config, Total: memory})
		require.NoError(t, err)

		recorded := min(microBatches, 2)
		cut := map[int64]*replay.ReplayableSteps{}
		for _, n := range lengths {
			same := make([]int64, 2*recorded)
			for i := range same {
				same[i] = n
			}
			cut[n], err = replay.CutSteps(training(recorded, same...), recorded)
			require.NoError(t, err)
		}
		loop, err := replay.NewLoop(replay.Options{Config: config, Total: memory})
		require.NoError(t, err)
		var oom *allocator.OOMError
		for i := 0; i < len(lengths) && oom == nil; i += microBatches {
			var batches []*replay.ReplayableSteps
			for _, n := range lengths[i : i+microBatches] {
				batches = append(batches, cut[n])
			}
			if err := loop.Step(t.Context(), batches...); !errors.As(err, &oom) {
				require.NoError(t, err)
			}
		}
		require.Equal(t, whole.OOM != nil, oom != nil)
		require.Equal(t, whole.Max.Reserved, loop.Stats().ReservedBytes[allocator.AllPools].Peak)
		require.Equal(t, whole.Max.Allocated, loop.Stats().AllocatedBytes[allocator.AllPools].Peak)
		require.Equal(t, whole.Stats.NumAllocRetries, loop.Stats().NumAllocRetries)
	})
}

func TestALoopNeedsProgramsOfOneModel(t *testing.T) {
	small, err := replay.CutSteps(training(1, 3, 3), 1)
	require.NoError(t, err)
	other := training(1, 3, 3)
	other.Buffers[0].Bytes *= 2
	large, err := replay.CutSteps(other, 1)
	require.NoError(t, err)
	loop, err := replay.NewLoop(replay.Options{})
	require.NoError(t, err)
	require.Error(t, loop.Step(t.Context()))
	require.NoError(t, loop.Step(t.Context(), small))
	require.ErrorContains(t, loop.Step(t.Context(), large), "record different models")
}

func TestWhatCannotBeCut(t *testing.T) {
	for want, c := range map[string]struct {
		program      *program.Program
		microBatches int
	}{
		"need at least 1": {training(1, 3, 3), 0},
		"replay: the recording needs a set-up and two training steps; record more": {training(1, 3), 1},
		"2 backward passes of a step cannot be":                                    {training(2, 3, 3, 3, 3), 3},
		"is freed but not allocated": {&program.Program{Instructions: []program.Instruction{
			{Kind: program.Free},
			{Kind: program.MarkPhase},
		}, Phases: []program.Phase{{}}, Buffers: make([]program.Buffer, 1)}, 1},
		"replay: the recording needs a set-up and two training steps; record more steps": {&program.Program{}, 1},
	} {
		_, err := replay.CutSteps(c.program, c.microBatches)
		require.ErrorContains(t, err, want)
	}
}

func TestAStepThatLeavesMoreIsNotForAllOthers(t *testing.T) {
	p := training(1, 3, 3)
	p.Buffers = append(p.Buffers, program.Buffer{Bytes: 512, Class: program.Activations})
	last := p.Instructions[len(p.Instructions)-1]
	p.Instructions[len(p.Instructions)-1] = program.Instruction{Kind: program.Alloc, Arg: uint32(len(p.Buffers) - 1)}
	p.Instructions = append(p.Instructions, last)
	_, err := replay.CutSteps(p, 1)
	require.ErrorIs(t, err, replay.ErrStepsDiffer)
}

func TestActionsAreThoseOfAStep(t *testing.T) {
	steps, err := replay.CutSteps(training(1, 3, 3), 1)
	require.NoError(t, err)
	require.Equal(t, 3+2+9+1+1, steps.ActionCount()) // hidden states, the loss, backward, the gradient's life
}

func BenchmarkLoop(b *testing.B) {
	var steps []*replay.ReplayableSteps
	for n := range int64(8) {
		s, err := replay.CutSteps(training(1, n+1, n+1), 1)
		require.NoError(b, err)
		steps = append(steps, s)
	}
	loop, err := replay.NewLoop(replay.Options{})
	require.NoError(b, err)
	for i := range b.N {
		require.NoError(b, loop.Step(b.Context(), steps[i%len(steps)]))
	}
}
