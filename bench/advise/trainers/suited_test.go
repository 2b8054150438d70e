package trainers

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// A model takes the size of images if it has that setting; of others a file with the pixels of images says nothing.
func TestTheSizeOfImagesIsOfModelsThatSee(t *testing.T) {
	settings := []Setting{{Flag: "seq-len", Value: "64"}, {Flag: ImageSize, Value: "448"}}
	c := &Config{}
	got, err := c.SuitedSettings(models.Model{}, settings)
	require.NoError(t, err)
	require.Equal(t, settings[:1], got)
	got, err = c.SuitedSettings(models.Model{Settings: []models.Setting{{Name: ImageSize}}}, settings)
	require.NoError(t, err)
	require.Equal(t, settings, got)
}
