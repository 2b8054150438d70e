package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

var allKinds = []string{"bert", "gpt2", "llama", "vit", "whisper", "wav2vec2"}

func modelNamed(t *testing.T, name string) models.Model { return named(t, Listed(allKinds...), name) }

func counts(t *testing.T, m models.Model, c models.Case) models.Counts {
	c, err := m.Complete(c)
	require.NoError(t, err)
	trainer, err := m.Build(c)
	require.NoError(t, err)
	return trainer.Counts()
}

// The counts that papers and pages of Hugging Face publish. The masked language models have an output layer beside
// the encoder and share the embeddings with it; wav2vec2 lacks the 768 numbers of a mask vector that the published
// model has for SpecAugment alone.
func TestListedModelsHaveThePublishedCounts(t *testing.T) {
	for name, want := range map[string]int64{
		"bert-base": 109_514_298, "bert-large": 335_174_458,
		"gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080, "gpt2-xl": 1_557_611_200,
		"llama": 8_030_261_248, "wav2vec2-base": 94_396_320 - 768,
		"vit-ti16-224": 5_717_416, "vit-s16-224": 22_050_664, "vit-b32-224": 88_224_232, "vit-l16-224": 304_326_632,
		"whisper-tiny": 37_760_640, "whisper-base": 72_593_920, "whisper-small": 241_734_912,
		"whisper-medium": 763_857_920, "whisper-large": 1_543_304_960,
	} {
		require.Equal(t, want, counts(t, modelNamed(t, name), models.Case{}).Total, name)
	}
	// Llama 3 70B, Llama 2 7B and, with tied embeddings, Llama 3.2 1B
	for want, s := range map[int64]models.Settings{
		70_553_706_496: {"layers": 80, "width": 8192, "heads": 64, "inner": 28672},
		6_738_415_616:  {"kv-heads": 32, "inner": 11008, "vocab": 32000},
		1_235_814_400:  {"layers": 16, "width": 2048, "inner": 8192, "tied": 1},
	} {
		require.Equal(t, want, counts(t, modelNamed(t, "llama"), models.Case{Settings: s}).Total, s)
	}
}

func TestListedModelsRefuseWhatTheirConfigurationsRefuse(t *testing.T) {
	for _, tc := range []struct {
		model, want string
		settings    models.Settings
	}{
		{"llama", "heads: 24 heads: need a number that divides hidden_size, 4096", models.Settings{"heads": 24}},
		{
			"llama", "heads: 32 heads of hidden_size 96 have a size of 3; rotary positions need an even size, so set head_dim",
			models.Settings{"width": 96},
		},
		{"llama", "kv-heads: 5: need a number that divides num_attention_heads, 32", models.Settings{"kv-heads": 5}},
		{"llama", "layers: 0 is out of range: decoder layers, from 1 to 512", models.Settings{"layers": 0}},
		{"vit-s16-224", "image-size: 100: need a multiple of patch_size, 16", models.Settings{"image-size": 100}},
	} {
		_, err := modelNamed(t, tc.model).Complete(models.Case{Settings: tc.settings})
		require.EqualError(t, err, tc.model+": "+tc.want)
	}
	_, err := modelNamed(t, "whisper-tiny").Complete(models.Case{Settings: models.Settings{"audio-seconds": 10}})
	require.ErrorContains(t, err, "audio-seconds: there is no such setting")
}

func listedProgram(t *testing.T, name string, s models.Settings) *program.Program {
	c := models.Case{Batch: 2, AMP: "fp16", Settings: s}
	r, err := modelNamed(t, name).Record(c, trace.GPU{Capability: 86, SMs: 82, ThreadsPerSM: 1536}, models.Options{})
	require.NoError(t, err)
	require.NoError(t, r.Program.Validate())
	return r.Program
}

// Without padding there is no mask, and without a mask flash attention serves
// half precision: no probabilities' bias is expanded. Collators pad only batches
// of several sequences.
func TestPaddingCosts(t *testing.T) {
	allocations := func(padding int64, batch int) int {
		c := models.Case{Batch: batch, AMP: "fp16", Settings: models.Settings{"padding": padding, "layers": 1}}
		r, err := modelNamed(t, "bert-base").Record(c, trace.GPU{Capability: 86}, models.Options{})
		require.NoError(t, err)
		return len(r.Program.Buffers)
	}
	require.Less(t, allocations(0, 2), allocations(1, 2))
	require.Equal(t, allocations(1, 2), allocations(2, 2))
	require.Equal(t, allocations(0, 1), allocations(2, 1))
}

// A mask of packed rows has a byte for every pair of tokens, and every layer
// expands it to the type of the scores; without it there is neither.
func TestPackedRowsNeedAMask(t *testing.T) {
	requested := func(packed int64) (sum int64) {
		s := models.Settings{"packed": packed, "layers": 1, "seq-len": 512}
		for _, b := range listedProgram(t, "gpt2", s).Buffers {
			sum += b.Bytes
		}
		return sum
	}
	require.Greater(t, requested(1), requested(0)+2*512*512*3)
}

// (224/16)^2 patches and a class token have positions; 224 more pixels mean four times the patches.
func TestLargerImagesHaveMorePositions(t *testing.T) {
	m := modelNamed(t, "vit-s16-224")
	small, large := counts(t, m, models.Case{}),
		counts(t, m, models.Case{Settings: models.Settings{"image-size": 448}})
	require.EqualValues(t, 3*196*384, large.Total-small.Total)
}

// With layer norms in the feature encoder every one of the six other layers gets a norm of 512 features.
func TestLayerNormsInTheFeatureEncoder(t *testing.T) {
	total := func(keys string) int64 {
		return counts(t, model(t, `{"model_type": "wav2vec2", "mask_time_prob": 0`+keys+`}`), models.Case{}).Total
	}
	require.EqualValues(t, 6*2*512, total(`, "feat_extract_norm": "layer"`)-total(""))
	require.EqualValues(t, (6*2+7)*512, total(`, "feat_extract_norm": "layer", "conv_bias": true`)-total(""))
}

// A loop that keeps what the model returned holds the scores of the 32 characters until the step ends, 49 frames a
// second.
func TestLoopKeepsScores(t *testing.T) {
	m := modelNamed(t, "wav2vec2-base")
	atBackward := func(loop models.Loop) (live int64) {
		c, err := m.Complete(models.Case{Batch: 2, MemoryOptions: models.MemoryOptions{Loop: loop}})
		require.NoError(t, err)
		r, err := m.Record(c, trace.GPU{Capability: 80, SMs: 108, ThreadsPerSM: 2048}, models.Options{Steps: 1})
		require.NoError(t, err)
		for _, i := range r.Program.Instructions {
			switch i.Kind {
			case program.Alloc:
				live += r.Program.Buffers[i.Arg].Bytes
			case program.Free:
				live -= r.Program.Buffers[i.Arg].Bytes
			case program.MarkPhase:
				if r.Program.Phases[i.Arg].Name == "backward" {
					return live
				}
			}
		}
		return live
	}
	c, err := m.Complete(models.Case{})
	require.NoError(t, err)
	frames := 50*c.Settings["audio-seconds"] - 1
	require.Equal(t, 2*frames*32*4, atBackward(models.LoopFunction)-atBackward(models.LoopTrainer))
}
