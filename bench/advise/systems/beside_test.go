package systems

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatAMapDoesNotReachIsReadBesideTheBatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "args.yaml")
	require.NoError(t, os.WriteFile(file, []byte("train:\n  per_device_train_batch_size: 8\n  gradient_checkpointing: false\n  bf16: true\n  fp16: false\n  gradient_accumulation_steps: 4\n"), 0o600))
	got, err := ReadBeside(file, []string{"batch=train.per_device_train_batch_size"})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"checkpointing": false, "amp": "bf16", "accumulate": int64(4)}, got)
	got, err = ReadBeside(file, []string{"batch=train.per_device_train_batch_size", "amp=train.bf16", "accumulate=train.gradient_accumulation_steps"})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"checkpointing": false}, got)
	got, err = ReadBeside(file, []string{"batch=batch"})
	require.NoError(t, err)
	require.Empty(t, got, "another group's keys are another trainer's")
}
