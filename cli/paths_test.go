package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCapturesAreCalledAsTheirModels(t *testing.T) {
	for spec, want := range map[string]string{
		"timm:resnet50":                  "resnet50.pt2",
		"hf:models/llama/config.json":    "llama.pt2",
		`hf:C:\models\llama\config.json`: "llama.pt2",
		`hf:D:\models\tiny.json`:         "tiny.pt2",
		`C:\work\model.py:build`:         "build.pt2",
		"pkg.module:build":               "build.pt2",
	} {
		require.Equal(t, want, captureName(spec), spec)
	}
}
