package vit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

func counts(t *testing.T, name string, c models.Case) models.Counts {
	for _, m := range Models() {
		if m.Name == name {
			c, err := m.Complete(c)
			require.NoError(t, err)
			trainer, err := m.Build(c)
			require.NoError(t, err)
			return trainer.Counts()
		}
	}
	t.Fatal(name)
	return models.Counts{}
}

// The counts of the models of those names on Hugging Face, with 1000 classes.
func TestParameterCounts(t *testing.T) {
	for name, want := range map[string]int64{
		"vit-ti16-224": 5_717_416, "vit-s16-224": 22_050_664, "vit-b32-224": 88_224_232, "vit-l16-224": 304_326_632,
	} {
		require.Equal(t, want, counts(t, name, models.Case{}).Total, name)
	}
}

// A layer of ViT-B has 7,087,872 parameters.
func TestStagesUnfreezeLayersFromTheEnd(t *testing.T) {
	const layer = 4*(768*768+768) + 2*768*3072 + 768 + 3072 + 4*768
	frozen := counts(t, "vit-b16-224", models.Case{Stage: "frozen"})
	for n, stage := range []string{"frozen", "unfreeze-1", "unfreeze-2", "unfreeze-3"} {
		got := counts(t, "vit-b16-224", models.Case{Stage: stage})
		require.Equal(t, frozen.Total, got.Total)
		require.Equal(t, frozen.Trainable+int64(n)*layer, got.Trainable, stage)
	}
	full := counts(t, "vit-b16-224", models.Case{})
	require.Equal(t, full.Total, full.Trainable)
}

func TestPatchesMustFillTheImage(t *testing.T) {
	_, err := Models()[0].Complete(models.Case{Settings: models.Settings{"image-size": 100}})
	require.EqualError(t, err, "vit-b16-224: image-size: 100 is not a multiple of the patch size 16")
	// (224/16)^2 patches and a class token have positions; 224 more pixels four times the patches.
	small, large := counts(t, "vit-b16-224", models.Case{}),
		counts(t, "vit-b16-224", models.Case{Settings: models.Settings{"image-size": 448}})
	require.EqualValues(t, 3*196*768, large.Total-small.Total)
}
