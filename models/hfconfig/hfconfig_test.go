package hfconfig

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

var testGPU = trace.GPU{Name: "rtx-5060-ti", Capability: 120, SMs: 36, ThreadsPerSM: 1536, Memory: 16_615_079_936}

func open(t testing.TB, name string) models.Model {
	m, err := Open(filepath.Join("testdata", "configs", name))
	require.NoError(t, err)
	return m
}

// model makes a model of what is written here.
func model(t testing.TB, config string) models.Model {
	m, err := Parse("it.json", []byte(config))
	require.NoError(t, err)
	return m
}

// The element counts of transformers' own classes, which testdata/counts.py has counted: parameters, trained ones, and
// buffers; and the counts with adapters as peft makes them.
func TestCountsAreThoseOfTransformers(t *testing.T) {
	data, err := os.ReadFile("testdata/counts.json")
	require.NoError(t, err)
	var counted struct {
		Models []struct {
			Config, Class             string
			Total, Trainable, Buffers int64
			LoRA                      *struct{ Total, Trainable int64 }
		}
	}
	require.NoError(t, json.Unmarshal(data, &counted))
	require.NotEmpty(t, counted.Models)
	heads := map[string]string{}
	for _, kind := range Types() {
		f, _ := familyOf(kind)
		for class, task := range f.heads {
			heads[class] = task
		}
	}
	for _, want := range counted.Models {
		m := open(t, want.Config)
		c, err := m.Complete(models.Case{Task: heads[want.Class]})
		require.NoError(t, err, "%s as %s", want.Config, want.Class)
		trainer, err := m.Build(c)
		require.NoError(t, err)
		got := trainer.Counts()
		require.Equal(t, models.Counts{
			Total: want.Total, Trainable: want.Trainable, Buffers: want.Buffers,
			Gradients: got.Gradients,
		}, got, "%s as %s", want.Config, want.Class)
		if want.LoRA == nil {
			continue
		}
		c.LoRA = &models.LoRA{Rank: 4}
		trainer, err = m.Build(c)
		require.NoError(t, err)
		got = trainer.Counts()
		require.Equal(t, models.Counts{
			Total: want.LoRA.Total, Trainable: want.LoRA.Trainable, Buffers: want.Buffers,
			Gradients: 4 * want.LoRA.Trainable,
		}, got, "%s as %s with adapters", want.Config, want.Class)
	}
}

// Modules that peft trains as a whole beside adapters are there twice, even if their weights are tied, and a regular
// expression is held against whole paths: the counts are counted by peft 0.21.
func TestAdaptersOfOthersAreThoseOfPeft(t *testing.T) {
	for _, k := range []struct {
		config, lora     string
		total, trainable int64
	}{
		{"llama-3.2-1b", "r=4,target=q_proj+v_proj,save=embed_tokens+lm_head", 1761576960, 525762560},
		{"nemotron", "r=4,target=q_proj,save=lm_head", 17203212288, 1574436864},
		{"llama-3.2-1b", `r=4,match=model\.layers\.\d+\.mlp\.(up|down)_proj`, 1237125120, 1310720},
		{"gpt_neox", `r=4,save=embed_in,match=.*\.layers\.[0-3]\.attention\.dense`, 20864618496, 310050816},
		{"gemma", "r=4,save=embed_tokens", 9336613888, 798932992},
	} {
		m := open(t, k.config)
		l, err := models.ParseLoRA(k.lora)
		require.NoError(t, err)
		trainer, err := m.Build(complete(t, m, models.Case{Task: causalLM, LoRA: &l}))
		require.NoError(t, err)
		require.Equal(t, k.total, trainer.Counts().Total, k.lora)
		require.Equal(t, k.trainable, trainer.Counts().Trainable, k.lora)
	}
	m := open(t, "llama-3.2-1b")
	for lora, want := range map[string]string{
		"save=pooler":        "no module that can be trained as a whole is called pooler",
		"match=.*experts.*x": "no linear layer's path is matched by .*experts.*x",
	} {
		l, err := models.ParseLoRA(lora)
		require.NoError(t, err)
		_, err = m.Build(complete(t, m, models.Case{LoRA: &l}))
		require.ErrorContains(t, err, want)
	}
}

// A step that trains the embeddings and the output layer in copies leaves nothing behind, whatever computes the loss.
func TestSavedModulesAreUsedInTheirPlaces(t *testing.T) {
	m := model(t,
		`{"model_type": "gemma", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512}`)
	l, err := models.ParseLoRA("r=4,save=embed_tokens+lm_head")
	require.NoError(t, err)
	for _, s := range []models.Settings{
		{"seq-len": 32},
		{"seq-len": 32, "chunked-loss": 4},
		{"seq-len": 32, "fused-loss": 1},
	} {
		r, err := m.Record(models.Case{LoRA: &l, Checkpointing: true, Batch: 2, Settings: s}, testGPU,
			models.Options{Steps: 2})
		require.NoError(t, err)
		require.NoError(t, r.Program.Validate())
	}
}

// A configuration with the sizes of a model of the registry is that model: the
// same instructions in the same order, whatever is trained and how.
func TestModelsOfTheRegistryComeOutTheSame(t *testing.T) {
	for _, tc := range []struct {
		config   string
		listed   models.Model
		settings models.Settings
	}{
		{
			`{"model_type": "bert", "num_hidden_layers": 2}`, modelNamed(t, "bert-base"),
			models.Settings{"layers": 2},
		},
		{
			`{"model_type": "gpt2", "n_layer": 2, "use_cache": false}`, modelNamed(t, "gpt2"),
			models.Settings{"layers": 2, "seq-len": 256, "packed": 1},
		},
		{
			`{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 688}`,
			modelNamed(t, "llama-tiny"),
			models.Settings{"layers": 2, "seq-len": 128, "packed": 0},
		},
		{
			`{"model_type": "vit", "hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768, "num_labels": 1000}`, modelNamed(t, "vit-ti16-224"), nil,
		},
		{
			`{"model_type": "wav2vec2", "mask_time_prob": 0}`, modelNamed(t, "wav2vec2-base"),
			models.Settings{"audio-seconds": 2},
		},
		{
			`{"model_type": "whisper"}`, modelNamed(t, "whisper-tiny"),
			models.Settings{"packed": 0, "encoder-positions": 0},
		},
	} {
		m := model(t, tc.config)
		for _, c := range []models.Case{
			{},
			{AMP: "fp16"},
			{AMP: "bf16", Checkpointing: true},
			{Stage: "head"},
			{LoRA: &models.LoRA{Rank: 4, Dropout: 0.1}, Checkpointing: true},
		} {
			c.Batch = 2
			c.Settings = tc.settings
			want, err := tc.listed.Record(c, testGPU, models.Options{})
			require.NoError(t, err)
			c.Settings = shared(m, tc.settings)
			got, err := m.Record(c, testGPU, models.Options{})
			require.NoError(t, err)
			require.Equal(t, want.Counts, got.Counts, "%s %+v", tc.listed.Name, c)
			require.Equal(t, want.Program.Instructions, got.Program.Instructions, "%s %+v", tc.listed.Name, c)
			require.Equal(t, want.Program.Buffers, got.Program.Buffers, "%s %+v", tc.listed.Name, c)
		}
	}
}

func named(t *testing.T, list []models.Model, name string) models.Model {
	for _, m := range list {
		if m.Name == name {
			return m
		}
	}
	t.Fatal("no " + name)
	return models.Model{}
}

// shared returns the settings that the model has.
func shared(m models.Model, s models.Settings) models.Settings {
	out := models.Settings{}
	for _, d := range m.Settings {
		if v, ok := s[d.Name]; ok {
			out[d.Name] = v
		}
	}
	return out
}

// small are configurations of every type whose steps are recorded in no time.
var small = []string{
	`{"model_type": "bert", "num_hidden_layers": 1}`,
	`{"model_type": "roberta", "num_hidden_layers": 1}`,
	`{"model_type": "distilbert", "n_layers": 1}`,
	`{"model_type": "gpt2", "n_layer": 1, "pad_token_id": 0}`,
	`{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "pad_token_id": 0, "attention_bias": true, "mlp_bias": true}`,
	`{"model_type": "mistral", "hidden_size": 64, "num_hidden_layers": 1, "num_key_value_heads": 2, "num_attention_heads": 4, "pad_token_id": 0, "sliding_window": 16}`,
	`{"model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2, "num_key_value_heads": 2, "num_attention_heads": 4, "pad_token_id": 0, "sliding_window": 16, "use_sliding_window": true, "max_window_layers": 1}`,
	`{"model_type": "vit", "num_hidden_layers": 1, "problem_type": "multi_label_classification", "num_labels": 3}`,
	`{"model_type": "whisper"}`,
	`{"model_type": "wav2vec2", "num_hidden_layers": 1}`,
	`{"model_type": "wav2vec2", "num_hidden_layers": 1, "feat_extract_norm": "layer", "do_stable_layer_norm": true, "conv_bias": true}`,
}

// XLM-RoBERTa and CamemBERT are RoBERTa with another vocabulary by default. PyTorch 2.15 under vprof run allocates the
// same bytes for all three.
func TestXLMRoBERTaAndCamemBERTAreRoBERTa(t *testing.T) {
	roberta := model(t, `{"model_type": "roberta", "num_hidden_layers": 1, "vocab_size": 30522}`)
	for _, kind := range []string{"xlm-roberta", "camembert"} {
		m := model(t, `{"model_type": "`+kind+`", "num_hidden_layers": 1}`)
		require.Equal(t, roberta.Tasks, m.Tasks, kind)
		for _, task := range m.Tasks {
			c, err := m.Complete(models.Case{Task: task, Batch: 2, Settings: models.Settings{"seq-len": 16}})
			require.NoError(t, err)
			built, err := m.Build(c)
			require.NoError(t, err)
			expected, err := roberta.Build(c)
			require.NoError(t, err)
			require.Equal(t, expected.Counts(), built.Counts(), "%s, %s", kind, task)
		}
	}
}

// Every task of every configuration can be recorded, with and without what changes the shape of a step.
func TestStepsOfAllConfigurationsAreValid(t *testing.T) {
	for _, config := range small {
		m := model(t, config)
		for _, task := range m.Tasks {
			for _, c := range []models.Case{
				{},
				{AMP: "fp16", Checkpointing: true},
				{LoRA: &models.LoRA{Rank: 2}, Checkpointing: true},
				{Accumulate: 2, AMP: "bf16"},
			} {
				c.Task, c.Batch = task, 2
				for _, s := range []models.Settings{
					nil,
					{"seq-len": 32},
					{"seq-len": 32, "padding": 1},
					{"seq-len": 32, "padding": 0, "packed": 1},
					{"classes": 1},
				} {
					if c.Settings = shared(m, s); task != classification {
						delete(c.Settings, "classes")
					}
					r, err := m.Record(c, testGPU, models.Options{Steps: 3})
					require.NoError(t, err, "%s %+v", config, c)
					require.NoError(t, r.Program.Validate(), "%s %+v", config, c)
				}
			}
		}
	}
}

// What a report keeps of a configuration makes the same model, and keeps the same.
func TestConfigIsAllThatAModelIsMadeOf(t *testing.T) {
	for _, dir := range configs(t) {
		m := open(t, dir)
		again, err := Source().Restore(m.Name, m.Description.Text())
		require.NoError(t, err)
		require.Equal(t, m.Description, again.Description)
		require.Equal(t, m.Name, again.Name)
		require.Equal(t, m.Settings, again.Settings)
		require.Less(t, len(m.Description.Text()), 2560, "only what was read is kept")
	}
}

func configs(t *testing.T) []string {
	entries, err := os.ReadDir("testdata/configs")
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestModelsAreCalledAsTheirFolders(t *testing.T) {
	for file, want := range map[string]string{
		"bert-base-uncased/config.json": "hf:bert-base-uncased",
		"configs/llama-3.2-1b.json":     "hf:llama-3.2-1b",
		"hub/models--meta-llama--Llama-2-7b-hf/snapshots/01c7f73d771dfac7d292323805ebc428287df4f9/config.json": "hf:Llama-2-7b-hf",
		"a\x1b[31m b/config.json": "hf:a31mb",
		"…/config.json":           "hf:base",
	} {
		m, err := Parse(file, []byte(`{"model_type": "bert", "_name_or_path": "org/base"}`))
		require.NoError(t, err)
		require.Equal(t, want, m.Name)
	}
}

func TestArchitecturesNameTheTask(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type": "bert", "architectures": ["BertForSequenceClassification"]}`:         classification,
		`{"model_type": "bert", "architectures": ["BertForPreTraining", "BertForMaskedLM"]}`: maskedLM,
		`{"model_type": "bert"}`:                                                  maskedLM,
		`{"model_type": "gpt2", "architectures": null}`:                           causalLM,
		`{"model_type": "wav2vec2", "architectures": ["Wav2Vec2ForPreTraining"]}`: "",
	} {
		require.Equal(t, want, model(t, config).Default.Task, config)
	}
	m := model(t, `{"model_type": "wav2vec2", "architectures": ["Wav2Vec2ForPreTraining"]}`)
	_, err := m.Complete(models.Case{})
	require.EqualError(t, err,
		"hf:it: task: the configuration's architectures name Wav2Vec2ForPreTraining, which vprof cannot "+
			"train; choose the class to train with --task: ctc")
	_, err = m.Complete(models.Case{Task: ctc})
	require.NoError(t, err)
}

// A sequence of 4 heads of 16 with a window needs a mask once it is as long.
func TestWindowsNeedAMaskOnceSequencesReachThem(t *testing.T) {
	m := model(t,
		`{"model_type": "mistral", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "sliding_window": 64}`)
	masks := func(length int64) (n int) {
		r, err := m.Record(models.Case{Settings: models.Settings{"seq-len": length}}, testGPU, models.Options{})
		require.NoError(t, err)
		for _, b := range r.Program.Buffers {
			if b.Bytes == length*length {
				n++
			}
		}
		return n
	}
	require.Zero(t, masks(63))
	require.Positive(t, masks(64))
}

// A name that no layer has is answered with the names that can be given, the head for words among them.
func TestAdaptersFindTheLayersByTheirNames(t *testing.T) {
	for dir, names := range map[string][]string{
		"distilbert-base-uncased": {
			"k_lin", "lin1", "lin2", "out_lin", "q_lin", "v_lin", "vocab_projector",
			"vocab_transform",
		},
		"qwen2-0.5b": {"down_proj", "gate_proj", "k_proj", "lm_head", "o_proj", "q_proj", "up_proj", "v_proj"},
		"gpt2":       {"c_attn", "c_fc", "c_proj", "lm_head"},
	} {
		m := open(t, dir)
		_, err := m.Build(complete(t, m, models.Case{LoRA: &models.LoRA{Rank: 1, Targets: []string{"nothing"}}}))
		var wrong *models.CaseError
		require.ErrorAs(t, err, &wrong)
		for _, name := range names {
			require.Contains(t, wrong.Reason, name)
		}
	}
}

func complete(t *testing.T, m models.Model, c models.Case) models.Case {
	c, err := m.Complete(c)
	require.NoError(t, err)
	return c
}
