package whisper

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// The counts of openai/whisper-tiny to openai/whisper-large on Hugging Face.
func TestParameterCounts(t *testing.T) {
	for i, want := range []int64{37_760_640, 72_593_920, 241_734_912, 763_857_920, 1_543_304_960} {
		m := Models()[i]
		c, err := m.Complete(models.Case{})
		require.NoError(t, err)
		trainer, err := m.Build(c)
		require.NoError(t, err)
		require.Equal(t, want, trainer.Counts().Total, m.Name)
	}
}

func TestClipsAreAlwaysPadded(t *testing.T) {
	_, err := Models()[0].Complete(models.Case{Settings: models.Settings{"audio-seconds": 10}})
	require.ErrorContains(t, err, "audio-seconds: there is no such setting")
}
