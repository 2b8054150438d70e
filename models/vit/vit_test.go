package vit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

func counts(t *testing.T, c models.Case) models.Counts {
	c, err := notebookModel().Complete(c)
	require.NoError(t, err)
	trainer, err := notebookModel().Build(c)
	require.NoError(t, err)
	return trainer.Counts()
}

// A layer of ViT-B has 7,087,872 parameters.
func TestStagesUnfreezeLayersFromTheEnd(t *testing.T) {
	const layer = 4*(768*768+768) + 2*768*3072 + 768 + 3072 + 4*768
	frozen := counts(t, models.Case{Stage: "frozen"})
	for n, stage := range []string{"frozen", "unfreeze-1", "unfreeze-2", "unfreeze-3"} {
		got := counts(t, models.Case{Stage: stage})
		require.Equal(t, frozen.Total, got.Total)
		require.Equal(t, frozen.Trainable+int64(n)*layer, got.Trainable, stage)
	}
	full := counts(t, models.Case{})
	require.Equal(t, full.Total, full.Trainable)
}

func TestPatchesMustFillTheImage(t *testing.T) {
	_, err := notebookModel().Complete(models.Case{Settings: models.Settings{"image-size": 100}})
	require.EqualError(t, err, "vit-b16-224: image-size: 100 is not a multiple of the patch size 16")
}
