package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

const shortLlama = `{"model_type": "llama", "vocab_size": 512, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 3,
	"num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 4096, "tie_word_embeddings": false}`

// Peaks of two steps, beyond the model and the batch, of the last rank under fully_shard with attention that does what
// ms-swift's Ulysses does, or ring-flash-attn by what it calls and flash-attn allocates: transformers 5.23, torch 2.11
// with a process group that moves nothing, allocations in blocks of 512 bytes.
func TestSequencesThatRanksShare(t *testing.T) {
	for _, want := range []struct {
		by        string
		ranks     int64
		batch     int
		length    int64
		recompute models.Recompute
		peak      int64
	}{
		{models.Ulysses, 4, 2, 8192, "", 326377472},
		{models.Ulysses, 2, 1, 4096, "", 175104000},
		{models.Ulysses, 4, 1, 8192, models.Reentrant, 94349824},
		{models.Llama3, 4, 1, 8192, "", 168809472},
		{models.Llama3, 2, 1, 8192, models.Reentrant, 150677504},
		{models.Ring, 4, 2, 4096, "", 168563712},
	} {
		m := model(t, shortLlama)
		last := want.ranks - 1
		c := complete(t, m, models.Case{
			Batch: want.batch, Weights: "bf16", Optimizer: "sgd", Checkpointing: want.recompute != "",
			GPUs:          int(want.ranks),
			Strategy:      &models.Strategy{Name: models.FSDP2, CP: want.ranks, CPStyle: want.by, Rank: &last},
			Settings:      models.Settings{"seq-len": want.length, "packed": 0},
			MemoryOptions: models.MemoryOptions{Recompute: want.recompute, Clip: models.ClipNone},
		})
		r, err := m.Record(c, trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048}, models.Options{Steps: 2})
		require.NoError(t, err)
		require.Equal(t, want.peak, peakBeyondBatch(r.Program), "%+v", want)
	}
}

// Peaks of the same kind of fully_shard with CPUOffloadPolicy, of a model from the meta device. In
// the first a number of 16 KiB outlives the script's step.
func TestShardsOnTheHost(t *testing.T) {
	for _, want := range []struct {
		batch     int
		recompute models.Recompute
		peak      int64
	}{{2, "", 313778176}, {1, models.Reentrant, 91072512}} {
		m, last := model(t, shortLlama), int64(3)
		c := complete(t, m, models.Case{
			Batch: want.batch, Weights: "bf16", Optimizer: "sgd", Checkpointing: want.recompute != "", GPUs: 4,
			Strategy:      &models.Strategy{Name: models.FSDP2, Offload: models.OffloadAll, Rank: &last},
			Settings:      models.Settings{"seq-len": 2048, "packed": 0},
			MemoryOptions: models.MemoryOptions{Recompute: want.recompute, Clip: models.ClipNone},
		})
		r, err := m.Record(c, trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048}, models.Options{Steps: 2})
		require.NoError(t, err)
		require.InDelta(t, want.peak, peakBeyondBatch(r.Program), 16384, "%+v", want)
	}
}

// peakBeyondBatch returns the most that steps allocate beyond the model and the first batch.
func peakBeyondBatch(p *program.Program) (peak int64) {
	all := phases(p, inBlocks)
	for of, u := range all {
		if of.Step >= 0 {
			peak = max(peak, u.peak)
		}
	}
	return peak - all[phase(-1, "batch")].end
}

func TestSequencesThatCannotBeShared(t *testing.T) {
	m := model(t, shortLlama)
	shared := func(s models.Strategy, gpus, batch int, packed int64) error {
		_, err := m.Record(models.Case{
			Batch: batch, GPUs: gpus, Strategy: &s,
			Settings: models.Settings{
				"packed":  packed,
				"seq-len": 64,
			}, MemoryOptions: models.MemoryOptions{Clip: models.ClipNone},
		},
			testGPU, models.Options{})
		return err
	}
	require.ErrorContains(t, shared(models.Strategy{Name: models.FSDP2, CP: 8}, 8, 1, 0),
		"8 ranks cannot share 4 heads of keys and values evenly")
	require.ErrorContains(t, shared(models.Strategy{Name: models.FSDP2, CP: 2, CPStyle: models.Llama3}, 8, 2, 0),
		"needs --batch 1")
	require.ErrorContains(t, shared(models.Strategy{Name: models.FSDP2, CP: 2}, 8, 2, 1), "context parallelism (cp) has no attention mask, which this model needs; plan sequences without padding, packing and windows (--set padding=0 --set packed=0), or leave out cp")
	require.ErrorContains(t, shared(models.Strategy{Name: models.DDP, CP: 3}, 8, 1, 0),
		"8 GPUs cannot be divided into groups of 3 that share a sequence (cp=3)")
	require.ErrorContains(t, shared(models.Strategy{Name: models.DDP, CPStyle: models.Ring}, 8, 1, 0),
		"add cp=N")
	require.NoError(t, shared(models.Strategy{Name: models.DDP, CP: 4}, 8, 1, 0))
	require.NoError(t, shared(models.Strategy{Name: models.TP, TP: 2, CP: 2}, 8, 1, 0), "heads of both are shared")
}

const smallMixture = `{"model_type": "qwen3_moe", "vocab_size": 512, "hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 128, "num_experts": 8,
	"num_experts_per_tok": 2, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 512, "tie_word_embeddings": false}`

func TestExpertsThatRanksShareOut(t *testing.T) {
	m := model(t, smallMixture)
	record := func(s models.Strategy, gpus int) (*models.Recording, error) {
		return m.Record(models.Case{
			Batch: 1, GPUs: gpus, Weights: "bf16", Strategy: &s, Settings: models.Settings{"packed": 0, "seq-len": 64},
			Optimizer: "sgd", MemoryOptions: models.MemoryOptions{Clip: models.ClipNone},
		}, testGPU, models.Options{})
	}
	bytes := func(s models.Strategy, gpus int, name string) (sum int64) {
		r, err := record(s, gpus)
		require.NoError(t, err)
		live := map[uint32]bool{}
		for _, i := range r.Program.Instructions {
			switch i.Kind {
			case program.Alloc:
				live[i.Arg] = r.Program.Buffers[i.Arg].Class == program.Weights
			case program.Free:
				live[i.Arg] = false
			case program.MarkPhase:
				if r.Program.Phases[i.Arg].Name == name {
					for b, weights := range live {
						if weights {
							sum += r.Program.Buffers[b].Bytes
						}
					}
					return sum
				}
			}
		}
		return sum
	}
	// 8 experts of 3 x 256 x 128 in 2 layers, of which a rank has a half; all else is whole
	whole, half := bytes(models.Strategy{Name: models.DDP}, 2, "batch"),
		bytes(models.Strategy{Name: models.DDP, EP: 2}, 2, "batch")
	require.EqualValues(t, 2*4*3*256*128*2, whole-half)
	// shards of fully_shard are as large either way
	require.Equal(t, bytes(models.Strategy{Name: models.FSDP2}, 4, "batch"),
		bytes(models.Strategy{Name: models.FSDP2, EP: 2}, 4, "batch"))
	planned := models.Strategy{Name: models.TP, TP: 2, TPPlan: models.TensorParallelPlans()[1]}
	shared := planned
	shared.EP, shared.EPStyle = 2, models.TorchExperts
	require.Equal(t, bytes(planned, 2, "batch"), bytes(shared, 2, "batch"), "a half of every expert, or half of them")
	odd, plain, wide := shared, shared, shared
	odd.TP, odd.EP, plain.TPPlan, wide.EP, wide.Replicate = 4, 2, "", 4, 2
	for reason, s := range map[string]models.Strategy{
		"3 ranks cannot share out 8 experts evenly (ep=3)":                                   {Name: models.DDP, EP: 3},
		"DistributedDataParallel with expert parallelism needs experts over all ranks: ep=4": {Name: models.DDP, EP: 2},
		"with ep=4 on 4 GPUs fully_shard has no ranks left to": {
			Name: models.FSDP2,
			EP:   4,
		},
		"with cp or replicate needs ep_by=torch; leave out cp and replic": {
			Name: models.FSDP2,
			EP:   2, CP: 2,
		},
		"with context parallelism (cp) needs fsdp2 or pp, and cp_by=torch": {
			Name: models.FSDP2,
			EP:   2, EPStyle: models.TorchExperts, CP: 2,
		},
	} {
		_, err := record(s, 4)
		require.ErrorContains(t, err, reason)
	}
	for reason, s := range map[string]models.Strategy{
		"as transformers does it: tp:tp=N,tp_by=transformers,ep=M,ep_by=torch":         plain,
		"transformers needs ep to be a multiple of tp: ep=2 is not a multiple of tp=4": odd,
		"the GPUs of each of 2 replicas cannot be divided into groups of 4 that share": wide,
	} {
		_, err := record(s, 4)
		require.ErrorContains(t, err, reason)
	}
}

// What transformers' plan of tensor parallelism leaves whole, or gathers, is not split as Llama's layers are.
func TestPlansOfTransformersThatAreNotRecorded(t *testing.T) {
	for kind, recorded := range map[string]bool{
		"llama": true, "phi3": false, "solar_open": false, "qwen3_moe": true, "qwen2_moe": false,
	} {
		_, err := model(t, `{"model_type": "`+kind+`"}`).Record(models.Case{
			Batch: 1, GPUs: 4, Strategy: &models.Strategy{
				Name: models.TP, TP: 2,
				TPPlan: models.TensorParallelPlans()[1],
			},
			Settings: models.Settings{"seq-len": 64},
		}, testGPU, models.Options{})
		if recorded {
			require.NoError(t, err, kind)
		} else {
			require.ErrorContains(t, err, "vprof does not support transformers' tensor-parallel plan of this model",
				kind)
		}
	}
}

// Rows are cut into two parts for each rank under PyTorch's context_parallel, which takes half precision.
func TestPyTorchsContextParallelSaysWhatItCannotShare(t *testing.T) {
	m := model(t, shortLlama)
	record := func(length int64, weights models.WeightType) error {
		_, err := m.Record(models.Case{
			Batch: 1, GPUs: 4, Weights: weights,
			Strategy: &models.Strategy{Name: models.FSDP2, CP: 4, CPStyle: models.TorchRing},
			Settings: models.Settings{"seq-len": length}, MemoryOptions: models.MemoryOptions{Clip: models.ClipNone},
		}, testGPU, models.Options{})
		return err
	}
	require.NoError(t, record(64, "bf16"))
	require.ErrorContains(t, record(60, "bf16"), "into 8 parts, two for each rank")
	require.ErrorContains(t, record(64, "fp32"), "vprof records context_parallel (cp) with FlashAttention, which needs half precision; add --amp bf16 or --weights bf16")
}
