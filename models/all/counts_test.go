package all

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParameterCountsAreThoseOfTheOriginals: the parameters of every model in its default stage, and the trained
// parameters in each other stage. The numbers of the systems were counted with their original code. The others are the
// numbers of the models with these names on Hugging Face and in torchvision, without the mask vector that wav2vec 2.0
// has for SpecAugment alone (768 and 1024).
func TestParameterCountsAreThoseOfTheOriginals(t *testing.T) {
	type trained map[string]int64
	counted := map[string]bool{}
	const mrl, wide, wider = 264_448, 594_688, 1_189_120 // MRL heads on 1024, 2304 and 4608 pooled features
	for name, want := range map[string]struct {
		total int64
		trained
	}{
		"redimnet-b0": {1_214_487, trained{"frozen": mrl, "full": 1_214_487}},
		"redimnet-b1": {2_116_505, trained{"frozen": mrl, "full": 2_116_505}},
		"redimnet-b2": {5_016_305, trained{"frozen": mrl, "full": 5_016_305}},
		"redimnet-b3": {3_411_005, trained{"frozen": mrl, "full": 3_411_005}},
		"redimnet-b4": {6_186_289, trained{"frozen": mrl, "full": 6_186_289}},
		"redimnet-b5": {6_186_289, trained{"frozen": mrl, "full": 6_186_289}},
		"redimnet-b6": {10_291_057, trained{"frozen": mrl, "full": 10_291_057}},
		"redimnet-M":  {4_478_353, trained{"frozen": mrl, "full": 4_478_353}},

		"redimnet-b0-orig": {1_081_115, trained{"frozen": 309_856, "full": 1_081_115}},
		"redimnet-b1-orig": {2_016_409, trained{"frozen": 446_080, "full": 2_016_409}},
		"redimnet-b2-orig": {4_919_665, trained{"frozen": wide, "full": 4_919_665}},
		"redimnet-b3-orig": {3_372_541, trained{"frozen": wide, "full": 3_372_541}},
		"redimnet-b4-orig": {6_736_497, trained{"frozen": wider, "full": 6_736_497}},
		"redimnet-b5-orig": {7_954_737, trained{"frozen": wider, "full": 7_954_737}},
		"redimnet-b6-orig": {15_310_449, trained{"frozen": wider, "full": 15_310_449}},
		"redimnet-M-orig":  {4_381_713, trained{"frozen": wide, "full": 4_381_713}},

		// The code table has 128 times 64.
		"patch-vqvae": {
			282_475,
			trained{"full": 282_475, "vq-only": 282_475, "codebook-frozen": 282_475 - 8192},
		},
		"patch-vqvae-p8": {
			282_475,
			trained{"full": 282_475, "vq-only": 282_475, "codebook-frozen": 282_475 - 8192},
		},
		"patch-vqvae-lowmem": {
			282_475,
			trained{"full": 282_475, "vq-only": 282_475, "codebook-frozen": 282_475 - 8192},
		},

		"spectrogram-gan":        {30_132_769 + 42_650_145, trained{"full": 30_132_769 + 42_650_145}},
		"bdslw-spoter":           {1_319_434, trained{"full": 1_319_434}},
		"bdslw-spoter-phase3":    {973_674, trained{"full": 973_674}},
		"naics-embedder":         {105_542_277, trained{"full": 14_689_413}},
		"naics-embedder-stage01": {105_542_277, trained{"full": 14_689_413}},
		"vit-b16-224": {86_389_248 + 198_914, trained{
			"full": 86_588_162, "unfreeze-3": 21_462_530, "unfreeze-2": 14_374_658, "unfreeze-1": 7_286_786,
			"frozen": 198_914,
		}},

		"vit-ti16-224": {5_717_416, trained{"full": 5_717_416, "head": 193 * 1000}},
		"vit-s16-224":  {22_050_664, trained{"full": 22_050_664, "head": 385 * 1000}},
		"vit-b32-224":  {88_224_232, trained{"full": 88_224_232, "head": 769 * 1000}},
		"vit-l16-224":  {304_326_632, trained{"full": 304_326_632, "head": 1025 * 1000}},
		"vit-h14-224":  {632_045_800, trained{"full": 632_045_800, "head": 1281 * 1000}},

		"resnet18":  {11_689_512, trained{"head": 513 * 1000}},
		"resnet34":  {21_797_672, trained{"head": 513 * 1000}},
		"resnet50":  {25_557_032, trained{"head": 2049 * 1000}},
		"resnet101": {44_549_160, trained{"head": 2049 * 1000}},
		"resnet152": {60_192_808, trained{"head": 2049 * 1000}},
		"unet":      {31_037_698, trained{"head": 65 * 2}},

		"bert-base":   {109_514_298, trained{"full": 109_514_298}},
		"bert-large":  {335_174_458, trained{"full": 335_174_458}},
		"gpt2":        {124_439_808, trained{"head": 50_257 * 768}},
		"gpt2-medium": {354_823_168, trained{"head": 50_257 * 1024}},
		"gpt2-large":  {774_030_080, trained{"head": 50_257 * 1280}},
		"gpt2-xl":     {1_557_611_200, trained{"head": 50_257 * 1600}},
		"llama-tiny":  {19_286_272, trained{"head": 32_000 * 256}},
		"llama-1b":    {1_100_048_384, trained{"head": 32_000 * 2048}},
		"llama":       {8_030_261_248, trained{"head": 128_256 * 4096}},

		"whisper-tiny":   {37_760_640, trained{"head": 51_865 * 384}},
		"whisper-base":   {72_593_920, trained{"head": 51_865 * 512}},
		"whisper-small":  {241_734_912, trained{"head": 51_865 * 768}},
		"whisper-medium": {763_857_920, trained{"head": 51_865 * 1024}},
		"whisper-large":  {1_543_304_960, trained{"head": 51_865 * 1280}},
		"wav2vec2-base":  {94_396_320 - 768, trained{"head": 769 * 32}},
		"wav2vec2-large": {315_461_792 - 1024, trained{"head": 1025 * 32}},
	} {
		m, err := Models().Lookup(name)
		require.NoError(t, err)
		for stage, trainable := range want.trained {
			c := m.Default
			c.Stage = stage
			c, err := m.Complete(c)
			require.NoError(t, err)
			trainer, err := m.Build(c)
			require.NoError(t, err)
			require.Equal(t, want.total, trainer.Counts().Total, "%s stage %s", name, stage)
			require.Equal(t, trainable, trainer.Counts().Trainable, "%s stage %s", name, stage)
		}
		counted[name] = true
	}
	for _, name := range Models().Names() {
		require.True(t, counted[name], "%s: nothing says how many parameters it has", name)
	}
}
