package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/capture"
)

// A step that could not be recorded is not answered with the command that records it.
func TestRefusedStepsAreNotAnsweredWithThemselves(t *testing.T) {
	const script = " the training script itself: vprof run --gpu GPU -- python train.py"
	step := "ecord a training step as it runs (" + capture.SameCommand + "), or run" + script
	require.Equal(t, "Run"+script, withoutStepAdvice.Replace("R"+step))
	require.Equal(t, "pad them, or run"+script, withoutStepAdvice.Replace("pad them, or r"+step))
}
