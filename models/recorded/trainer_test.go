package recorded

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

// question returns a question about a convolution of a batch.
func question(batch int64) query.Question {
	return query.NewQuestion(cudnn.Config{
		Dim: 2, DType: cudnn.BF16, Layout: cudnn.ChannelsLast, N: batch, Ci: 64, Co: 64, Groups: 1,
		In: [3]int64{14, 14}, K: [3]int64{3, 3}, Stride: [3]int64{1, 1}, Pad: [3]int64{1, 1},
		Dilation: [3]int64{1, 1},
	}, cudnn.Forward)
}

// Workspaces of convolutions do not follow from other batch sizes: cuDNN is asked about each, and what was recorded
// stays at the batch sizes that were.
func TestWorkspacesAreAskedFor(t *testing.T) {
	with := func(batch int) *Recording {
		r := step(batch)
		last := &r.steps[1]
		last.Convolutions = []Convolution{{Place: 4, Workspace: 4, Question: question(int64(batch))}}
		if batch == 16 {
			last.Allocations = last.Allocations[:4]
			last.Order = []int{0, 1, 2, 3, ^1, ^2, ^0}
			last.Backward = 5
			last.Convolutions[0].Workspace = -1
		}
		return r
	}
	f := file(with(4), with(16))
	again, err := Read(bytes.NewReader(packed(t, f)), "toy.vprof")
	require.NoError(t, err)
	require.Equal(t, f.Recordings[0].steps[1].Convolutions, again.Recordings[0].steps[1].Convolutions)
	seen := func(batch int) map[int64]int {
		r, err := f.AtBatch("bf16", batch)
		require.NoError(t, err)
		gpu := trace.GPU{Name: "a100-40", Capability: 80, Memory: 40 << 30}
		tape := trace.New(gpu, stack.Default().Rules(), trace.Options{Warm: true})
		said := func(string, int) cudnn.Answer {
			return func(c cudnn.Config, d cudnn.Direction) (int64, bool) { return 7000 * c.N, true }
		}
		require.NoError(t, newTrainer(f, r, toyCase(batch), said).Record(tape, 2))
		sizes := map[int64]int{}
		for _, b := range tape.Program().Buffers {
			sizes[b.Bytes]++
		}
		return sizes
	}
	require.Zero(t, seen(4)[7000*4])
	require.Equal(t, 1, seen(6)[7000*6], "in the place of what was recorded")
	require.Equal(t, 1, seen(12)[7000*12], "where there was none")
	require.Zero(t, seen(6)[16*6])

	r, err := f.AtBatch("bf16", 6)
	require.NoError(t, err)
	tape := trace.New(trace.GPU{Name: "a100-40", Capability: 80}, stack.Default().Rules(), trace.Options{Warm: true})
	nobody := func(string, int) cudnn.Answer { return nil }
	require.NoError(t, newTrainer(f, r, toyCase(6), nobody).Record(tape, 2), "the rules answer")
}

// In a loop at the top level of a script, what a step returned lives until the next forward pass has returned.
func TestOutputsOutliveAPlainLoopsStep(t *testing.T) {
	most := func(loop models.Loop) (before, peak int64) {
		c, r := toyCase(6), step(6)
		c.Loop = loop
		tape := trace.New(trace.GPU{}, trace.Rules{}, trace.Options{Warm: true})
		require.NoError(t, newTrainer(file(r), r, c, nil).Record(tape, 3))
		p := tape.Program()
		require.NoError(t, p.Validate())
		for in, now := range p.Live() {
			if in.Kind == program.MarkPhase && p.Phases[in.Arg].Name == "step_end" {
				before = now
			}
		}
		return before, p.Peak()
	}
	functionLeaves, functionPeak := most(models.LoopFunction)
	plainLeaves, plainPeak := most(models.LoopPlain)
	require.Equal(t, int64(6*64+4), plainLeaves-functionLeaves, "the scores and the loss")
	require.Greater(t, plainPeak, functionPeak)
}

// A loop that keeps what the model returned has it to the end of each step, as if it had been recorded so; a trainer's
// frees it once the loss is there.
func TestLoopsKeepWhatTheModelReturned(t *testing.T) {
	play := func(r *Recording, loop models.Loop) (p *program.Program, backward int64) {
		c := toyCase(6)
		c.Loop = loop
		tape := trace.New(trace.GPU{}, trace.Rules{}, trace.Options{Warm: true})
		require.NoError(t, newTrainer(file(r), r, c, nil).Record(tape, 2))
		p = tape.Program()
		for in, now := range p.Live() {
			if in.Kind == program.MarkPhase && p.Phases[in.Arg].Name == "forward" {
				backward = now
			}
		}
		return p, backward
	}
	kept, loose := step(6), step(6)
	kept.steps[1].Order = []int{0, 1, 2, 3, 4, ^4, ^1, ^0, ^2}
	loose.steps[0].Order, loose.steps[0].Forward, loose.steps[0].Backward = []int{0, 1, ^0, 2}, 3, 4
	loose.steps[1].Order, loose.steps[1].Forward = []int{0, 1, 2, ^0, 3, 4, ^4, ^1, ^2}, 4
	loose.steps[1].Backward = 8
	for i := range loose.steps {
		loose.steps[i].Returned = []int{0}
	}
	_, want := play(kept, models.LoopTrainer)
	_, got := play(loose, models.LoopTrainer)
	require.Equal(t, int64(6*64), want-got)
	for _, loop := range []models.Loop{"", models.LoopFunction, models.LoopPlain} {
		want, _ := play(kept, loop)
		got, _ := play(loose, loop)
		require.Equal(t, want.Instructions, got.Instructions)
		require.Equal(t, want.Buffers, got.Buffers)
	}
}

// A recorded set-up leaves weights where they lay: the copy that a recurrent layer makes of all its weights, in place
// of each that came.
func TestWeightsLieWhereTheyWereRecorded(t *testing.T) {
	of := func(setup Step) *File {
		f := file(step(6))
		setup.sites = toySites
		f.Recordings[0].setup = setup
		return f
	}
	f, err := Read(bytes.NewReader(packed(t, of(Step{
		Allocations: []Allocation{{128, 0}, {24, 0}, {4096, 0}}, Order: []int{0, 1, 2, ^0}, Held: []Place{
			{2, 512},
			{1, 0},
		},
	}))), "toy.vprof")
	require.NoError(t, err)
	tape := trace.New(trace.GPU{}, trace.Rules{}, trace.Options{Warm: true})
	require.NoError(t, newTrainer(f, f.Recordings[0], toyCase(6), nil).Record(tape, 2))
	p := tape.Program()
	require.NoError(t, p.Validate())
	var seen []int64
	for in, now := range p.Live() {
		if in.Kind == program.MarkPhase {
			require.Equal(t, "model", p.Phases[in.Arg].Name)
			require.Equal(t, []int64{128, 24, 4096, -128}, seen)
			require.Equal(t, int64(24+4096), now)
			break
		}
		seen = append(seen, map[program.Kind]int64{program.Alloc: 1, program.Free: -1}[in.Kind]*p.Buffers[in.Arg].Bytes)
	}
	none := Place{Allocation: -1}
	for what, bad := range map[string]Step{
		"two tensors":  {Held: []Place{none}},
		"is freed":     {Allocations: []Allocation{{128, 0}}, Order: []int{0, ^0}, Held: []Place{{0, 0}, none}},
		"is too small": {Allocations: []Allocation{{64, 0}}, Order: []int{0}, Held: []Place{{0, 0}, none}},
		"behind its end": {
			Allocations: []Allocation{{128, 0}}, Order: []int{0}, Held: []Place{{0, 8}, none},
		},
	} {
		_, err := Read(bytes.NewReader(packed(t, of(bad))), "toy.vprof")
		require.ErrorContains(t, err, "set-up", what)
	}
}

// Under autocast in fp16 a scaler scales the loss and unscales the gradients.
func TestScaledSteps(t *testing.T) {
	c, r := toyCase(6), step(6)
	c.AMP = "fp16"
	tape := trace.New(trace.GPU{}, trace.Rules{}, trace.Options{Warm: true})
	require.NoError(t, newTrainer(file(r), r, c, nil).Record(tape, 2))
	require.NoError(t, tape.Program().Validate())
}

// A step is what was recorded, the optimizer's step in between, and leaves weights, state and what libraries keep.
func TestStepsPlayTheRecording(t *testing.T) {
	for _, accumulate := range []int{1, 3} {
		c := toyCase(6)
		c.Accumulate = accumulate
		tape := trace.New(trace.GPU{}, trace.Rules{}, trace.Options{Warm: true})
		r := step(6)
		require.NoError(t, newTrainer(file(r), r, c, nil).Record(tape, 2))
		p := tape.Program()
		require.NoError(t, p.Validate())
		held, seen := map[program.Class]int64{}, map[int64]int{}
		for _, in := range p.Instructions {
			switch in.Kind {
			case program.Alloc:
				held[p.Buffers[in.Arg].Class] += p.Buffers[in.Arg].Bytes
				seen[p.Buffers[in.Arg].Bytes]++
			case program.Free:
				held[p.Buffers[in.Arg].Class] -= p.Buffers[in.Arg].Bytes
			default:
			}
		}
		require.Equal(t, int64(128), held[program.Weights])
		require.Equal(t, int64(8<<10), held[program.Workspace])
		require.Equal(t, int64(6*32), held[program.Batch])
		require.Zero(t, held[program.Activations])
		require.Zero(t, held[program.Gradients])
		require.GreaterOrEqual(t, held[program.OptimizerState], int64(256))
		require.Equal(t, 2*accumulate, seen[6*64])
	}
}

// What lives when backward begins is kept for it, but for gradients.
func TestClasses(t *testing.T) {
	r := step(2)
	require.Equal(t, []program.Class{
		program.Activations, program.Activations, program.Activations, program.Gradients,
		program.Temporaries,
	}, r.steps[1].classes(false))
}
