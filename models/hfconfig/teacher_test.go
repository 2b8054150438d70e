package hfconfig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// A teacher is part of its student's description, and weighs beside it.
func TestTeachersBelongToTheirStudents(t *testing.T) {
	dir := t.TempDir()
	student, teacher := filepath.Join(dir, "student.json"), filepath.Join(dir, "teacher.json")
	require.NoError(t, os.WriteFile(student,
		[]byte(
			`{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 5000}`), 0o600))
	require.NoError(t, os.WriteFile(teacher,
		[]byte(`{"model_type": "gpt2", "n_embd": 128, "n_layer": 1, "n_head": 2, "vocab_size": 5000}`), 0o600))
	m, err := Open(student + TeacherMark + teacher)
	require.NoError(t, err)
	again, err := Source().Restore(m.Name, m.Description.Text())
	require.NoError(t, err)
	require.Equal(t, m.Description, again.Description)
	weights := func(m models.Model, o models.Objective) int64 {
		c, err := m.Complete(models.Case{MemoryOptions: models.MemoryOptions{Objective: o}})
		require.NoError(t, err)
		r, err := m.Record(c, testGPU, models.Options{Steps: 1})
		require.NoError(t, err)
		return phasePeak(r.Program, -1, "model")
	}
	alone := weights(m, models.Objective{})
	require.Greater(t, weights(again, models.Objective{Name: models.GKD}), alone+4*(5000+1024)*128)
	dpo := models.Objective{Name: models.DPO}
	require.InEpsilon(t, 2*alone, weights(m, dpo), 0.01, "the reference of other objectives is the model itself")

	plain, err := Open(student)
	require.NoError(t, err)
	_, err = plain.Complete(models.Case{MemoryOptions: models.MemoryOptions{Objective: models.Objective{Name: models.GKD}}})
	require.ErrorContains(t, err,
		"objective: a model learns from the scores of another language model; name its configuration, too: --model "+
			"hf:student.json,teacher=teacher.json")
	_, err = Open(student + TeacherMark + "none.json")
	require.ErrorContains(t, err, "none.json")
	require.NoError(t, os.WriteFile(teacher, []byte(`{"model_type": "sheep"}`), 0o600))
	_, err = Open(student + TeacherMark + teacher)
	require.ErrorContains(t, err, `student.json: model_type: vprof has no model for the architecture "sheep"; "vprof run -- python train.py" measures your training script on a simulated GPU, and "vprof capture hf:`)
	require.NoError(t, os.WriteFile(teacher, []byte(`[]`), 0o600))
	_, err = Open(student + TeacherMark + teacher)
	require.ErrorContains(t, err, "teacher.json: not a JSON object")
}
