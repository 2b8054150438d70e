package hfconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
)

// Whatever is wrong, the message names the file, the key, its value and the rule.
func TestWrongConfigurationsAreExplained(t *testing.T) {
	for config, want := range map[string]string{
		`[1]`:                     `not a JSON object, as a config.json of transformers is`,
		`null`:                    `not a JSON object, as a config.json of transformers is`,
		`{}`:                      `model_type: missing: it must name the architecture, like "llama"`,
		`{"model_type": "xlnet"}`: refusal("xlnet"),
		`{"model_type": 5}`:       `model_type: 5: need a name like "llama"`,

		`{"model_type": "gemma3", "text_config": 5}`:                                             `text_config: 5: need an object with the keys of a configuration`,
		`{"model_type": "gemma3", "text_config": {"hidden_size": 0}}`:                            `text_config.hidden_size: 0 is out of range: need 1 to 65536`,
		`{"model_type": "mistral3", "text_config": {"model_type": "t5"}}`:                        `text_config.model_type: vprof does not support the decoder "t5" in Mistral3; run your own script with "vprof run -- python train.py"`,
		`{"model_type": "llava", "vision_config": {"model_type": "vit"}}`:                        `vision_config.model_type: vprof does not support "vit": need one of clip_vision_model, pixtral`,
		`{"model_type": "llava", "vision_config": {"image_size": 7}}`:                            `vision_config.patch_size: 14 is larger than image_size 7`,
		`{"model_type": "llava", "vision_feature_layer": [1, 2]}`:                                `vision_feature_layer: vprof does not support the value [1, 2]; need -1 or -2 or no value, or run your own script with "vprof run"`,
		`{"model_type": "qwen2_5_vl", "vision_config": {"spatial_merge_size": 65}}`:              `vision_config.spatial_merge_size: 65 is out of range: need 1 to 64`,
		`{"model_type": "llama", "rope_scaling": {"type": "mrope"}}`:                             `rope_scaling: mrope is for models that see`,
		`{"model_type": "mixtral", "num_experts_per_tok": 9}`:                                    `num_experts_per_tok: 9 experts for each token: need at most the 8 experts of the model`,
		`{"model_type": "mixtral", "router_jitter_noise": 0.1}`:                                  `router_jitter_noise: vprof does not support the value 0.1; need 0 or 0.0 or no value, or run your own script with "vprof run"`,
		`{"model_type": "qwen3_moe", "output_router_logits": true}`:                              `output_router_logits: vprof does not support the value true; need false or no value, or run your own script with "vprof run"`,
		`{"model_type": "qwen2_moe", "experts_implementation": "eager"}`:                         `experts_implementation: vprof does not support the value "eager"; need "grouped_mm" or no value, or run your own script with "vprof run"`,
		`{"model_type": "nemotron_h", "n_groups": 3}`:                                            `n_groups: 3 do not divide mamba_num_heads 128`,
		`{"model_type": "qwen3_5_text", "num_hidden_layers": 1, "layer_types": ["mamba"]}`:       `layer_types: vprof does not support "mamba": need linear_attention or full_attention`,
		`{"model_type": "nemotron", "partial_rotary_factor": 2}`:                                 `partial_rotary_factor: 2 is not a number above 0, up to 1`,
		`{"model_type": "nemotron", "partial_rotary_factor": 0.01}`:                              `partial_rotary_factor: 0.01 of a head of 128 elements: need an even number of elements, at least 2`,
		`{"model_type": "qwen3_5_text", "linear_num_key_heads": 5}`:                              `linear_num_key_heads: 5 do not divide linear_num_value_heads 32`,
		`{"model_type": "qwen3_5", "text_config": {"layer_types": ["conv"]}}`:                    `text_config.layer_types: the list has 1 layers: need one value for each of the 32 layers of num_hidden_layers`,
		`{"model_type": "smollm3", "no_rope_layers": [1]}`:                                       `no_rope_layers: the list has 1 layers: need one value for each of the 36 layers of num_hidden_layers`,
		`{"model_type": "llama4_text", "no_rope_layers": [1]}`:                                   `no_rope_layers: the list has 1 layers: need one value for each of the 48 layers of num_hidden_layers`,
		`{"model_type": "llama4_text", "num_experts_per_tok": 17}`:                               `num_experts_per_tok: 17 experts for each token: need at most the 16 experts of the model`,
		`{"model_type": "llama4_text", "attn_temperature_tuning": "on"}`:                         `attn_temperature_tuning: "on": need true or false`,
		`{"model_type": "llama4", "vision_config": {"projector_input_dim": 5}}`:                  `vision_config.projector_input_dim: 5: need the value of projector_output_dim, 4096`,
		`{"model_type": "smollm3", "no_rope_layers": "all"}`:                                     `no_rope_layers: "all": need a list of whole numbers`,
		`{"model_type": "gpt_neox", "num_key_value_heads": 8}`:                                   `num_key_value_heads: 8: need as many as num_attention_heads, as GPT-NeoX has`,
		`{"model_type": "gemma3_text", "attn_logit_softcapping": 50}`:                            `attn_logit_softcapping: vprof does not support the value 50; need no value, or run your own script with "vprof run"`,
		`{"model_type": "bert", "hidden_size": "768"}`:                                           `hidden_size: "768": need a whole number`,
		`{"model_type": "bert", "hidden_size": 768.5}`:                                           `hidden_size: 768.5: need a whole number`,
		`{"model_type": "bert", "hidden_size": null}`:                                            `hidden_size: null: need a whole number`,
		`{"model_type": "bert", "num_hidden_layers": 0}`:                                         `num_hidden_layers: 0 is out of range: need 1 to 512`,
		`{"model_type": "bert", "num_hidden_layers": 99999}`:                                     `num_hidden_layers: 99999 is out of range: need 1 to 512`,
		`{"model_type": "bert", "vocab_size": 99999999999999999999999999999}`:                    `vocab_size: 99999999999999999999999999999 is out of range: need 1 to 16777216`,
		`{"model_type": "bert", "hidden_size": 1e400}`:                                           `hidden_size: 1e400: need a whole number`,
		`{"model_type": "bert", "num_attention_heads": 11}`:                                      `num_attention_heads: 11 heads: need a number that divides hidden_size, 768`,
		`{"model_type": "bert", "hidden_dropout_prob": 1.5}`:                                     `hidden_dropout_prob: 1.5: need a number from 0 to 1`,
		`{"model_type": "bert", "hidden_act": "mish"}`:                                           `hidden_act: vprof does not support "mish": need one of gelu, gelu_fast, gelu_new, gelu_pytorch_tanh, quick_gelu, relu, relu2, silu, swish, tanh`,
		`{"model_type": "bert", "tie_word_embeddings": 1}`:                                       `tie_word_embeddings: 1: need true or false`,
		`{"model_type": "bert", "is_decoder": true}`:                                             `is_decoder: vprof does not support the value true; need false or no value, or run your own script with "vprof run"`,
		`{"model_type": "bert", "quantization_config": {"bits": 4}}`:                             `quantization_config: vprof does not support the value {"bits": 4}; need no value, or run your own script with "vprof run"`,
		`{"model_type": "bert", "attn_implementation": "eager"}`:                                 `attn_implementation: vprof does not support the value "eager"; need "sdpa" or no value, or run your own script with "vprof run"`,
		`{"model_type": "bert", "architectures": "BertForMaskedLM"}`:                             `architectures: "BertForMaskedLM": need a list of names`,
		`{"model_type": "bert", "id2label": {}}`:                                                 `id2label: {}: need an object with 1 to 1048576 labels`,
		`{"model_type": "bert", "num_labels": 0}`:                                                `num_labels: 0 is out of range: need 1 to 1048576`,
		`{"model_type": "bert", "num_labels": 1, "problem_type": "single_label_classification"}`: `problem_type: single_label_classification needs several classes; set num_labels to 2 or more`,
		`{"model_type": "bert", "problem_type": "ranking"}`:                                      `problem_type: vprof does not support "ranking": need one of single_label_classification, multi_label_classification, regression`,
		`{"model_type": "bert", "pad_token_id": 30522}`:                                          `pad_token_id: 30522: need a token number below vocab_size, 30522`,

		`{"model_type": "roberta", "max_position_embeddings": 2}`: `max_position_embeddings: 2 is too small: positions are counted from pad_token_id, 1, so need at least 2 more`,
		`{"model_type": "roberta", "pad_token_id": null}`:         `pad_token_id: missing: RoBERTa counts positions from it; set it, like 1`,
		`{"model_type": "distilbert", "num_attention_heads": 7}`:  `n_heads: 7 heads: need a number that divides dim, 768`,
		`{"model_type": "gpt2", "n_head": 13}`:                    `n_head: 13 heads: need a number that divides n_embd, 768`,

		`{"model_type": "llama", "num_key_value_heads": 5}`:                                     `num_key_value_heads: 5: need a number that divides num_attention_heads, 32`,
		`{"model_type": "llama", "hidden_size": 96}`:                                            `num_attention_heads: 32 heads of hidden_size 96 have a size of 3; rotary positions need an even size, so set head_dim`,
		`{"model_type": "mistral", "head_dim": 63}`:                                             `head_dim: 63 is odd: need an even size for rotary positions`,
		`{"model_type": "llama", "hidden_size": 100, "head_dim": 64}`:                           `num_attention_heads: 32 heads: need a number that divides hidden_size, 100`,
		`{"model_type": "llama", "rope_scaling": {"type": "dynamic", "factor": 2}}`:             `rope_scaling: vprof does not describe rope_type "dynamic"; it describes default, linear, llama3, yarn, longrope`,
		`{"model_type": "llama", "rope_parameters": [1]}`:                                       `rope_parameters: [1]: need an object with the key rope_type`,
		`{"model_type": "qwen2", "layer_types": ["full_attention"]}`:                            `layer_types: the list has 1 layers: need one value for each of the 32 layers of num_hidden_layers`,
		`{"model_type": "qwen2", "num_hidden_layers": 1, "layer_types": ["sliding_attention"]}`: `layer_types: sliding_attention needs a window; set sliding_window, and use_sliding_window if the configuration has it`,

		`{"model_type": "llama", "hidden_size": 65536, "num_hidden_layers": 512, "intermediate_size": 1048576}`: `the configuration describes 114353470767104 parameters; vprof accepts at most 1099511627776`,

		`{"model_type": "vit", "image_size": 225}`:                       `image_size: 225: need a multiple of patch_size, 16`,
		`{"model_type": "vit", "image_size": [224, 192]}`:                `image_size: [224, 192]: vprof supports only square images and patches, so need two equal numbers`,
		`{"model_type": "whisper", "decoder_attention_heads": 5}`:        `decoder_attention_heads: 5 heads: need a number that divides d_model, 384`,
		`{"model_type": "wav2vec2", "conv_stride": [5, 2]}`:              `conv_stride: the list has 2 numbers, but conv_dim has 7: need one for each layer`,
		`{"model_type": "wav2vec2", "conv_dim": 512}`:                    `conv_dim: 512: need a list of whole numbers`,
		`{"model_type": "wav2vec2", "num_conv_pos_embedding_groups": 5}`: `num_conv_pos_embedding_groups: 5: need a number that divides hidden_size, 768`,
		`{"model_type": "wav2vec2", "conv_dim": [` + strings.Repeat("1,", 64) +
			`1]}`: `conv_dim: the list has 65 numbers: need at most 64`,
	} {
		_, err := Parse("a/config.json", []byte(config))
		require.EqualError(t, err, "a/config.json: "+want, config)
		var format *input.FormatError
		require.ErrorAs(t, err, &format)
	}
}

func TestSyntaxErrorsNameTheLine(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type": `:          "a/config.json:1: not JSON: unexpected end of JSON input",
		"{\n\"model_type\": bert}": "a/config.json:2: not JSON: invalid character 'b' looking for beginning of value",
	} {
		_, err := Parse("a/config.json", []byte(config))
		require.EqualError(t, err, want)
	}
}

func TestFilesThatCannotBeReadAreNamed(t *testing.T) {
	_, err := Open("")
	require.EqualError(t, err, "hf:: the path after the colon is missing; write --model hf:path/to/config.json")
	_, err = Open(filepath.Join(t.TempDir(), "none.json"))
	require.ErrorContains(t, err, "none.json: does not exist")
	_, err = Open(t.TempDir())
	require.ErrorContains(t, err, "config.json: does not exist")
	large := filepath.Join(t.TempDir(), "large.json")
	require.NoError(t, os.WriteFile(large, make([]byte, mostBytes+1), 0o600))
	_, err = Open(large)
	require.ErrorContains(t, err, "large.json: the file is larger than 16 MiB, so it is no configuration; name the model's config.json")
}

// Cases of a configuration have rules, too.
func TestWrongCasesAreExplained(t *testing.T) {
	for _, tc := range []struct {
		config string
		c      models.Case
		want   string
	}{
		{
			`{"model_type": "bert"}`,
			models.Case{Settings: models.Settings{"seq-len": 513}},
			"hf:it: seq-len: 513 is out of range: tokens of a sequence (max_position_embeddings of the " +
				"configuration), from 1 to 512",
		},
		{
			`{"model_type": "roberta", "max_position_embeddings": 514}`,
			models.Case{Settings: models.Settings{"seq-len": 513}},
			"hf:it: seq-len: 513 is out of range: tokens of a sequence (max_position_embeddings of the " +
				"configuration), from 1 to 512",
		},
		{
			`{"model_type": "bert"}`,
			models.Case{Task: "causal-lm"},
			`hf:it: task: the model has no task "causal-lm"; use one of classification, masked-lm, token-classification`,
		},
		{
			`{"model_type": "bert"}`,
			models.Case{Settings: models.Settings{"classes": 5}},
			"hf:it: classes: has no influence on task masked-lm",
		},
		{
			`{"model_type": "gpt2"}`,
			models.Case{Settings: models.Settings{"padding": 1, "packed": 1}},
			"hf:it: packed: sequences with a padding mask cannot hold several texts each; leave out --set padding, or " +
				"--set packed",
		},
		{
			`{"model_type": "vit"}`,
			models.Case{Settings: models.Settings{"image-size": 230}},
			"hf:it: image-size: 230 is not a multiple of patch_size 16",
		},
		{
			`{"model_type": "wav2vec2", "conv_dim": [1, 1, 1], "conv_stride": [4096, 2, 1], "conv_kernel": [1, 1, 3]}`,
			models.Case{Settings: models.Settings{"audio-seconds": 1}},
			"hf:it: audio-seconds: 1 are too short: convolution 3 has a kernel of 3 and gets 2 samples",
		},
	} {
		_, err := model(t, tc.config).Complete(tc.c)
		require.EqualError(t, err, tc.want)
		var wrong *models.CaseError
		require.ErrorAs(t, err, &wrong)
	}
}

// A decoder without a padding token classifies single rows only.
func TestClassifiersOfBatchesNeedAPaddingToken(t *testing.T) {
	m := model(t, `{"model_type": "gpt2", "n_layer": 1}`)
	c := models.Case{Task: classification, Batch: 1, Settings: models.Settings{"seq-len": 8}}
	_, err := m.Record(c, testGPU, models.Options{})
	require.NoError(t, err)
	c.Batch = 2
	_, err = m.Record(c, testGPU, models.Options{})
	require.ErrorContains(t, err, "Cannot handle batch sizes > 1 if no padding token is defined")
}

// FuzzParse: whatever a file says, there is an error or a model, whose configuration makes the same model once more,
// and whose step, if it is a small one, can be recorded.
func FuzzParse(f *testing.F) {
	for _, config := range small {
		f.Add([]byte(config))
	}
	data, err := os.ReadFile(filepath.Join("testdata", "configs", "roberta-untied", configName))
	require.NoError(f, err)
	f.Add(data)
	f.Add([]byte(
		`{"model_type": "vit", "image_size": [32, 32], "patch_size": 16, "num_hidden_layers": 1, "qkv_bias": false}`))
	f.Add(
		[]byte(
			`{"model_type": "qwen2", "num_hidden_layers": 1, "layer_types": ["sliding_attention"], "use_sliding_window": true}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse("config.json", data)
		if err != nil {
			require.ErrorAs(t, err, new(*input.FormatError))
			return
		}
		again, err := Source().Restore(m.Name, m.Description.Text())
		require.NoError(t, err)
		require.Equal(t, m.Description, again.Description)
		for _, task := range m.Tasks {
			c, err := m.Complete(models.Case{
				Task: task, Batch: 1,
				Settings: shared(m, models.Settings{"seq-len": 1, "audio-seconds": 1}),
			})
			if err != nil {
				require.ErrorAs(t, err, new(*models.CaseError))
				continue
			}
			trainer, err := m.Build(c)
			require.NoError(t, err)
			counts := trainer.Counts()
			require.Positive(t, counts.Total)
			require.LessOrEqual(t, counts.Trainable, counts.Total)
			const parameters = 50_000_000 // and so few layers
			if counts.Total > parameters {
				continue
			}
			if r, err := m.Record(c, testGPU, models.Options{Steps: 1}); err == nil {
				require.NoError(t, r.Program.Validate())
			}
		}
	})
}

// refusal returns what is reported of a type that vprof has no model for the architecture.
func refusal(kind string) string {
	return `model_type: vprof has no model for the architecture "` + kind + `"; "vprof run -- python train.py" measures your training ` +
		`script on a simulated GPU, and "vprof capture hf:a/config.json -o model.pt2" makes a file for the other commands`
}

// Types that few examples of public trainers use (bench/reference/data/tails.json) name the commands that answer.
func TestRareTypesNameTheCommandsThatAnswer(t *testing.T) {
	for _, kind := range strings.Fields("afmoe apertus dbrx ernie4_5 exaone4 falcon falcon_h1 gemma3n gemma3n_text glm " +
		"glm4 gptj granitemoe granitemoehybrid granitemoeshared hunyuan_v1_dense hyperclovax internvl jamba " +
		"kimi_linear lfm2 lfm2_moe lfm2_vl mamba mimo minimax_m2 mistral4 mpt olmo olmo2 olmo3 olmoe phi stablelm " +
		"voxtral") {
		_, err := Parse("a/config.json", []byte(`{"model_type": "`+kind+`"}`))
		require.EqualError(t, err, "a/config.json: "+refusal(kind))
	}
}
