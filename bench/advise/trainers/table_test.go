package trainers

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/advise/configfile"
)

func spliced(t *testing.T, path string, data []byte, edits []configfile.Edit) []byte {
	t.Helper()
	format, err := configfile.FormatOf(path)
	require.NoError(t, err)
	after, err := configfile.Splice(format, data, edits)
	if format == configfile.JSON && err != nil {
		require.ErrorContains(t, err, "there is no key")
		return nil
	}
	require.NoError(t, err, path)
	return after
}

// A table says one thing of a key, in words that something makes use of.
func TestTablesAreConsistent(t *testing.T) {
	used := []string{
		"refuse", freezeLayers, freezeModules, freezeExtra, "llama-pro", "note", "model",
		"revision", "folder", "deepspeed", "file", "tuner", "lora-r", "lora-alpha", "lora-twice", "lora-dropout",
		"lora-target", "lora-save", "lora-bias", "lora-blocks", "lora-tokens", "lora-towers", "dora", "lora-type",
		"gpus", "reentrant", "reshard", "replicate", "shards",
		"loading", "prefetch",
		"wrap", "mixed", meshTensorBy,
		"reference", "objective-as", "answer", "prompt", "compared", "old", "generated-steps", "iterations",
		"vllm-share", "teacher", "pairs-packed", "unfrozen", "qat-group",
		"grouped", "multiple", "to-length", "zero-overlap", "zero-contiguous", "zero-linear", "zero-optimizer",
		"zero-params", "cp_by", "ep_by", "tensor-sequence", "tensor-loss",
	}
	used = append(used, lowPrecision, lowRank, lowTarget, optimArgs)
	used = append(used, frozenTowers, imagePixels)
	used = append(used, "zero-gradients", schedule, layersOfStage, inputLayers, outputLayers, expertsInside)
	for _, s := range zeroSizes {
		used = append(used, "zero-"+s)
	}
	used = append(used, caseFlagFacts...)
	for _, s := range settingFacts {
		used = append(used, s.fact)
	}
	used = append(used, integerFacts...)
	for _, table := range Tables() {
		require.NotEmpty(t, table.Version, table.Trainer)
		read := slices.Clone(used)
		for _, other := range Tables() { // facts of a strategy are read by the trainer's rules
			for _, r := range other.Rules {
				read = append(read, slices.Collect(maps.Keys(r.When))...)
				read = append(read, slices.Collect(maps.Keys(r.Unless))...)
				for _, v := range r.Set {
					read = append(read, strings.TrimPrefix(v, "="))
				}
			}
		}
		for key, row := range table.Keys {
			require.False(t, slices.Contains(table.Harmless, key), "%s: %s matters and is harmless", table.Trainer, key)
			says := row.FactName != "" || len(row.Words) > 0 || row.File
			judges := len(row.Unless) > 0 || row.Needs != "" || row.Bound != ""
			require.True(t, says != judges, "%s: %s must either say something or be judged", table.Trainer, key)
			require.Equal(t, judges, row.Needs != "" || row.Bound != "", "%s: %s has no reason", table.Trainer, key)
			if row.FactName != "" {
				require.Contains(t, read, row.FactName, "%s: %s", table.Trainer, key)
			}
			for word, w := range row.Words {
				require.False(t, w.Value != "" && row.FactName == "", "%s: %s: %s says a word of no fact",
					table.Trainer, key, word)
				for fact := range w.Facts {
					require.Contains(t, read, fact, "%s: %s: %s", table.Trainer, key, word)
				}
			}
		}
		for _, r := range table.Rules {
			require.True(t, r.Refuse != "" || r.Note != "" || len(r.Set) > 0 || len(r.Clear) > 0,
				"%s: a rule does nothing: %v", table.Trainer, r.When)
			for fact := range r.Set {
				require.Contains(t, read, fact, "%s", table.Trainer)
			}
		}
		for lever, keys := range table.SavingValues {
			for key := range keys {
				require.Contains(t, table.Keys, key, "%s: %s", table.Trainer, lever)
			}
		}
		for fact, key := range table.WrittenKeys {
			require.Contains(t, table.Keys, key, "%s: %s", table.Trainer, fact)
		}
	}
}

// Whatever is in a file: it is refused in one sentence, or read as settings.
func FuzzConfigurations(f *testing.F) {
	files, err := os.ReadDir("testdata/configs")
	require.NoError(f, err)
	for _, file := range files {
		data, err := os.ReadFile("testdata/configs/" + file.Name())
		require.NoError(f, err)
		for kind := range byte(4) {
			f.Add(string(data), kind)
		}
	}
	f.Add("a: &a\n  <<: *a\n", byte(0))
	f.Add("A=$A$A\nA=$A$A\nswift sft --model $(expr 3 / 0) '", byte(2))
	f.Fuzz(func(t *testing.T, data string, kind byte) {
		name := []string{"c.yaml", "c.json", "c.sh", "c.toml"}[kind%4]
		d, err := parse(name, []byte(data))
		if err == nil && d.config == "" && (d.gpuDocument == nil || d.gpuDocument.config == "") {
			var c *Config
			if c, err = combineDocuments([]*document{d}); err == nil {
				for _, s := range c.Settings {
					require.NotEmpty(t, s.Value, s.Flag)
					require.NotEmpty(t, s.From.File)
				}
				_, _ = c.Edits(Values{Batch: 1, Accumulate: 1})
				require.GreaterOrEqual(t, c.Effective(3), 0)
			}
		}
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "c."), "%v", err)
			require.NotContains(t, err.Error(), "goroutine")
		}
	})
}
