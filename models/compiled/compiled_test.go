package compiled

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/oracle"
)

// step is a step of a model of one weight w of 4 x 8 floats at a batch size: scores and a hidden tensor in forward, a
// gradient in backward; scores live to the end of the step. The first step leaves a workspace, and has no hidden
// tensor.
func step(batch int) Recording {
	n := int64(batch)
	first := Step{
		Allocations: [][3]int64{{n * 64, 0}, {8 << 10, 1}, {128, 1}},
		Order:       []int{0, 1, 2, ^0},
		Forward:     2, Backward: 3,
		Gradients: []Gradient{{2, "w", 0}},
	}
	return Recording{AMP: "bf16", Batch: batch, Steps: [2]Step{first, {
		Allocations: [][3]int64{{n * 64, 0}, {n * 32, 1}, {4, 0}, {128, 1}, {n * 16, 0}},
		Order:       []int{0, 1, 2, 3, 4, ^4, ^1, ^2, ^0},
		Forward:     3, Backward: 7,
		Gradients: []Gradient{{3, "w", 0}},
	}}}
}

func file(recordings ...Recording) *File {
	return &File{
		Schema: Schema, Torch: "2.15.0+cu132", GPU: "a100-40", Model: "toy", Form: "whole",
		Parameters: []Tensor{{"w", []int64{4, 8}, "float32", true}}, Buffers: []Tensor{{
			"b",
			[]int64{3},
			"int64",
			false,
		}},
		Inputs: []Tensor{{"x", []int64{-1, 8}, "float32", false}}, Sites: []string{"toy.py:3:forward", ""},
		Recordings: recordings,
	}
}

func toyCase(batch int) models.Case {
	return models.Case{
		Model: "pt2:toy", Stage: "full", Batch: batch, AMP: "bf16", Accumulate: 1, Torch: "2.15",
		Levers: models.Levers{Compile: true},
	}
}

// Sizes that are affine in the batch are exact between recordings and beyond them.
func TestSizesFollowTheBatch(t *testing.T) {
	f := file(step(4), step(16))
	rapid.Check(t, func(t *rapid.T) {
		batch := rapid.IntRange(1, 4096).Draw(t, "batch")
		r, err := f.AtBatch("bf16", batch)
		require.NoError(t, err)
		require.Equal(t, step(batch), *r)
	})
}

// The order of events is that of the nearer recording, and sizes follow from both, whatever the other's order; buffers
// that one of them alone has stay as they are. Between the two the other order is possible, too.
func TestOrderOfTheNearer(t *testing.T) {
	last := step(64)
	far := &last.Steps[1]
	far.Allocations = append(slices.Clone(far.Allocations), [3]int64{16, 1})
	far.Order = []int{0, 1, 2, 3, 4, 5, ^5, ^1, ^4, ^2, ^0}
	far.Backward = 9
	f := file(step(4), last)
	r, err := f.AtBatch("bf16", 10)
	require.NoError(t, err)
	require.Equal(t, step(10), *r)
	r, err = f.AtBatch("bf16", 40)
	require.NoError(t, err)
	require.Equal(t, far.Order, r.Steps[1].Order)
	require.Equal(t, append(step(40).Steps[1].Allocations, [3]int64{16, 1}), r.Steps[1].Allocations)
	require.Equal(t, step(40).Steps[0], r.Steps[0])

	require.Equal(t, r.Steps[1].Order, f.reordered("bf16", 10).Steps[1].Order)
	require.Equal(t, step(40), *f.reordered("bf16", 40))
	for _, batch := range []int{2, 4, 64, 100} {
		require.Nil(t, f.reordered("bf16", batch), "no doubt at %d", batch)
	}
	require.Nil(t, f.reordered("fp16", 10), "nothing is recorded")
	require.Nil(t, file(step(4), step(64)).reordered("bf16", 10), "one order")

	f.Recordings[0].FusesFrom, f.Recordings[1].FusesFrom = []int{8, 9, 300}, []int{8, 9}
	for batch, order := range map[int][]int{7: step(4).Steps[1].Order, 8: step(4).Steps[1].Order, 10: far.Order} {
		r, err = f.AtBatch("bf16", batch)
		require.NoError(t, err)
		require.Equal(t, order, r.Steps[1].Order, "what is fused goes before what is nearer, at %d", batch)
	}
}

// Results of the same node, and gradients of the same parameter, are counterparts, whatever their sizes and order.
func TestNamesGoBeforeSizes(t *testing.T) {
	at := func(n int64, order ...int) Recording {
		s := Step{
			Order: []int{0, 1, 2, 3, 4, ^0, ^1, ^3}, Forward: 2, Backward: 8,
			Gradients: []Gradient{{2, "w", 0}},
		}
		all := [][3]int64{{900 + n, 0, 1}, {100 + 50*n, 0, 2}, {128, 0, 0}, {7 + 3*n, 0, 3}, {10 * n, 0, 0}}
		for _, i := range order {
			s.Allocations = append(s.Allocations, all[i])
		}
		return Recording{AMP: "bf16", Batch: int(n), Steps: [2]Step{s, s}}
	}
	near, far := at(8, 0, 1, 2, 3, 4), at(64, 1, 0, 2, 3, 4)
	f := file(near, far)
	f.Names = []string{"", "mul > gelu", "addmm", "sum"}
	r, err := f.AtBatch("bf16", 16)
	require.NoError(t, err)
	require.Equal(t, at(16, 0, 1, 2, 3, 4).Steps[1].Allocations, r.Steps[1].Allocations)
	f.Budget = 0.5
	_, err = f.AtBatch("bf16", 16)
	require.NoError(t, err, "the same are kept")
	f.Names[1] = "mul"
	f.Recordings[1].Steps[1].Allocations[1][2] = 3
	_, err = f.AtBatch("bf16", 16)
	require.ErrorContains(t, err, "other tensors are kept")
}

// question is about a convolution of a batch.
func question(batch int64) oracle.Question {
	return oracle.Of(cudnn.Config{
		Dim: 2, DType: cudnn.BF16, Layout: cudnn.ChannelsLast, N: batch, Ci: 64, Co: 64, Groups: 1,
		In: [3]int64{14, 14}, K: [3]int64{3, 3}, Stride: [3]int64{1, 1}, Pad: [3]int64{1, 1},
		Dilation: [3]int64{1, 1},
	}, cudnn.Forward)
}

// Workspaces of convolutions do not follow from other batch sizes: cuDNN is asked about each, and what was recorded
// stays at the batch sizes that were.
func TestWorkspacesAreAskedFor(t *testing.T) {
	with := func(batch int) Recording {
		r := step(batch)
		last := &r.Steps[1]
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
	again, err := Read(written(t, f), "toy.compiled")
	require.NoError(t, err)
	require.Equal(t, f.Recordings[0].Steps[1].Convolutions, again.Recordings[0].Steps[1].Convolutions)
	seen := func(batch int) map[int64]int {
		r, err := f.AtBatch("bf16", batch)
		require.NoError(t, err)
		board := trace.Board{Name: "a100-40", Capability: 80, Memory: 40 << 30}
		tape := trace.New(board, stack.Default().Rules(), trace.Options{Warm: true})
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
	tape := trace.New(trace.Board{Name: "a100-40", Capability: 80}, stack.Default().Rules(), trace.Options{Warm: true})
	nobody := func(string, int) cudnn.Answer { return nil }
	require.NoError(t, newTrainer(f, r, toyCase(6), nobody).Record(tape, 2), "the rules answer")
}

// In a loop at the top level of a script, what a step returned lives until the next forward pass has returned.
func TestOutputsOutliveAPlainLoopsStep(t *testing.T) {
	most := func(loop models.Loop) (before, peak int64) {
		c, r := toyCase(6), step(6)
		c.Loop = loop
		tape := trace.New(trace.Board{}, trace.Rules{}, trace.Options{Warm: true})
		require.NoError(t, newTrainer(file(r), &r, c, nil).Record(tape, 3))
		p := tape.Program()
		require.NoError(t, p.Validate())
		for in, now := range p.Live() {
			if in.Kind == program.Mark && p.Phases[in.Arg].Name == "step_end" {
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
// lets go of it once the loss is there.
func TestLoopsKeepWhatTheModelReturned(t *testing.T) {
	play := func(r Recording, loop models.Loop) (p *program.Program, backward int64) {
		c := toyCase(6)
		c.Loop = loop
		tape := trace.New(trace.Board{}, trace.Rules{}, trace.Options{Warm: true})
		require.NoError(t, newTrainer(file(r), &r, c, nil).Record(tape, 2))
		p = tape.Program()
		for in, now := range p.Live() {
			if in.Kind == program.Mark && p.Phases[in.Arg].Name == "forward" {
				backward = now
			}
		}
		return p, backward
	}
	kept, loose := step(6), step(6)
	kept.Steps[1].Order = []int{0, 1, 2, 3, 4, ^4, ^1, ^0, ^2}
	loose.Steps[0].Order, loose.Steps[0].Forward, loose.Steps[0].Backward = []int{0, 1, ^0, 2}, 3, 4
	loose.Steps[1].Order, loose.Steps[1].Forward = []int{0, 1, 2, ^0, 3, 4, ^4, ^1, ^2}, 4
	loose.Steps[1].Backward = 8
	for i := range loose.Steps {
		loose.Steps[i].Returned = []int{0}
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
	f := file(step(6))
	f.Setup = &Setup{
		Allocations: []int64{128, 24, 4096}, Order: []int{0, 1, 2, ^0}, Held: [][2]int64{{2, 512}, {1, 0}},
	}
	_, err := f.check()
	require.NoError(t, err)
	tape := trace.New(trace.Board{}, trace.Rules{}, trace.Options{Warm: true})
	require.NoError(t, newTrainer(f, &f.Recordings[0], toyCase(6), nil).Record(tape, 2))
	p := tape.Program()
	require.NoError(t, p.Validate())
	var seen []int64
	for in, now := range p.Live() {
		if in.Kind == program.Mark {
			require.Equal(t, "model", p.Phases[in.Arg].Name)
			require.Equal(t, []int64{128, 24, 4096, -128}, seen)
			require.Equal(t, int64(24+4096), now)
			break
		}
		seen = append(seen, map[program.Kind]int64{program.Alloc: 1, program.Free: -1}[in.Kind]*p.Buffers[in.Arg].Bytes)
	}
	for what, bad := range map[string]Setup{
		"two tensors":       {Held: [][2]int64{{-1, 0}}},
		"is freed":          {Allocations: []int64{128}, Order: []int{0, ^0}, Held: [][2]int64{{0, 0}, {-1, 0}}},
		"is never made":     {Allocations: []int64{128}, Held: [][2]int64{{0, 0}, {-1, 0}}},
		"is too small":      {Allocations: []int64{64}, Order: []int{0}, Held: [][2]int64{{0, 0}, {-1, 0}}},
		"behind its end":    {Allocations: []int64{128}, Order: []int{0}, Held: [][2]int64{{0, 8}, {-1, 0}}},
		"before it begins":  {Allocations: []int64{128}, Order: []int{0}, Held: [][2]int64{{0, -8}, {-1, 0}}},
		"nothing there":     {Held: [][2]int64{{7, 0}, {-1, 0}}},
		"freed before made": {Allocations: []int64{128}, Order: []int{^0, 0}, Held: [][2]int64{{0, 0}, {-1, 0}}},
		"no such":           {Order: []int{3}, Held: [][2]int64{{-1, 0}, {-1, 0}}},
	} {
		f.Setup = &bad
		key, err := f.check()
		require.Error(t, err, what)
		require.Equal(t, "setup", key)
	}
}

// What Inductor fuses, and the line that it names, may be other ones at another batch size.
func TestBuffersOfOtherLinesAreCounterparts(t *testing.T) {
	far := step(16)
	last := &far.Steps[1]
	last.Allocations[0][1], last.Allocations[1][1] = 1, 0
	r, err := file(step(4), far).AtBatch("bf16", 6)
	require.NoError(t, err)
	require.Equal(t, step(6), *r)
}

// Nothing follows from one recording, nor from two steps that have little in common.
func TestWhereNothingFollows(t *testing.T) {
	_, err := file(step(4)).AtBatch("bf16", 5)
	require.ErrorContains(t, err, "record two batch sizes")
	other := step(8)
	for i := range other.Steps[1].Allocations {
		a := &other.Steps[1].Allocations[i]
		a[0], a[1] = 3*a[0]+7, 1-a[1]
	}
	_, err = file(step(4), other).AtBatch("bf16", 5)
	require.ErrorContains(t, err, "the steps at batch 4 and 8 have too little in common")
}

// Under autocast in fp16 a scaler scales the loss and unscales the gradients.
func TestScaledSteps(t *testing.T) {
	c, r := toyCase(6), step(6)
	c.AMP = "fp16"
	tape := trace.New(trace.Board{}, trace.Rules{}, trace.Options{Warm: true})
	require.NoError(t, newTrainer(file(r), &r, c, nil).Record(tape, 2))
	require.NoError(t, tape.Program().Validate())
}

// Of eager steps, what one batch size has more of is left out, and the rest is matched in its order.
func TestEagerStepsKeepTheirOrder(t *testing.T) {
	sized := func(batch int, sizes ...int64) Recording {
		r := step(batch)
		s := &r.Steps[1]
		for i, size := range sizes {
			n := len(s.Allocations)
			s.Allocations = append(s.Allocations, [3]int64{size, 1})
			s.Order = slices.Insert(s.Order, s.Forward+2*i, n, ^n)
		}
		s.Forward, s.Backward = s.Forward+2*len(sizes), s.Backward+2*len(sizes)
		s.renumber()
		return r
	}
	f := file(sized(4, 1000, 100), sized(8, 40, 1500, 30, 150))
	f.Form = Eager
	r, err := f.AtBatch("bf16", 5)
	require.NoError(t, err)
	want := sized(5, 1125, 113)
	require.Equal(t, want.Steps[1], r.Steps[1])
	larger := file(step(4), sized(8, 1<<20), step(16))
	require.Positive(t, larger.offTheLine("bf16"), "a step that needs more than its neighbors")
}

// renumber numbers the allocations in the order in which they happen.
func (s *Step) renumber() {
	numbers, allocations := map[int]int{}, make([][3]int64, 0, len(s.Allocations))
	for i, n := range s.Order {
		if n >= 0 {
			numbers[n] = len(allocations)
			allocations = append(allocations, s.Allocations[n])
			s.Order[i] = numbers[n]
		} else {
			s.Order[i] = ^numbers[^n]
		}
	}
	for i := range s.Gradients {
		s.Gradients[i].Allocation = numbers[s.Gradients[i].Allocation]
	}
	s.Allocations = allocations
}

// A model of a recorded step plans what was recorded and what lies between, survives being written into results, and
// refuses what would take another recording.
func TestModelsOfSteps(t *testing.T) {
	f := file(step(4), step(16), step(64))
	f.Form = Eager
	path := filepath.Join(t.TempDir(), "toy.step")
	require.NoError(t, os.WriteFile(path, written(t, f), 0o600))
	m, err := Steps(nil).Open(path)
	require.NoError(t, err)
	require.Equal(t, "step:toy", m.Name)
	again, err := Steps(nil).Restore(m.Name, m.Description.Text())
	require.NoError(t, err)
	require.Equal(t, m.Description, again.Description)
	require.Equal(t, []int{4, 16, 64}, m.Batches)
	require.False(t, m.Partial)
	require.Contains(t, f.Line("bf16"), "sizes follow the batch in a line")
	c := m.Default
	c.Batch = 10
	require.NoError(t, m.Check(c))
	trainer, err := m.Build(c)
	require.NoError(t, err)
	tape := trace.New(trace.Board{}, trace.Rules{}, trace.Options{Warm: true})
	require.NoError(t, trainer.Record(tape, 2))
	require.NoError(t, tape.Program().Validate())
	c.Batch = 200
	require.Contains(t, m.Caveat(c)[1], "beyond batch 4 to 64 goes on in a line")
	for _, change := range []func(*models.Case){
		func(c *models.Case) { c.Compile = true }, func(c *models.Case) { c.AMP = "fp16" },
		func(c *models.Case) { c.Checkpointing = true }, func(c *models.Case) { c.Torch = "2.14" },
	} {
		c := m.Default
		change(&c)
		require.ErrorContains(t, m.Check(c), "recorded")
	}
	require.Empty(t, m.Levers.Loop, "what the model returned was kept")
	f.Recordings[0].Steps[1].Returned = []int{0}
	m, err = stepModel("x.step", "step:x", written(t, f), nil)
	require.NoError(t, err)
	require.Equal(t, models.LoopFunction, m.Levers.Loop)
	_, err = stepModel("x.step", "step:x", written(t, file(step(4))), nil)
	require.ErrorContains(t, err, "a compiled step")
}

// written is the content of a file.
func written(t *testing.T, f *File) []byte {
	var content bytes.Buffer
	require.NoError(t, f.Write(&content))
	return content.Bytes()
}

// A step is what was recorded, the optimizer's step in between, and leaves weights, state and what libraries keep.
func TestStepsPlayTheRecording(t *testing.T) {
	for _, accumulate := range []int{1, 3} {
		c := toyCase(6)
		c.Accumulate = accumulate
		tape := trace.New(trace.Board{}, trace.Rules{}, trace.Options{Warm: true})
		r := step(6)
		require.NoError(t, newTrainer(file(r), &r, c, nil).Record(tape, 2))
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
	}, r.Steps[1].classes(false))
}

// A case that differs from what was recorded says in what.
func TestCasesThatWereNotRecorded(t *testing.T) {
	f, usual := file(step(4)), models.Case{
		Model: "pt2:toy", Stage: "full", Batch: 1, Accumulate: 1,
		Settings: models.Settings{"seq": 256},
	}
	f.Sizes = map[string]int64{"seq": 256}
	for _, k := range []struct {
		change func(*models.Case)
		want   string
	}{
		{func(*models.Case) {}, ""},
		{func(c *models.Case) { c.Optimizer, c.Accumulate, c.Clip = "sgd", 4, models.ClipNorm }, ""},
		{func(c *models.Case) { c.Batch = 5 }, "nothing follows for batch 5"},
		{func(c *models.Case) { c.AMP = "none" }, "no step with --amp none is recorded"},
		{func(c *models.Case) { c.Torch = "2.14" }, "PyTorch 2.15.0+cu132 compiled what is recorded"},
		{func(c *models.Case) { c.Checkpointing = true }, "recorded without checkpointing"},
		{func(c *models.Case) { c.Settings = models.Settings{"seq": 512} }, "recorded with seq=256"},
		{func(c *models.Case) { c.Loss = "mse" }, "recorded with another loss"},
		{func(c *models.Case) { c.LoRA = &models.LoRA{Rank: 8} }, "recorded without lora"},
		{func(c *models.Case) { c.GPUs = 8 }, "recorded on one GPU"},
		{func(c *models.Case) { c.Loop = models.LoopPlain }, ""},
	} {
		c := toyCase(4)
		k.change(&c)
		if k.want == "" {
			require.Empty(t, f.missing(c, usual))
		} else {
			require.Contains(t, f.missing(c, usual), k.want)
		}
	}
}

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

func packed(t *testing.T, f *File) []byte {
	var content bytes.Buffer
	w := gzip.NewWriter(&content)
	require.NoError(t, json.NewEncoder(w).Encode(f))
	require.NoError(t, w.Close())
	return content.Bytes()
}

// A model is planned by what lies beside its file, and by its description where the file is not.
func TestModelsHaveWhatLiesBesideThem(t *testing.T) {
	plain := models.Source{
		Scheme: "toy", Open: func(string) (models.Model, error) {
			return models.Model{
				Name: "toy:m", Description: models.Describe("a description"),
				Build: func(models.Case) (models.Trainer, error) { return nil, nil },
			}, nil
		},
	}
	plain.Restore = func(_, description string) (models.Model, error) {
		require.Equal(t, "a description", description)
		return plain.Open("")
	}
	s, path := Source(plain, nil), filepath.Join(t.TempDir(), "m.toy")
	m, err := s.Open(path)
	require.NoError(t, err)
	require.NotEmpty(t, m.NotRecorded(toyCase(4)))
	require.NoError(t, os.WriteFile(FileOf(path), packed(t, file(step(4), step(8))), 0o600))
	m, err = s.Open(path)
	require.NoError(t, err)
	for _, m := range []models.Model{m, must(s.Restore("toy:m", m.Description.Text()))} {
		require.Empty(t, m.NotRecorded(toyCase(4)))
		built, err := m.Build(toyCase(6))
		require.NoError(t, err)
		require.Equal(t, models.Counts{Total: 32, Trainable: 32, Buffers: 3, Gradients: 128}, built.Counts())
		require.Contains(t, m.Caveats(toyCase(64))[0], "Inductor of PyTorch 2.15.0+cu132")
		require.Contains(t, m.Caveats(toyCase(64))[1], "recorded from batch 4 to 8")
		eager, err := m.Build(models.Case{Batch: 6})
		require.NoError(t, err)
		require.Nil(t, eager)
	}
}

// A listed model is planned by the step that was recorded of it in the settings of a case, if that is compiled, and from
// its description where the folder is not. Steps of its own loop let go of what the model returned and clip gradients.
func TestListedModelsHaveWhatWasRecordedOfThem(t *testing.T) {
	registry := func(folder string) *models.Registry {
		return models.NewRegistry([]models.Model{{
			Name: "toy", Stages: []string{"full"}, Settings: []models.Setting{{Name: "size", Default: 1, Max: 8}},
			Class:   func(s models.Settings) models.Class { return models.Class{Seq: int(s["size"])} },
			Default: toyCase(4), Levers: models.LeverSet{Loop: models.LoopTrainer},
			Build: func(models.Case) (models.Trainer, error) { return nil, nil },
		}}).WithSteps(Listed(folder, nil))
	}
	folder := t.TempDir()
	r, c := registry(folder), toyCase(6)
	c.Model, c.Settings = "toy", models.Settings{"size": 2}
	plain := must(r.Lookup("toy"))
	path := FileOfListed(folder, plain, must(plain.Complete(c)))
	require.Equal(t, "toy,size=2.compiled", filepath.Base(path))
	require.Equal(t, "vprof capture toy --compile --set size=2 records it", must(r.Recorded(plain, c)).NotRecorded(c))
	recording := step(6)
	last := &recording.Steps[1]
	last.Returned, last.Order = []int{0}, []int{0, 1, 2, ^0, 3, 4, ^4, ^1, ^2}
	last.Forward, last.Backward = 4, 8
	require.NoError(t, os.WriteFile(path, packed(t, file(recording, step(12))), 0o600))
	require.NotEmpty(t, plain.NotRecorded(c), "as it is listed")
	m := must(r.Recorded(plain, c))
	for _, m := range []models.Model{m, must(registry("").Of(c, m.Description))} {
		require.Empty(t, m.NotRecorded(c))
		other := c
		other.Settings = models.Settings{"size": 3}
		require.Equal(t, "recorded without --set size", m.NotRecorded(other))
		var played [][]program.Instruction
		for _, levers := range []models.Levers{{}, {Loop: models.LoopTrainer, Clip: models.ClipNorm}, {Loop: models.LoopFunction}} {
			c.Levers, c.Compile = levers, true
			tape := trace.New(trace.Board{}, trace.Rules{}, trace.Options{Warm: true})
			require.NoError(t, must(m.Build(c)).Record(tape, 2))
			played = append(played, tape.Program().Instructions)
		}
		require.Equal(t, played[0], played[1])
		require.NotEqual(t, played[0], played[2])
	}
	c.Compile = false
	require.Empty(t, must(r.Recorded(plain, c)).Description, "an eager step is planned as it was")
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
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
			tape := trace.New(trace.Board{}, trace.Rules{}, trace.Options{Warm: true})
			_ = newTrainer(read, r, c, nil).Record(tape, 1)
		}
	})
}
