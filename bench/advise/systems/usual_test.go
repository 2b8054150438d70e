package systems

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatAMapDoesNotReachIsReadUsualTheBatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "args.yaml")
	require.NoError(t, os.WriteFile(file,
		[]byte("train:\n  per_device_train_batch_size: 8\n  gradient_checkpointing: false\n  bf16: true\n  fp16: "+
			"false\n  gradient_accumulation_steps: 4\n"), 0o600))
	got, err := ReadCommonKeys(file, []string{"batch=train.per_device_train_batch_size"})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"checkpointing": false, "amp": "bf16", "accumulate": int64(4)}, got)
	got, err = ReadCommonKeys(file, []string{
		"batch=train.per_device_train_batch_size", "amp=train.bf16",
		"accumulate=train.gradient_accumulation_steps",
	})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"checkpointing": false}, got)
	got, err = ReadCommonKeys(file, []string{"batch=batch"})
	require.NoError(t, err)
	require.Empty(t, got, "another group's keys are another trainer's")
}

func TestDeepSpeedSwitchesPrecisionOnInAGroup(t *testing.T) {
	for text, want := range map[string]map[string]any{
		`{"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2, "bf16": {"enabled": true}, "fp16": {"enabled": false, "loss_scale": 0}}`: {"accumulate": int64(2), "amp": "bf16"},
		`{"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"}, "fp16": {"loss_scale": 0}}`:            {},
	} {
		file := filepath.Join(t.TempDir(), "ds.json")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		got, err := ReadCommonKeys(file, []string{"batch=train_micro_batch_size_per_gpu"})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	file := filepath.Join(t.TempDir(), "ds.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"batch": 8, "bf16": {"enabled": {}}}`), 0o600))
	_, err := ReadCommonKeys(file, []string{"batch=batch"})
	require.ErrorContains(t, err, "bf16.enabled: is not a single value")
}
