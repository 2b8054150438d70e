package systems

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/advise/configfile"
	"github.com/vprof/vprof/models"
)

var values = Values{models.Case{
	Model: "naics-embedder-stage01", Batch: 15, Accumulate: 17, AMP: "fp16",
	Checkpointing: true,
}, 255}

func TestEverySystemSaysWhereToWrite(t *testing.T) {
	all, err := AllProjects()
	require.NoError(t, err)
	for _, s := range all {
		require.NotEmpty(t, s.Models)
		require.NotEmpty(t, s.Project)
		for name, k := range s.Keys {
			require.Contains(t, Names(), name)
			require.NoError(t, configfile.ValidPath(k.Path))
		}
		for _, name := range s.Unread {
			require.Contains(t, Names(), name)
			require.True(t, !s.Supports(name) && s.Supports("batch"))
		}
		require.NotEqual(t, s.Config == "", s.Snippet == "", "%v: one of the two", s.Models)
		text, err := s.Paste(values)
		require.NoError(t, err)
		if s.Snippet != "" {
			require.Contains(t, text, "15")
			require.NotEmpty(t, s.ReplacedText)
			continue
		}
		for _, amp := range models.AutocastPrecisions() {
			v := values
			v.AMP = amp
			_, err := s.Files("conf.yaml", v)
			require.NoError(t, err)
		}
	}
}

func TestLookupTakesPatterns(t *testing.T) {
	for model, want := range map[string]string{
		"redimnet-b2":     "sappho192/redimnet-mrl",
		"redimnet-M-orig": "sappho192/redimnet-mrl", "bdslw-spoter": "sayad-dot/BDSLW_SPOTER",
	} {
		s, ok, err := Lookup(model)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, want, s.Project)
	}
	_, ok, err := Lookup("gpt2")
	require.NoError(t, err)
	require.False(t, ok)
}

func TestNAICSWritesTheConfigurationAndTheCurriculum(t *testing.T) {
	s, _, err := Lookup("naics-embedder-stage01")
	require.NoError(t, err)
	v := values
	v.Settings = map[string]int64{"n-negatives": 12}
	files, err := s.Files("my/conf/config.yaml", v)
	require.NoError(t, err)
	require.Len(t, files, 6)
	require.Equal(t, FileEdits{Path: "my/conf/config.yaml", Edits: []configfile.Edit{
		{Path: "data_loader.batch_size", Value: int64(15)},
		{Path: "training.trainer.accumulate_grad_batches", Value: int64(17), Create: true, Default: int64(1)},
		{Path: "training.trainer.precision", Value: "16-mixed"},
	}}, files[0])
	require.Equal(t, FileEdits{Path: "my/conf/text_curriculum/01_stage.yaml", Optional: true, Edits: []configfile.Edit{
		{Path: "n_positives", Value: int64(32)}, {Path: "n_negatives", Value: int64(12)},
	}}, files[1])
	require.Equal(t, []configfile.Edit{{Path: "n_positives", Value: int64(16)}, {Path: "n_negatives", Value: int64(8)}},
		files[5].Edits)
}

func TestVQVAESnippetIsItsCommandLine(t *testing.T) {
	s, _, err := Lookup("patch-vqvae-p8")
	require.NoError(t, err)
	text, err := s.Paste(Values{Case: models.Case{Batch: 4, Accumulate: 8}})
	require.NoError(t, err)
	require.Equal(t,
		"python -m src.main --device cuda \\\n  --batch_size 4 --n_patches 8 \\\n  --gradient_accumulation_steps 8\n",
		text)
	text, err = s.Paste(values)
	require.NoError(t, err)
	require.Contains(t, text, "--use_amp --use_gradient_checkpointing\n")
}

func TestMapMakesEdits(t *testing.T) {
	edits, err := MappedEdits([]string{"batch=a.b", "amp=c", "effective=d", "n=e"},
		Values{models.Case{Batch: 2, Accumulate: 3, AMP: "bf16", Settings: models.Settings{"n": 5}}, 6})
	require.NoError(t, err)
	require.Equal(t, []configfile.Edit{
		{Path: "a.b", Value: int64(2)},
		{Path: "c", Value: "bf16", AcceptedValue: true},
		{Path: "d", Value: int64(6)},
		{Path: "e", Value: int64(5)},
	}, edits)
	for _, bad := range []string{"batch", "batch=", "batch=a..b", "size=a"} {
		_, err := MappedEdits([]string{bad}, values)
		require.Error(t, err, bad)
	}
}

func TestReadTakesTheConfigurationInOurWords(t *testing.T) {
	s, _, err := Lookup("naics-embedder")
	require.NoError(t, err)
	read := func(text string) (map[string]any, error) {
		path := filepath.Join(t.TempDir(), "config.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return s.Read(path)
	}
	got, err := read("data_loader: {batch_size: 45}\ntraining: {trainer: {precision: bf16-mixed}}\n")
	require.NoError(t, err)
	require.Equal(t, map[string]any{"batch": int64(45), "accumulate": int64(1), "amp": "bf16"}, got)
	for _, bad := range []string{
		"data_loader: {batch_size: 0}", "data_loader: {batch_size: many}",
		"data_loader: {batch_size: 4611686018427387904}", "data_loader: {batch_size: 9223372036854775808}",
		"training: {trainer: {precision: 8}}",
	} {
		_, err := read(bad)
		require.Error(t, err, bad)
	}
}

// Of the files of a curriculum that a model stands for, the largest value decides;
// values of other models and missing ones do not count.
func TestStagesAreReadFromTheCurriculum(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "text_curriculum"), 0o755))
	for name, text := range map[string]string{
		"01": "n_negatives: 64\n", "02": "n_negatives: 8\n",
		"04": "n_negatives: 12\nn_positives: 3\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "text_curriculum", name+"_stage.yaml"), []byte(text), 0o600))
	}
	s, _, err := Lookup("naics-embedder")
	require.NoError(t, err)
	parts, err := s.ReadStages(config, false)
	require.NoError(t, err)
	require.Equal(t, []StageSettings{
		{"01_stage", "naics-embedder-stage01", models.Settings{"n-negatives": 64}},
		{"02_stage", "naics-embedder", models.Settings{"n-negatives": 8}},
		{"04_stage", "naics-embedder", models.Settings{"n-negatives": 12, "n-positives": 3}},
	}, parts)
	require.Equal(t, models.Settings{"n-negatives": 12, "n-positives": 3}, LargestSettings(parts, "naics-embedder"))
	parts, err = s.ReadStages(config, true)
	require.NoError(t, err)
	require.Equal(t, models.Settings{"n-negatives": 24, "n-positives": 32}, parts[0].Settings)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "text_curriculum", "01_stage.yaml"),
		[]byte("n_negatives: many\n"), 0o600))
	_, err = s.ReadStages(config, false)
	require.ErrorContains(t, err, "n_negatives: many is not a whole number")
}

func TestPrecisionIsReadInManyWords(t *testing.T) {
	for word, want := range map[any]string{
		true: "fp16", false: "none", int64(16): "fp16", int64(32): "none",
		"bf16-mixed": "bf16", "16-mixed": "fp16", "32-true": "none", "no": "none", "float32": "none",
		"bfloat16": "bf16",
	} {
		got, err := parsePrecision(word)
		require.NoError(t, err)
		require.Equal(t, want, got, word)
	}
	_, err := parsePrecision("8-bit")
	require.Error(t, err)
}
