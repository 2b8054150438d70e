package hfconfig

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// Every result says what images are counted, and how many tokens they take.
func TestImagesAreSaidWithTheirTokens(t *testing.T) {
	for kind, want := range map[string]string{
		"qwen2_vl":   "448 x 448 pixels, and each is 256 of the tokens of a row (2 images)",
		"qwen2_5_vl": "448 x 448 pixels, and each is 256 of the tokens of a row (2 images)",
		"llava":      "336 x 336 pixels, and each is 576 of the tokens of a row (2 images)",
		"mllama":     "4 tiles of 560 x 560 pixels (2 images)",
		"qwen3_vl":   "448 x 448 pixels, and each is 196 of the tokens of a row (2 images)",
	} {
		m := open(t, kind)
		c := complete(t, m, models.Case{Settings: models.Settings{"images": 2, "seq-len": 4096}})
		said := strings.Join(m.Caveats(c), "; ")
		require.Contains(t, said, want, kind)
		require.NotContains(t, said, "text alone", kind)
	}
}

// What does not go together with images is refused in a sentence that names it.
func TestImagesAreRefusedWhereTheyAreNotRecorded(t *testing.T) {
	m := open(t, "qwen2_5_vl")
	on := func(c models.Case) models.Case {
		if c.Settings == nil {
			c.Settings = models.Settings{"seq-len": 1024}
		}
		c.Settings["images"] = 1
		return c
	}
	for want, c := range map[string]models.Case{
		"images: 1 images of 448 x 448 pixels are 256 tokens, and a row has 200": {
			Settings: models.Settings{"seq-len": 200},
		},
		"images: vprof does not record images in rows that hold several": {Settings: models.Settings{
			"seq-len": 1024,
			"packed":  1,
		}},
		"images: vprof records images for learning the next token": {
			MemoryOptions: models.MemoryOptions{Objective: models.Objective{Name: "dpo"}},
		},
	} {
		_, err := m.Complete(on(c))
		require.ErrorContains(t, err, want)
	}
	_, err := open(t, "gemma3").Complete(on(models.Case{}))
	require.ErrorContains(t, err, "images: vprof does not record the head of SigLIP that pools (vision_use_head)")
	_, err = open(t, "mllama").Complete(
		on(models.Case{Checkpointing: true, MemoryOptions: models.MemoryOptions{Recompute: models.Reentrant}}))
	require.ErrorContains(t, err, "images: several layers look at what the tower makes")
	c, err := m.Complete(on(models.Case{}))
	require.NoError(t, err)
	require.Equal(t, int64(448), c.Settings["image-size"])
}
