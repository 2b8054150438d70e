package all

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/sample"
)

// Ranks that are not recorded, since one before does the same, never need more than it.
func TestTheWorstRankOfAPipelineIsThatOfAllRanks(t *testing.T) {
	type pipeline struct {
		model, strategy string
		gpus            int
		layers          int64
	}
	for _, of := range sample.Of([]pipeline{
		{"gpt2", "pp", 5, 12},
		{"gpt2", "pp:micro=8,schedule=gpipe", 4, 11},
		{"gpt2", "pp:schedule=interleaved", 3, 12},
		{"llama-tiny", "pp:micro=10", 5, 9},
		{"hf:../hfconfig/testdata/configs/gemma3_text", "pp:micro=8", 4, 0},
		{"../pt2/testdata/hf-gemma2-tiny.pt2", "pp", 6, 0}, // every other layer has another mask
		{"../pt2/testdata/own-gpt-8x768.pt2", "pp:split=1+4+5", 4, 0},
		{"../pt2/testdata/hf-t5-small.pt2", "pp", 4, 0},
	}) {
		m, err := Models().Lookup(of.model)
		require.NoError(t, err)
		c := m.Default
		c.Batch, c.GPUs, c.Loss = 1, of.gpus, ""
		if of.layers > 0 {
			c.Settings = models.Settings{"layers": of.layers, "seq-len": 128}
		}
		s, err := models.ParseStrategy(of.strategy)
		require.NoError(t, err)
		c.Strategy = &s
		worst, err := m.Record(c, testGPU, models.Options{})
		require.NoError(t, err, of.model)
		found, flops := worst.Program.Peak(), worst.Program.FLOPs()
		var most, busiest int64
		for rank := range int64(of.gpus) {
			s.Rank = &rank
			r, err := m.Record(c, testGPU, models.Options{})
			require.NoError(t, err)
			most, busiest = max(most, r.Program.Peak()), max(busiest, r.Program.FLOPs())
			r.Discard()
		}
		require.Equal(t, most, found, "%s %s", of.model, of.strategy)
		bubble := worst.Stretch * float64(flops) / float64(busiest)
		require.Greater(t, bubble, 1.0)
		require.Less(t, bubble, 2.0)
	}
}

// Layers of other stages run for the first micro-batch alone; what the rank itself allocates is the same for all.
func TestMicroBatchesOfAStageAreAlike(t *testing.T) {
	for _, name := range sample.Of([]string{"gemma3_text", "qwen3", "cohere2", "qwen3_moe"}) {
		m, err := Models().Lookup("hf:../hfconfig/testdata/configs/" + name)
		require.NoError(t, err)
		c := m.Default
		c.Batch, c.GPUs, c.Checkpointing = 1, 3, true
		s, err := models.ParseStrategy("pp:micro=4,schedule=gpipe,rank=1")
		require.NoError(t, err)
		c.Strategy = &s
		r, err := m.Record(c, testGPU, models.Options{})
		require.NoError(t, err, name)
		var passes [][]program.Buffer // what each forward pass allocates, from its first receive on
		sent := true
		for _, in := range r.Program.Instructions {
			switch {
			case in.Kind == program.Launch && r.Program.Ops[in.Arg].Work == program.Receive && sent:
				passes, sent = append(passes, nil), false
			case in.Kind == program.Launch && r.Program.Ops[in.Arg].Work == program.Send:
				sent = true
			case in.Kind == program.Alloc && !sent && r.Program.Buffers[in.Arg].Class != program.Workspace:
				passes[len(passes)-1] = append(passes[len(passes)-1], r.Program.Buffers[in.Arg])
			}
		}
		for i, p := range passes[1:4] {
			require.NotEmpty(t, p)
			require.Equal(t, passes[0], p, "%s: micro-batch %d", name, i+1)
		}
	}
}

// A recording ends where more bytes live than its ceiling, and is the same below it.
func TestRecordingsEndAtTheirCeiling(t *testing.T) {
	m, err := Models().Lookup("hf:../hfconfig/testdata/configs/qwen3")
	require.NoError(t, err)
	for _, text := range []string{"fsdp2", "pp", "zero2"} {
		c := m.Default
		s, err := models.ParseStrategy(text)
		require.NoError(t, err)
		c.GPUs, c.Strategy = 2, &s
		r, err := m.Record(c, testGPU, models.Options{})
		require.NoError(t, err)
		peak := r.Program.Peak()
		under, err := m.Record(c, testGPU, models.Options{Ceiling: peak})
		require.NoError(t, err)
		require.Equal(t, r.Program.Instructions, under.Program.Instructions)
		_, err = m.Record(c, testGPU, models.Options{Ceiling: peak - 1})
		require.ErrorIs(t, err, trace.ErrCeiling)
	}
}

// Scores that the last stage gives to a loss_fn live through backward; other stages have none.
func TestTheLastStageKeepsScoresForTheLoss(t *testing.T) {
	m, err := Models().Lookup("hf:../hfconfig/testdata/configs/qwen3")
	require.NoError(t, err)
	peak := func(strategy string, loop models.Loop) int64 {
		c := m.Default
		c.Batch, c.GPUs, c.Loop = 2, 2, loop
		s, err := models.ParseStrategy(strategy)
		require.NoError(t, err)
		c.Strategy = &s
		r, err := m.Record(c, testGPU, models.Options{})
		require.NoError(t, err)
		defer r.Discard()
		return r.Program.Peak()
	}
	for _, schedule := range []string{"1f1b", "gpipe"} {
		of := "pp:micro=3,schedule=" + schedule
		require.Equal(t, peak(of+",rank=0", ""), peak(of+",rank=0", models.LoopFunction))
		require.Equal(t, peak(of+",rank=1", ""), peak(of+",rank=1", models.LoopTrainer))
		require.Greater(t, peak(of+",rank=1", models.LoopFunction), peak(of+",rank=1", ""))
	}
	c := m.Default
	c.GPUs, c.Strategy, c.Loop = 2, &models.Strategy{Name: models.PP}, models.LoopPlain
	_, err = m.Complete(c)
	require.ErrorContains(t, err, "loop: under pipeline parallelism (pp) the schedule is the training loop and cannot be changed; leave out this option, or use another --strategy")
}
