package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/tools/sample"
)

// Tables in files and pipes are at most pipedWidth wide, whatever is asked, and wider with --wide alone.
func TestTablesAreNoWiderThanAPage(t *testing.T) {
	sample.Alone(t)
	t.Setenv("COLUMNS", "")
	for _, line := range []string{
		"models", "gpus", "models show spectrogram-gan", "models show redimnet-b2", "models show gpt2",
		"plan --model gpt2 --batch 1..64x2", "plan --model gpt2 --gpu rtx-4090,rtx-pro-6000,h100 --batch 8,16,32,64",
		"plan --model gpt2 --torch 2.11,2.14,2.15",
		"plan --model gpt2 --gpus 4 --strategy fsdp2 --rank all --gpu a100-80",
		"plan --model resnet18 --batch 8..512x2", "sweep --model redimnet-b0 --batch 8,1024",
		"fit --model gpt2 --gpu rtx-4090 --tune seq-len=128..512x2 --amp bf16",
		"time --model redimnet-b0 --gpu t4,h100",
		"smoke --model resnet18 --batch 4096", "events --model redimnet-b0",
	} {
		var stdout, stderr bytes.Buffer
		a := newSystemApp()
		a.stdout, a.stderr = &stdout, &stderr
		require.Contains(t, []exitCode{exitFine, exitNegative}, run(t.Context(), a, strings.Fields(line)),
			"%s: %s", line, stderr.String())
		require.NotEmpty(t, stdout.String(), line)
		for text := range strings.Lines(stdout.String()) {
			text = strings.TrimSuffix(text, "\n")
			require.LessOrEqual(t, utf8.RuneCountInString(text), pipedWidth, "%s: %s", line, text)
		}
	}
}
