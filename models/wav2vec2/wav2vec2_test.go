package wav2vec2

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

func counts(t *testing.T, c Config) models.Counts {
	m := entry("it", "", c)
	full, err := m.Complete(models.Case{})
	require.NoError(t, err)
	trainer, err := m.Build(full)
	require.NoError(t, err)
	return trainer.Counts()
}

// facebook/wav2vec2-base-960h has 94,396,320 parameters, 768 of them a mask
// vector that the model has for SpecAugment alone.
func TestParameterCounts(t *testing.T) {
	require.EqualValues(t, 94_396_320-768, counts(t, base()).Total)
}

// With layer norms in the feature encoder every one of the six other layers
// gets a norm of 512 features.
func TestLayerNormsInTheFeatureEncoder(t *testing.T) {
	c := base()
	c.LayerNorms = true
	require.EqualValues(t, 6*2*512, counts(t, c).Total-counts(t, base()).Total)
	c.ConvBias = true
	require.EqualValues(t, (6*2+7)*512, counts(t, c).Total-counts(t, base()).Total)
}
