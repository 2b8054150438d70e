package all_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/tools/sample"
)

// TestModelsOfTheCommonLoopRunOnSeveralGPUs records each under each strategy.
func TestModelsOfTheCommonLoopRunOnSeveralGPUs(t *testing.T) {
	gpu := trace.GPU{Name: "a100-80", Capability: 80, SMs: 108, ThreadsPerSM: 2048, Memory: 80 << 30}
	var list []models.Model
	for _, m := range all.Models().All() {
		if m.SupportsRanks {
			list = append(list, m)
		}
	}
	require.NotEmpty(t, list)
	for _, m := range sample.Of(list) {
		for _, text := range []string{"fsdp2", "fsdp2:mp=bf16,reshard=auto", "ddp:bucket_view=true", "zero1"} {
			s, err := models.ParseStrategy(text)
			require.NoError(t, err)
			c := models.Case{Batch: 1, Accumulate: 2, GPUs: 8, Strategy: &s}
			r, err := m.Record(c, gpu, models.Options{})
			require.NoError(t, err, "%s %s", m.Name, text)
			require.NoError(t, r.Program.Validate(), "%s %s", m.Name, text)
			weights := left(r.Program, program.Weights)
			if s.Name == models.FSDP2 { // each has an eighth, with padding
				require.Less(t, weights, r.Counts.Total*4/7, "%s %s", m.Name, text)
				require.GreaterOrEqual(t, weights, r.Counts.Total*4/8, "%s %s", m.Name, text)
			} else {
				require.Equal(t, r.Counts.Total*4, weights, "%s %s", m.Name, text)
			}
		}
	}
}

// TestTensorParallelRanksHaveTheirPart: of the layers of Llama's blocks a rank has a half
// of a fourth, of the others a fourth.
func TestTensorParallelRanksHaveTheirPart(t *testing.T) {
	gpu := trace.GPU{Name: "a100-80", Capability: 80, SMs: 108, ThreadsPerSM: 2048, Memory: 80 << 30}
	m, err := all.Models().Lookup("llama-tiny")
	require.NoError(t, err)
	record := func(text string, mod func(*models.Case)) (*models.Recording, error) {
		s, err := models.ParseStrategy(text)
		require.NoError(t, err)
		c := models.Case{
			Batch: 1, Accumulate: 2, GPUs: 8, Strategy: &s, MemoryOptions: models.MemoryOptions{Clip: models.ClipNone},
			Settings: models.Settings{"vocab": 4000},
		}
		mod(&c)
		return m.Record(c, gpu, models.Options{})
	}
	plain := func(*models.Case) {}
	half, err := record("fsdp2:replicate=2", plain)
	require.NoError(t, err)
	for _, mod := range []func(*models.Case){plain, func(c *models.Case) {
		c.Checkpointing = true
	}, func(c *models.Case) { c.AMP = "bf16" }} {
		r, err := record("tp:tp=2", mod)
		require.NoError(t, err)
		require.NoError(t, r.Program.Validate())
		const split = 4 * (2*256*256 + 2*256*128 + 3*256*688) * 4 // of 4 layers, bytes
		require.Equal(t, left(half.Program, program.Weights)-split/4/2, left(r.Program, program.Weights))
	}
	for text, want := range map[string]string{
		"tp:tp=2,col=q,row=o": "no linear layer named q, o; name yours in --strategy with col=... and row=..., as in model.layers.0.self_attn.o_proj",
		"tp:tp=8,col=q":       "no ranks are left for fully_shard",
		"tp:tp=4,replicate=2": "no ranks are left for fully_shard; use a multiple of 8 GPUs, or leave out replicate",
		"tp:tp=3":             "8 GPUs cannot be divided into groups of 3",
		"tp:col=q_proj":       "needs the number of ranks",
	} {
		_, err = record(text, plain)
		require.ErrorContains(t, err, want, text)
	}
	_, err = record("tp:tp=8", func(c *models.Case) { c.GPUs = 16 })
	require.ErrorContains(t, err, "does not fit the model's shapes")
	_, err = record("tp:tp=2", func(c *models.Case) { c.Clip = models.ClipNorm })
	require.ErrorContains(t, err, "train with --clip none")
	_, err = record("tp:tp=2", func(c *models.Case) { c.LoRA = &models.LoRA{Rank: 4} })
	require.ErrorContains(t, err, "adapters and quantized layers replace linear layers")
}

// TestParametersThatFewerRanksShare: with reshard=N the rank has the same between steps, and
// more of the weights in between, the fewer share them.
func TestParametersThatFewerRanksShare(t *testing.T) {
	gpu := trace.GPU{Name: "a100-80", Capability: 80, SMs: 108, ThreadsPerSM: 2048, Memory: 80 << 30}
	m, err := all.Models().Lookup("llama-tiny")
	require.NoError(t, err)
	record := func(text string) (*models.Recording, error) {
		s, err := models.ParseStrategy("fsdp2:rank=0" + text)
		require.NoError(t, err)
		return m.Record(models.Case{
			Batch: 1, Accumulate: 1, GPUs: 8, Strategy: &s,
			Settings: models.Settings{"vocab": 4000},
		}, gpu, models.Options{})
	}
	most := map[string]int64{}
	var between int64
	for i, text := range []string{
		"", ",reshard=8", ",reshard=4", ",reshard=2", ",reshard=1", ",reshard=false",
		",wrap=model.layers.*/2", ",wrap=model.layers.*/2,reshard=2",
	} {
		r, err := record(text)
		require.NoError(t, err, text)
		require.NoError(t, r.Program.Validate(), text)
		if i == 0 {
			between = left(r.Program, program.Weights)
		}
		require.Equal(t, between, left(r.Program, program.Weights), text)
		most[text] = mostOf(r.Program, program.Weights)
	}
	require.Equal(t, most[""], most[",reshard=8"])
	require.Less(t, most[""], most[",reshard=4"])
	require.Less(t, most[",reshard=4"], most[",reshard=2"])
	require.Less(t, most[",reshard=2"], most[",reshard=1"])
	require.Equal(t, most[",reshard=1"], most[",reshard=false"])
	require.Less(t, most[""], most[",wrap=model.layers.*/2"])
	for text, want := range map[string]string{
		",wrap=model.layers.*+model.layers.1:model.norm": "two entries wrap model.layers.1, one of them together with other modules; name it once",
		",wrap=model.layers.0:model.layers.*":            "two entries wrap model.layers.0",
		",wrap=model.layers.0:model.layers.0.*": "is a part of model.layers.0, so the two cannot be wrapped " +
			"together",
		",wrap=model.norm:nothing": `no module named "nothing"; its modules have names like model.layers.2`,
	} {
		_, err := record(text)
		require.ErrorContains(t, err, want, text)
	}
}

// mostOf returns the largest number of bytes of a class that live at once.
func mostOf(p *program.Program, c program.Class) (most int64) {
	now := int64(0)
	for _, in := range p.Instructions {
		if in.Kind != program.Alloc && in.Kind != program.Free || p.Buffers[in.Arg].Class != c {
			continue
		}
		if now += p.Buffers[in.Arg].Bytes; in.Kind == program.Free {
			now -= 2 * p.Buffers[in.Arg].Bytes
		}
		most = max(most, now)
	}
	return most
}

// TestRanksThatDifferAreAllFound compares the search with looking at each rank.
func TestRanksThatDifferAreAllFound(t *testing.T) {
	gpu := trace.GPU{Name: "a100-80", Capability: 80, SMs: 108, ThreadsPerSM: 2048, Memory: 80 << 30}
	m, err := all.Models().Lookup("llama-tiny")
	require.NoError(t, err)
	for _, text := range []string{"fsdp2", "tp:tp=2", "ddp"} {
		s, err := models.ParseStrategy(text)
		require.NoError(t, err)
		c := models.Case{
			Batch: 1, Accumulate: 1, GPUs: 24, Strategy: &s, MemoryOptions: models.MemoryOptions{Clip: models.ClipNone},
			Settings: models.Settings{"vocab": 1000, "layers": 4, "inner": 1000, "seq-len": 8},
		}
		found, err := m.DifferentRanks(c, gpu, models.Options{Steps: 1})
		require.NoError(t, err)
		var want []models.RankRange
		last := ""
		for rank := range int64(c.GPUs) {
			one := s
			one.Rank = &rank
			c.Strategy = &one
			r, err := m.Record(c, gpu, models.Options{Steps: 1})
			require.NoError(t, err)
			now := fmt.Sprint(r.Program.Instructions, r.Program.Buffers)
			if now == last {
				want[len(want)-1].Last = rank
			} else {
				want = append(want, models.RankRange{First: rank, Last: rank})
			}
			last = now
		}
		require.Equal(t, want, found, text)
		if text == "fsdp2" {
			require.Greater(t, len(want), 2) // rows are left over
		}
	}
}

// left returns the bytes of a class that live at the end of a program.
func left(p *program.Program, c program.Class) int64 {
	sum := int64(0)
	for _, in := range p.Instructions {
		if in.Kind != program.Alloc && in.Kind != program.Free || p.Buffers[in.Arg].Class != c {
			continue
		}
		if in.Kind == program.Alloc {
			sum += p.Buffers[in.Arg].Bytes
		} else {
			sum -= p.Buffers[in.Arg].Bytes
		}
	}
	return sum
}

// TestDDPCopiesWhatAModelInGoReturns: scores and loss, where it looks for parameters that are
// not used, and in the first step of a static graph alone.
func TestDDPCopiesWhatAModelInGoReturns(t *testing.T) {
	gpu := trace.GPU{Name: "a100-80", Capability: 80, SMs: 108, ThreadsPerSM: 2048, Memory: 80 << 30}
	m, err := all.Models().Lookup("gpt2")
	require.NoError(t, err)
	const scores = 2 * 64 * 50257 * 4
	copies := func(text string) (n int) {
		s, err := models.ParseStrategy(text)
		require.NoError(t, err)
		c := models.Case{
			Batch: 2, Accumulate: 1, GPUs: 4, Strategy: &s, AMP: models.NoAutocast,
			Settings: models.Settings{"seq-len": 64, "layers": 2},
		}
		r, err := m.Record(c, gpu, models.Options{Steps: 3})
		require.NoError(t, err)
		for _, b := range r.Program.Buffers {
			if b.Bytes == scores && r.Program.Sites[b.Site].Op == "clone" {
				n++
			}
		}
		return n
	}
	require.Equal(t, 3, copies("ddp:find_unused=true"))
	require.Equal(t, 1, copies("ddp:static_graph=true"))
	require.Zero(t, copies("ddp"))
}
