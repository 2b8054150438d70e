package models

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A value that no flag takes is refused as well where a case comes from a file.
func TestCasesFromFilesAreValidatedAsThoseFromFlags(t *testing.T) {
	for field, text := range map[string]string{
		"checkpointing":  `{"checkpointing": true, "recompute": "sometimes"}`,
		"quantize":       `{"quantize": "nf3"}`,
		"clip":           `{"clip": "value"}`,
		"float8":         `{"float8": "rowwise"}`,
		"train-only":     `{"train_only": "("}`,
		"torch":          `{"torch": "newest"}`,
		"stack":          `{"stack": {"transformers": "new"}}`,
		"dataset-on-gpu": `{"dataset_bytes": 123456789012345678}`,
	} {
		var c Case
		require.NoError(t, json.Unmarshal([]byte(text), &c), text)
		m := toyModel("toy")
		m.Supports = MemoryOptionSupport{Loop: LoopTrainer, Quantize: true, Recompute: true, QAT: true}
		_, err := m.Complete(c)
		var wrong *CaseError
		require.ErrorAs(t, err, &wrong, text)
		require.Equal(t, field, wrong.Field)
	}
}

// Names are in their usual spelling, whoever wrote them.
func TestCompletionSpellsNamesAsUsual(t *testing.T) {
	c, err := toyModel("toy").Complete(Case{Optimizer: "AdamW"})
	require.NoError(t, err)
	require.Equal(t, "adamw", c.Optimizer)
}

// Each key that a case has in files belongs to a field of the table, and each field to a key.
func TestEveryKeyOfACaseIsAField(t *testing.T) {
	keys := []string{"settings"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Case]()) {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key == "" || slices.Contains([]string{"model", "batch", "config_sha256"}, key) {
			continue
		}
		keys = append(keys, key)
		require.True(t, slices.ContainsFunc(Fields(), func(f Field) bool { return f.JSON == key }), key)
	}
	names := map[string]bool{}
	for _, f := range Fields() {
		require.Contains(t, keys, f.JSON, f.Name)
		require.False(t, f.Name != "" && names[f.Name], f.Name)
		names[f.Name] = true
		require.Equal(t, f.Name != "", f.parse != nil, f.JSON)
	}
}

// What a field writes of a case is what it reads.
func TestFieldsReadWhatTheyWrite(t *testing.T) {
	for name, text := range map[string]string{
		"amp": "bf16", "weights": "fp16", "checkpointing": "every=2", "checkpoint": "layers.*", "accumulate": "4",
		"optimizer": "lion8bit",
		"lora":      "r=4,alpha=8,target=q_proj+v_proj", "quantize": "nf4-dq", "liger": "true", "clip": "none",
		"objective": "dpo:precomputed",
		"qat":       "8da4w:group=32", "tiled-mlp": "auto", "dataset-on-gpu": "104857600", "seq-len": "77", "gpus": "8",
		"strategy": "fsdp2:mp=bf16,replicate=2",
		"torch":    "2.15", "stack": "transformers=5.12,trl=1.16", "loss": "mse", "output": "logits",
	} {
		f := FieldNamed(name)
		change, err := f.Parse(text)
		require.NoError(t, err, name)
		var c Case
		p := Patch{}
		p.Set(change)
		p.Apply(&c)
		require.Equal(t, text, f.Text(c), name)
	}
}
