package nn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/nn"
)

// A saved layer has its parameters twice, and the copy's are trained: 3x2 and 2 of each of two linear layers.
func TestModulesToSaveTrainACopy(t *testing.T) {
	l := nn.NewSequential(nn.NewLinear(2, 3, true), nn.NewDropout(0.1), nn.NewLinear(3, 2, true))
	saved := nn.NewModulesToSave(l)
	tree := nn.NewTree(saved)
	total, trainable := tree.Numel()
	require.EqualValues(t, 2*(6+3+6+2), total)
	require.EqualValues(t, 6+3+6+2, trainable)
	require.Equal(t, "original_module.0.weight", tree.Names()[0])
	require.Equal(t, "modules_to_save.default.2.bias", tree.Names()[len(tree.Names())-1])
	require.True(t, tree.Parameters[0].Frozen)
}
