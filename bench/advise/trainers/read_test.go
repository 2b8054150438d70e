package trainers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/golden"
	"github.com/vprof/vprof/internal/input"
)

// examples are trainings in the style of each trainer: the files of one.
var examples = [][]string{
	{"axolotl-lora.yaml"},
	{"axolotl-qlora.yml"},
	{"axolotl-full-zero.yaml"},
	{"axolotl-mesh.yaml"},
	{"llamafactory-lora.yaml"},
	{"llamafactory-full.json"},
	{"llamafactory-qlora.yaml"},
	{"torchtune-lora.yaml"},
	{"torchtune-full.yaml"},
	{"torchtitan-8b.toml"},
	{"torchtitan-70b.toml"},
	{"swift.sh"},
	{"trl.yaml"},
	{"arguments.json"},
	{"launch.sh"},
	{"trl.yaml", "accelerate.yaml"},
	{"arguments.json", "zero2.json"},
}

func TestExamplesAreReadAsSettings(t *testing.T) {
	var out bytes.Buffer
	for _, files := range examples {
		var paths []string
		for _, f := range files {
			paths = append(paths, filepath.Join("testdata", "configs", f))
		}
		c, err := Open(paths)
		require.NoError(t, err, "%v", files)
		fmt.Fprintf(&out, "== %s: %s %s, %d keys matter, %d do not\nmodel %s\n", strings.Join(files, " + "), c.Trainer,
			c.Version, c.Mapped, c.Harmless, c.Model.Name)
		for _, s := range c.Settings {
			fmt.Fprintf(&out, "--%s %s\t%s\n", s.Flag, s.Value, filepath.ToSlash(s.From.String()))
		}
		for _, n := range c.Notes {
			fmt.Fprintf(&out, "note %s\n", filepath.ToSlash(n))
		}
		for _, k := range c.Unknown {
			fmt.Fprintf(&out, "unknown %s\n", filepath.ToSlash(k.String()))
		}
	}
	golden.Equal(t, "testdata/settings.txt", out.Bytes())
}

// one writes a configuration and reads it.
func one(t *testing.T, name, content string) (*Config, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	return Open([]string{name})
}

func TestBadConfigurationsAreNamedByFileLineAndKey(t *testing.T) {
	axolotl := "base_model: a/b\nmicro_batch_size: 1\nsequence_len: 512\nlora_r: 8\n"
	for name, k := range map[string]struct{ file, content, want string }{
		"contradiction": {
			"c.yaml", axolotl + "adapter: qlora\n",
			"c.yaml:5: adapter: qlora needs load_in_4bit: true",
		},
		"contradiction, false": {
			"c.yaml", axolotl + "adapter: qlora\nload_in_4bit: no\n",
			"c.yaml:5: adapter: qlora needs load_in_4bit",
		},
		"quantized twice": {
			"c.yaml", axolotl + "adapter: lora\nload_in_4bit: true\nload_in_8bit: true\n",
			"c.yaml:6: load_in_4bit: load_in_8bit is on, too",
		},
		"quantized and full": {
			"c.yaml", axolotl + "load_in_4bit: true\n",
			"c.yaml:5: load_in_4bit: a model in 4 bits needs an adapter",
		},
		"qlora in 8 bits": {
			"c.yaml", axolotl + "adapter: qlora\nload_in_8bit: true\n",
			"c.yaml:6: load_in_8bit: axolotl cannot train qlora",
		},
		"zero3 and 4 bits": {
			"c.yaml", axolotl + "adapter: qlora\nload_in_4bit: true\ndeepspeed: zero3\n",
			"c.yaml:7: deepspeed: ZeRO-3 does not share out",
		},
		"swift zero3": {"c.json", `{"model": "a/b", "tuner_type": "lora",` + "\n" +
			`"quant_bits": 4, "deepspeed": "zero3"}`, "c.json:2: deepspeed: ZeRO-3"},
		"full and quantized": {
			"c.yaml",
			"model_name_or_path: a\nstage: sft\nfinetuning_type: full\nquantization_bit: 4\n",
			"c.yaml:4: quantization_bit: a quantized model cannot be trained as a whole",
		},
		"backward accumulates": {
			"c.yaml",
			"model: {_component_: torchtune.models.llama3.llama3_8b}\noptimizer: {_component_: " +
				"torch.optim.AdamW}\noptimizer_in_bwd: True\ngradient_accumulation_steps: 8\n",
			"c.yaml:4: gradient_accumulation_steps: torchtune takes optimizer_in_bwd without",
		},
		"beyond vprof": {
			"c.yaml", axolotl + "rl: grpo\ntrl: {async_prefetch: true}\n",
			`c.yaml:6: trl.async_prefetch: is true: vprof records the trainer that generates and trains in turn`,
		},
		"unfrozen and adapters": {
			"c.yaml", axolotl + "adapter: lora\nunfrozen_parameters:\n  - ^model.layers\n",
			"c.yaml:6: unfrozen_parameters: axolotl freezes all parameters but these after",
		},
		"unfrozen, not a regex": {
			"c.yaml", axolotl + "unfrozen_parameters:\n  - (\n",
			"c.yaml:5: unfrozen_parameters: has a regular expression",
		},
		"toml": {
			"c.toml", "[model]\nflavor = \"8B\"\n[training]\nseq_len = \n",
			"c.toml:4: is not TOML: unexpected character",
		},
		"toml twice": {
			"c.toml", "[training]\nseq_len = 1\nseq_len = 2\n",
			"c.toml:3: is not TOML: ",
		},
		"pipeline of torchtitan": {
			"c.toml", "[model]\nflavor = \"8B\"\n[training]\nseq_len = 8\n" +
				"[parallelism]\npipeline_parallel_degree = 2\n",
			"c.toml:6: parallelism.pipeline_parallel_degree: is 2: vprof records pipelines of one GPU a stage",
		},
		"torchtitan in Python": {
			"c.sh", "torchrun -m torchtitan.train --module llama3 --config llama3_8b\n",
			"c.sh:1: module: is \"llama3\": torchtitan has its configurations in Python from 0.3 on",
		},
		"Megatron": {
			"c.sh", "torchrun pretrain_gpt.py --tensor-model-parallel-size 2\n",
			"c.sh: is of Megatron, whose layers",
		},
		"Megatron-Bridge": {
			"c.yaml", "model:\n  tensor_model_parallel_size: 2\n",
			"c.yaml: is of Megatron, whose layers",
		},
		"unknown word": {
			"c.yaml", axolotl + "optimizer: adamw_torch_fuse\n",
			`c.yaml:5: optimizer: vprof does not know what "adamw_torch_fuse" needs; it knows adamw_torch_fused`,
		},
		"not a number": {
			"c.yaml", "base_model: a/b\nmicro_batch_size: many\n",
			`c.yaml:2: micro_batch_size: "many" is not a whole number from 1 on`,
		},
		"zero": {
			"c.yaml", "base_model: a/b\nmicro_batch_size: 0\n",
			`c.yaml:2: micro_batch_size: 0 is not a whole number`,
		},
		"a group": {
			"c.yaml", "base_model: a/b\nmicro_batch_size: {a: 1}\n",
			"c.yaml:2: micro_batch_size: is the group, where a value is expected",
		},
		"a variable": {
			"c.yaml", "base_model: ${MODEL}\nmicro_batch_size: 1\n",
			`c.yaml:1: base_model: "${MODEL}" is a variable`,
		},
		"a script's variable": {
			"c.sh", "swift sft --model $MODEL --tuner_type lora\n",
			"c.sh:1: model: \"$MODEL\" is a variable",
		},
		"no file": {
			"c.yaml", axolotl + "deepspeed: no.json\n",
			"c.yaml:5: deepspeed: no.json: no such file or directory",
		},
		"unknown trainer": {
			"c.yaml", "base_modell: x\nlayers: 3\n",
			"c.yaml: has the keys of no trainer that vprof knows: axolotl, torchtune,",
		},
		"near a trainer": {
			"c.yaml", "base_modell: x\nlayers: 3\n",
			"line 1: did you mean base_model for base_modell?",
		},
		"strategy alone": {
			"c.json", `{"zero_optimization": {"stage": 2}}`,
			"c.json: says how several GPUs share the work and not what is trained",
		},
		"not YAML":      {"c.yaml", "a: 1\n b: [\n", "c.yaml:2: is not YAML:"},
		"not JSON":      {"c.json", "{\n\"a\": ,}", "c.json:2: is not JSON:"},
		"two documents": {"c.yaml", "a: 1\n---\nb: 1\n", "c.yaml:2: holds several documents"},
		"empty":         {"c.yaml", "# nothing\n", "c.yaml: is empty"},
		"a list":        {"c.yaml", "- a\n", "c.yaml:1: is the list, not a group of keys"},
		"bytes":         {"c.yaml", "a: \xff\n", "c.yaml: is not UTF-8 text"},
		"bomb": {
			"c.yaml",
			"a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d " +
				"[*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d]\n", "nests or repeats its values too often",
		},
		"a loop":    {"c.yaml", "a: &a {b: *a}\n", "c.yaml:1: "},
		"no launch": {"c.sh", "echo hello\n", "c.sh: starts no trainer that vprof knows"},
		"two launches": {
			"c.sh", "swift sft --model a\n\nswift sft --model b\n",
			"c.sh:3: starts a second trainer",
		},
		"open quote": {"c.sh", "swift sft \\\n --model 'a\n", "c.sh:2: a quote is not closed"},
		"chunks and a fused loss": {
			"c.yaml", axolotl + "chunked_cross_entropy: true\ncut_cross_entropy: true\n",
			"c.yaml:5: chunked_cross_entropy: another fused loss is on, too",
		},
		"kept, not recomputed": {
			"c.yaml", axolotl + "selective_checkpointing: true\n",
			"c.yaml:5: selective_checkpointing: needs gradient_checkpointing",
		},
		"kept, unknown": {
			"c.yaml",
			axolotl + "gradient_checkpointing: true\nselective_checkpointing: {save: [aten::cumsum]}\n",
			"c.yaml:6: selective_checkpointing.save: is aten::cumsum: vprof keeps results of attention",
		},
		"kept products": {
			"c.yaml",
			axolotl + "adapter: lora\ngradient_checkpointing: true\nselective_checkpointing: {save: [attention, " +
				"'aten::mm']}\n", "c.yaml:7: selective_checkpointing.save: axolotl refuses products",
		},
		"two ways of recomputing": {
			"c.yaml",
			"model: {_component_: torchtune.models.phi3.lora_phi3_mini}\noptimizer: {_component_: " +
				"torch.optim.AdamW}\nac_mode: full\nenable_activation_checkpointing: True\n",
			"c.yaml:3: ac_mode: with enable_activation_checkpointing torchtune applies neither",
		},
		"recomputing, how often": {
			"c.yaml",
			"model: {_component_: torchtune.models.phi3.lora_phi3_mini}\noptimizer: {_component_: " +
				"torch.optim.AdamW}\nac_mode: selective\n", "c.yaml:3: ac_mode: needs ac_option",
		},
		"look-ahead": {
			"c.yaml", axolotl + "adapter: lora\nlora_target_modules: 'model(?!.vision).*_proj'\n",
			"c.yaml:6: lora_target_modules: is a regular expression that vprof cannot read",
		},
		"expressions": {
			"c.yaml", axolotl + "adapter: lora\nlora_target_modules: ['.*_proj', up_proj]\n",
			"c.yaml:6: lora_target_modules: lists regular expressions, which peft takes for names",
		},
		"no answer": {
			"c.sh", "swift rlhf --model a --rlhf_type grpo --max_completion_length 0",
			`c.sh:1: max_completion_length: "0" is not a whole number from 1 on`,
		},
		"all of the board": {
			"c.sh", "trl grpo --model_name_or_path a --use_vllm --vllm_gpu_memory_utilization 1.5",
			`c.sh:1: vllm_gpu_memory_utilization: "1.5" is not a part of the board`,
		},
		"a method": {
			"c.sh", "swift rlhf --model a --rlhf_type ppo",
			"c.sh:1: rlhf_type: is ppo: vprof does not record the value model",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := one(t, k.file, k.content)
			require.ErrorContains(t, err, k.want)
			require.True(t, input.Bad(err), "%v must be bad input", err)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func setting(c *Config, flag string) string {
	for _, s := range c.Settings {
		if s.Flag == flag {
			return s.Value
		}
	}
	return ""
}

// What generates the answers, and how many steps learn from them, says which
// log-probabilities come before the step and what is left of the board.
func TestGeneratedAnswersAreAnObjective(t *testing.T) {
	for text, want := range map[string][3]string{
		"swift rlhf --model a --rlhf_type grpo --max_length 1000 --max_completion_length 24": {
			"grpo:completion=24,reference,old,as=ms-swift", "1024", "",
		},
		"swift rlhf --model a --rlhf_type grpo --beta 0.0": {
			"grpo:completion=512,old,as=ms-swift", "1024", "",
		},
		"swift rlhf --model a --rlhf_type grpo --use_vllm true --vllm_mode colocate": {
			"grpo:completion=512,reference,old,as=ms-swift", "1024", "10%",
		},
		"swift rlhf --model a --rlhf_type grpo --use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization " +
			"0.4": {"grpo:completion=512,reference,old,as=ms-swift", "1024", "60%"},
		"swift rlhf --model a --rlhf_type grpo --use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization " +
			"0.4 --sleep_level 1": {"grpo:completion=512,reference,old,as=ms-swift", "1024", ""},
		"swift rlhf --model a --rlhf_type grpo --use_vllm true --vllm_mode server --vllm_gpu_memory_utilization 0.4": {
			"grpo:completion=512,reference,old,as=ms-swift", "1024", "",
		},
		"trl grpo --model_name_or_path a": {"grpo:completion=512", "1024", ""},
		"trl rloo --model_name_or_path a": {"grpo:completion=512,reference,old", "1024", ""},
		"python -m trl.scripts.rloo --model_name_or_path a --beta 0.0 --max_completion_length 64": {
			"grpo:completion=64,old", "576", "",
		},
		"trl grpo --model_name_or_path a --beta 0.04 --use_vllm": {
			"grpo:completion=512,reference,old", "1024", "70%",
		},
		"trl grpo --model_name_or_path a --num_iterations 2 --max_prompt_length 100 --max_completion_length 28": {
			"grpo:completion=28,old", "128", "",
		},
		"trl grpo --model_name_or_path a --gradient_accumulation_steps 8 --steps_per_generation 4 " +
			"--vllm_gpu_memory_utilization 0.5": {"grpo:completion=512", "1024", ""},
		"trl grpo --model_name_or_path a --gradient_accumulation_steps 4 --steps_per_generation 8": {
			"grpo:completion=512,old", "1024", "",
		},
	} {
		c, err := one(t, "c.sh", text+"\n")
		require.NoError(t, err, text)
		require.Equal(t, want, [3]string{
			setting(c, "objective"), setting(c, "seq-len"),
			setting(c, "gpu-memory"),
		}, text)
	}
	c, err := one(t, "c.yaml",
		"base_model: a/b\nmicro_batch_size: 1\nsequence_len: 512\nrl: gdpo\ntrl: {beta: 0.001, "+
			"max_completion_length: 128, use_vllm: true}\n")
	require.NoError(t, err)
	require.Equal(t, "grpo:completion=128,reference,old", setting(c, "objective"))
	require.Equal(t, "512", setting(c, "seq-len"))
	require.Empty(t, setting(c, "gpu-memory"), "axolotl takes a server")
}

func TestTextsThatBelongTogetherAreAnObjective(t *testing.T) {
	for text, want := range map[string][2]string{
		"swift sft --model a --task_type embedding --loss_type infonce": {
			"embedding", "",
		},
		"swift sft --model a --task_type embedding --loss_type cosine_similarity --padding_free true": {
			"embedding:pairs,unpadded", "",
		},
		"MAX_NEGATIVE_SAMPLES=3 swift sft --model a --task_type generative_reranker --loss_type listwise_reranker": {
			"reranker:negatives=3", "",
		},
		"swift sft --model a --task_type reranker --loss_type pointwise_reranker": {
			"reranker",
			"classification",
		},
		"swift rlhf --rlhf_type dpo --model a --loss_type sigmoid bco_pair sft --rpo_alpha 0.1": {
			"dpo:as=ms-swift", "",
		},
		"swift rlhf --rlhf_type dpo --model a --packing true --attn_impl flash_attn": {"dpo:packed,as=ms-swift", ""},
		"swift sft --model a --enable_dft_loss true":                                 {"dft:as=ms-swift", ""},
		"trl sft --model_name_or_path a --dataset_name d --loss_type dft":            {"dft:as=trl", ""},
	} {
		c, err := one(t, "c.sh", text+"\n")
		require.NoError(t, err, text)
		require.Equal(t, want, [2]string{setting(c, "objective"), setting(c, "task")}, text)
	}
}

func TestTeachersAreFound(t *testing.T) {
	const kd = "model: {_component_: torchtune.models.llama3_2.lora_llama3_2_1b}\nteacher_model: {_component_: " +
		"torchtune.models.llama3_1.llama3_1_8b}\noptimizer: {_component_: torch.optim.AdamW}\n"
	c, err := one(t, "c.yaml", kd+
		"loss: {_component_: torchtune.modules.loss.CEWithChunkedOutputLoss}\nkd_loss: {_component_: "+
		"torchtune.modules.loss.ForwardKLWithChunkedOutputLoss}\n")
	require.NoError(t, err)
	require.Equal(t, "meta-llama/Meta-Llama-3.1-8B-Instruct", c.Teacher.Name)
	require.Equal(t, "kd:chunks=8", setting(c, "objective"))
	require.Empty(t, setting(c, "chunked-loss"))
	g, err := one(t, "c.sh",
		"swift rlhf --model a/b --rlhf_type gkd --teacher_model c/d --max_length 1000 --max_completion_length 24\n")
	require.NoError(t, err)
	require.Equal(t, [3]string{"c/d", "gkd:completion=24", "1024"},
		[3]string{g.Teacher.Name, setting(g, "objective"), setting(g, "seq-len")})
	_, err = one(t, "c.sh", "swift rlhf --model a/b --rlhf_type gkd --max_length 1000\n")
	require.ErrorContains(t, err, "c.sh:1: rlhf_type: names no teacher_model")
	_, err = one(t, "c.yaml", kd+"kd_loss: {_component_: torchtune.modules.loss.ForwardKLWithChunkedOutputLoss}\n")
	require.ErrorContains(t, err, "c.yaml:4: kd_loss._component_: the scores come in chunks for this loss")
}

func TestUnfrozenParametersAreAnExpression(t *testing.T) {
	c, err := one(t, "c.yaml",
		"base_model: a/b\nmicro_batch_size: 1\nsequence_len: 512\nunfrozen_parameters:\n  - "+
			"^lm_head.weight$[:32000]\n  - model.layers.2[0-9]+.mlp\n  - a.+b\n")
	require.NoError(t, err)
	require.Equal(t, `^(?:^lm_head\.weight$)|^(?:model\.layers\.2[0-9]+\.mlp)|^(?:a.+b)`, setting(c, "train-only"))
}

// DeepSpeed's options become those of the strategy, and its engine trains in the type of
// the weights.
func TestDeepSpeedsFileIsTheStrategy(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("a.json",
		[]byte(`{"output_dir": "o", "bf16": true, "per_device_train_batch_size": 4}`), 0o600))
	for zero, want := range map[string]string{
		`"stage": 1`: "zero1:engine=deepspeed",
		`"stage": 2, "reduce_bucket_size": 2e8, "overlap_comm": true, "stage3_prefetch_bucket_size": 7`:     "zero2:bucket=200000000,overlap=true",
		`"stage": 2, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}`:            "zero2:offload=optimizer",
		`"stage": 3, "reduce_bucket_size": "auto", "sub_group_size": 0, "stage3_max_live_parameters": 1000`: "zero3:bucket=auto,live=1000,part=1",
		`"stage": 3, "overlap_comm": true, "contiguous_gradients": true`:                                    "zero3",
		`"stage": 3, "memory_efficient_linear": false`:                                                      "zero3:linear=torch",
		`"stage": 3, "overlap_comm": false, "contiguous_gradients": false`:                                  "zero3:overlap=false,contiguous=false",
		`"stage": 2, "overlap_comm": false, "cpu_offload": true, "contiguous_gradients": true`:              "zero2:offload=optimizer",
		`"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}`:            "zero3:offload=all",
		`"stage": 3, "offload_param": {"device": "cpu"}, "stage3_param_persistence_threshold": "auto"`:      "zero3:persist=auto,offload=params",
	} {
		require.NoError(t, os.WriteFile("d.json", []byte(`{"zero_optimization": {`+zero+`}}`), 0o600))
		c, err := Open([]string{"a.json", "d.json"})
		require.NoError(t, err, zero)
		require.Equal(t, want, setting(c, "strategy"))
		require.Equal(t, "none", setting(c, "amp"))
		require.Equal(t, "bf16", setting(c, "weights"))
	}
	require.NoError(t, os.WriteFile("d.json",
		[]byte("{\"zero_optimization\": {\"stage\": 2,\n\"reduce_bucket_size\": \"many\"}}"), 0o600))
	_, err := Open([]string{"a.json", "d.json"})
	require.ErrorContains(t, err, "d.json:2: zero_optimization.reduce_bucket_size: many is no number of elements")
	require.NoError(t, os.WriteFile("d.json",
		[]byte("{\"zero_optimization\": {\"stage\": 2,\n\"contiguous_gradients\": false}}"), 0o600))
	_, err = Open([]string{"a.json", "d.json"})
	require.ErrorContains(t, err,
		"d.json:2: zero_optimization.contiguous_gradients: vprof records gradients of stages 1 and 2 that are "+
			"copied to a bucket; take true")
	for stage, refused := range map[int]bool{1: true, 2: false, 3: true} {
		require.NoError(t, os.WriteFile("d.json", fmt.Appendf(nil,
			`{"zero_optimization": {"stage": %d}, "data_types": {"grad_accum_dtype": "fp32"}}`, stage), 0o600))
		_, err = Open([]string{"a.json", "d.json"})
		if refused {
			require.ErrorContains(t, err,
				"data_types.grad_accum_dtype: vprof records gradients of stages 1 and 3 that are added up in the "+
					"type of the weights")
		} else {
			require.NoError(t, err)
		}
	}
}

// A file of axolotl that says nothing of its precision trains as one that says auto.
func TestAxolotlTrainsInBF16ByItself(t *testing.T) {
	const file = "base_model: a/b\nmicro_batch_size: 1\nsequence_len: 512\n"
	for more, want := range map[string]string{
		"": "bf16", "bf16: auto\n": "bf16", "bf16: false\n": "none",
		"bf16:\n": "none", "bf16: false\nfp16: true\n": "fp16", "fp16: true\n": "fp16",
	} {
		c, err := one(t, "c.yaml", file+more)
		require.NoError(t, err, more)
		require.Equal(t, want, setting(c, "amp"), more)
	}
}

func TestFilesThatDisagreeAreRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("a.json",
		[]byte("{\"output_dir\": \"o\", \"bf16\": true,\n\"per_device_train_batch_size\": 4}"), 0o600))
	require.NoError(t, os.WriteFile("ds.json",
		[]byte("{\"zero_optimization\": {\"stage\": 2},\n\n\"train_micro_batch_size_per_gpu\": 8}"), 0o600))
	_, err := Open([]string{"a.json", "ds.json"})
	require.ErrorContains(t, err,
		"ds.json:3: train_micro_batch_size_per_gpu: says 8, and a.json:2: per_device_train_batch_size says 4; make "+
			"them agree")
	_, err = Open([]string{"a.json", "a.json"})
	require.ErrorContains(t, err, "plan one training at a time")
}

func TestAnchorsMergesAndOldBooleansAreResolved(t *testing.T) {
	c, err := one(t, "c.yaml",
		"base: &b {micro_batch_size: 4, sequence_len: 256}\n<<: *b\nbase_model: x/y\nsequence_len: "+
			"512\ngradient_checkpointing: on\nmicro_batch_size: 2\nmicro_batch_size: 3\n")
	require.NoError(t, err)
	require.Equal(t, "3", setting(c, "batch"))
	require.Equal(t, "512", setting(c, "seq-len"))
	require.Equal(t, "reentrant", setting(c, "checkpointing"))
	require.Equal(t, []UnknownKey{{Key: Key{"c.yaml", 1, "base"}}}, c.Unknown)
	require.Contains(t, c.Notes, "c.yaml:7: micro_batch_size stands in line 6, too; the trainer takes the later one")
}

func TestAdaptersHaveTheirOptions(t *testing.T) {
	const begin = "base_model: x/y\nmicro_batch_size: 1\nadapter: lora\nlora_r: 4\n"
	for more, want := range map[string]string{
		"lora_target_modules: 'model.layers.[\\d]+.(mlp|self_attn).(up|q)_proj'\n":                  "r=4,match=model.layers.[\\d]+.(mlp|self_attn).(up|q)_proj",
		"lora_target_modules: [q_proj, v_proj]\nlora_modules_to_save:\n- embed_tokens\n- lm_head\n": "r=4,save=embed_tokens+lm_head,target=q_proj+v_proj",
		"lora_target_linear: true\nlora_modules_to_save: []\n":                                      "r=4,target=all-linear",
	} {
		c, err := one(t, "c.yaml", begin+more)
		require.NoError(t, err)
		require.Equal(t, want, setting(c, "lora"))
	}
}

func TestShardingHasItsOptions(t *testing.T) {
	c, err := one(t, "c.yaml",
		"base_model: x/y\nmicro_batch_size: 1\nbf16: true\ndp_replicate_size: 2\nfsdp_version: 2\nfsdp_config:\n  "+
			"reshard_after_forward: false\n  transformer_layer_cls_to_wrap: L\n")
	require.NoError(t, err)
	require.Equal(t, "fsdp2:mp=bf16,reduce=bf16,reshard=false,replicate=2", setting(c, "strategy"))
	require.Equal(t, "fp32", setting(c, "weights"), "accelerate casts what is trained")
}

func TestCommandLinesAreRead(t *testing.T) {
	c, err := Command([]string{
		"accelerate", "launch", "--num_processes", "2", "--mixed_precision=bf16", "train.py",
		"--model_name_or_path", "a/b", "--output_dir=o", "--per-device-train-batch-size", "3",
		"--gradient_checkpointing",
	})
	require.NoError(t, err)
	require.Equal(t, "transformers", c.Trainer)
	require.Equal(t, "a/b", c.Model.Name)
	for flag, want := range map[string]string{"batch": "3", "gpus": "2", "amp": "bf16", "checkpointing": "true"} {
		require.Equal(t, want, setting(c, flag), flag)
	}
	require.False(t, c.Writable())
	text, err := c.Paste(Values{Batch: 6, Accumulate: 2})
	require.NoError(t, err)
	require.Equal(t, "--per_device_train_batch_size 6 --gradient_accumulation_steps 2 --gradient_checkpointing false",
		text)
	_, err = Command([]string{"ls", "-l"})
	require.ErrorContains(t, err, "command line: starts no trainer that vprof knows")
}

func TestArgumentsStandOverTheFileThatACommandNames(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("a.yaml",
		[]byte("model_name_or_path: x/y\nstage: sft\ncutoff_len: 512\nper_device_train_batch_size: 4\n"), 0o600))
	c, err := Command([]string{"llamafactory-cli", "train", "a.yaml", "per_device_train_batch_size=1"})
	require.NoError(t, err)
	require.Equal(t, "1", setting(c, "batch"))
	require.Equal(t, "512", setting(c, "seq-len"))
}

func TestModelsAreFoundInFoldersAndCaches(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, p := range []string{
		"cfg/local", "hub/models--x--y/refs", "hub/models--x--y/snapshots/c0ffee",
		"scope/models/m/n___5",
	} {
		require.NoError(t, os.MkdirAll(p, 0o700))
	}
	for _, p := range []string{
		"cfg/local/config.json", "hub/models--x--y/snapshots/c0ffee/config.json",
		"scope/models/m/n___5/config.json",
	} {
		require.NoError(t, os.WriteFile(p, []byte("{}"), 0o600))
	}
	require.NoError(t, os.WriteFile("hub/models--x--y/refs/main", []byte("c0ffee\n"), 0o600))
	t.Setenv("HF_HUB_CACHE", filepath.Join(dir, "hub"))
	t.Setenv("MODELSCOPE_CACHE", filepath.Join(dir, "scope"))
	from := origin{"cfg/a.yaml", "base_model", 3}
	for name, want := range map[string]string{
		"local": "cfg/local/config.json", "x/y": filepath.Join(dir, "hub/models--x--y/snapshots/c0ffee/config.json"),
		"m/n.5":                         filepath.Join(dir, "scope/models/m/n___5/config.json"),
		filepath.Join(dir, "cfg/local"): filepath.Join(dir, "cfg/local/config.json"),
	} {
		got, err := Model{Name: name, from: from}.Find()
		require.NoError(t, err, name)
		require.Equal(t, want, got)
	}
	got, err := Model{Name: "x/y", Revision: "c0ffee", from: from}.Find()
	require.NoError(t, err)
	require.Contains(t, got, "c0ffee")
	_, err = Model{Name: "x/z", Revision: "v2", from: from}.Find()
	require.EqualError(t, err,
		"cfg/a.yaml:3: base_model: x/z: the model's config.json is not in this machine's caches; get it with: hf "+
			"download x/z config.json --revision v2")
	_, err = Model{Name: "../up", from: from}.Find()
	require.ErrorContains(t, err, "there is no config.json in the folder ../up")
}

func TestWrittenValuesAreReadAgain(t *testing.T) {
	for _, files := range examples {
		path := filepath.Join("testdata", "configs", files[0])
		c, err := Open([]string{path})
		require.NoError(t, err)
		v := Values{Batch: 7, Accumulate: 3, Checkpointing: setting(c, "checkpointing") == "false"}
		if setting(c, "optimizer-in-backward") != "" || c.table.Written["accumulate"] == "" {
			v.Accumulate = 1
		}
		if !c.Writable() {
			text, err := c.Paste(v)
			require.NoError(t, err)
			require.Contains(t, text, "_train_batch_size 7 ")
			continue
		}
		edits, err := c.Edits(v)
		require.NoError(t, err, path)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		after := spliced(t, path, data, edits)
		if after == nil {
			continue // a JSON file gets no new keys
		}
		d, err := parse(path, after)
		require.NoError(t, err)
		got, err := read([]*document{d})
		require.NoError(t, err, "%s\n%s", path, after)
		require.Equal(t, "7", setting(got, "batch"), path)
		require.Equal(t, strconv.Itoa(v.Accumulate), setting(got, "accumulate"), path)
		require.Equal(t, v.Checkpointing, setting(got, "checkpointing") != "false", path)
		again, err := got.Edits(v)
		require.NoError(t, err)
		require.Empty(t, again, "what the file says already stays")
	}
}

func TestEffectiveBatchCountsGPUs(t *testing.T) {
	c, err := Open([]string{filepath.Join("testdata", "configs", "swift.sh")})
	require.NoError(t, err)
	require.Equal(t, 2*4*4, c.Effective(4))
	require.True(t, slices.ContainsFunc(c.Settings, func(s Setting) bool {
		return s.Flag == "alloc-conf" && s.Value == "expandable_segments:True" && s.From.Line == 4
	}))
}

// A lever that is written into a trainer's file is read from it again, of all that tables
// know how to turn.
func TestLeversThatAreWrittenAreReadAgain(t *testing.T) {
	for trainer, text := range map[string]string{
		"axolotl": "base_model: x/y\nadapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: " +
			"true\nsequence_len: 64\nmicro_batch_size: 1\ngradient_accumulation_steps: 1\ngradient_checkpointing: " +
			"true\noptimizer: adamw_torch\n",
		"LLaMA-Factory": "model_name_or_path: x/y\nstage: sft\nfinetuning_type: lora\nlora_target: all\ncutoff_len: " +
			"64\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 1\n",
		"torchtune": "model:\n  _component_: torchtune.models.llama2.lora_llama2_7b\n  lora_attn_modules: " +
			"[q_proj]\n  lora_rank: 8\n  lora_alpha: 16\ntokenizer:\n  _component_: " +
			"torchtune.models.llama2.llama2_tokenizer\n  max_seq_len: 64\n" +
			"optimizer:\n  _component_: torch.optim.AdamW\nloss:\n  _component_: " +
			"torch.nn.CrossEntropyLoss\nbatch_size: 1\ngradient_accumulation_steps: " +
			"1\nenable_activation_checkpointing: true\ndtype: bf16\n",
		"ms-swift": "model: x/y\ntuner_type: lora\nlora_rank: 8\nmax_length: 64\nper_device_train_batch_size: " +
			"1\ngradient_accumulation_steps: 1\n",
		"transformers": "model_name_or_path: x/y\noutput_dir: out\nper_device_train_batch_size: " +
			"1\ngradient_accumulation_steps: 1\n",
		"TRL": "model_name_or_path: x/y\nuse_peft: true\nlora_target_modules: all-linear\nmax_length: " +
			"64\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 1\n",
	} {
		open := func(text string) *Config {
			d, err := parse("train.yaml", []byte(text))
			require.NoError(t, err)
			c, err := read([]*document{d})
			require.NoError(t, err, "%s\n%s", trainer, text)
			require.Equal(t, trainer, c.Trainer)
			return c
		}
		c := open(text)
		require.NotEmpty(t, c.table.Turned, trainer)
		for lever := range c.table.Turned {
			flag, value, _ := strings.Cut(lever, "=")
			require.True(t, c.Turns(flag))
			v := Values{
				Batch: 1, Accumulate: 1, Checkpointing: setting(c, "checkpointing") != "false",
				Levers: map[string]string{flag: value},
			}
			edits, err := c.Edits(v)
			require.NoError(t, err, "%s: %s", trainer, lever)
			got := open(string(spliced(t, "train.yaml", []byte(text), edits)))
			require.Equal(t, value, setting(got, flag), "%s: %s", trainer, lever)
			again, err := got.Edits(v)
			require.NoError(t, err, "%s: %s", trainer, lever)
			require.Empty(t, again, "%s: %s", trainer, lever)
		}
		_, err := c.Edits(Values{
			Batch: 1, Accumulate: 1, Checkpointing: true,
			Levers: map[string]string{"quantize": "int3"},
		})
		require.ErrorContains(t, err, "does not know how "+trainer+" is told --quantize int3")
	}
}

// Every trainer's key for torch.compile becomes the flag; a backend of which nothing is
// published is refused.
func TestTorchCompileIsAFlag(t *testing.T) {
	for name, k := range map[string]struct{ content, want string }{
		"axolotl": {"base_model: a/b\nmicro_batch_size: 1\ntorch_compile: true\n", "true"},
		"axolotl auto": {
			"base_model: a/b\nmicro_batch_size: 1\ntorch_compile: auto\ntorch_compile_backend: inductor\n",
			"true",
		},
		"axolotl off": {"base_model: a/b\nmicro_batch_size: 1\ntorch_compile: false\n", "false"},
		"torchtune": {"model: {_component_: torchtune.models.llama3.llama3_8b}\noptimizer: {_component_: " +
			"torch.optim.AdamW}\ncompile: True\n", "true"},
		"trl":       {"model_name_or_path: a/b\nmax_length: 64\ntorch_compile: true\n", "true"},
		"a backend": {"model_name_or_path: a/b\nmax_length: 64\ntorch_compile_backend: inductor\n", "true"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := one(t, "c.yaml", k.content)
			require.NoError(t, err)
			require.Equal(t, k.want, setting(c, "torch-compile"))
		})
	}
	_, err := one(t, "c.yaml", "model_name_or_path: a/b\nmax_length: 64\ntorch_compile_backend: tvm\n")
	require.ErrorContains(t, err, "torch_compile_backend: is tvm: vprof knows what published steps by Inductor need")
}

func TestTorchtunesOwnWaysAreSettings(t *testing.T) {
	c, err := one(t, "c.yaml",
		`model: {_component_: torchtune.models.phi3.lora_phi3_mini, lora_attn_modules: [q_proj, v_proj], lora_rank: 4, lora_alpha: 8, use_dora: True}
optimizer: {_component_: torch.optim.AdamW}
enable_activation_checkpointing: False
ac_mode: selective
ac_option: 2
dataset: {packed: True}
`)
	require.NoError(t, err)
	require.Equal(t, "r=4,alpha=8,dtype=weights,dora=torchtune,target=q_proj+v_proj", setting(c, "lora"))
	require.Equal(t, "every=2", setting(c, "checkpointing"))
	require.Equal(t, "packed", c.Batching())
	var set []string
	for _, s := range c.Settings {
		if s.Flag == "set" {
			set = append(set, s.Value)
		}
	}
	require.Equal(t, []string{"repeated-heads=1", "separate-projections=1"}, set)
}

func TestResultsThatAreKeptAreNamed(t *testing.T) {
	const base = "base_model: a/b\nmicro_batch_size: 1\ngradient_checkpointing: true\n"
	for text, want := range map[string]string{
		"selective_checkpointing: true\n":                                   "selective=sdpa",
		"selective_checkpointing: {save: [attention, 'aten::mm']}\n":        "selective=sdpa,mm",
		"selective_checkpointing:\n  save: [attention]\n  offload: false\n": "selective=sdpa",
		"selective_checkpointing: false\n":                                  "reentrant",
		"gradient_checkpointing_kwargs: {use_reentrant: false}\n":           "true",
	} {
		c, err := one(t, "c.yaml", base+text)
		require.NoError(t, err, text)
		require.Equal(t, want, setting(c, "checkpointing"), text)
	}
}

func TestEvaluationIsASetting(t *testing.T) {
	const transformers = `{"output_dir": "a", "optim": "sgd", "per_device_train_batch_size": 1, `
	const axolotl = "base_model: a/b\nmicro_batch_size: 2\nsequence_len: 512\n"
	const torchtune = "model: {_component_: torchtune.models.llama3.llama3_8b}\noptimizer: {_component_: " +
		"torch.optim.AdamW}\nbatch_size: 4\n"
	for name, k := range map[string]struct{ file, content, want string }{
		"none":          {"c.json", transformers + `"eval_strategy": "no", "per_device_eval_batch_size": 4}`, ""},
		"the Trainer's": {"c.json", transformers + `"eval_strategy": "steps"}`, "batch=8"},
		"its own batch": {"c.json", transformers + `"do_eval": true, "per_device_eval_batch_size": 4}`, "batch=4"},
		"scores": {
			"c.json", transformers + `"do_eval": true, "eval_accumulation_steps": 2}`, "batch=8,scores=2",
		},
		"loss alone": {
			"c.json", transformers + `"do_eval": true, "eval_accumulation_steps": 2, "prediction_loss_only": true}`,
			"batch=8",
		},
		"axolotl":             {"c.yaml", axolotl + "val_set_size: 0.05\n", "batch=2"},
		"axolotl without any": {"c.yaml", axolotl + "val_set_size: 0\nevals_per_epoch: 2\n", ""},
		"torchtune":           {"c.yaml", torchtune + "run_val_every_n_steps: 10\nbatch_size_val: 8\n", "batch=8"},
		"generation": {
			"c.yaml", "model_name_or_path: a\nstage: sft\nfinetuning_type: lora\neval_strategy: steps\n" +
				"predict_with_generate: true\nmax_new_tokens: 64\n", "batch=8,new-tokens=64",
		},
		"ms-swift": {
			"c.json", `{"model": "a/b", "tuner_type": "lora", "dataset": ["a"], "eval_strategy": "epoch"}`, "batch=1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := one(t, k.file, k.content)
			require.NoError(t, err)
			found := ""
			for _, s := range c.Settings {
				if s.Flag == "evaluate" {
					found = s.Value
				}
			}
			require.Equal(t, k.want, found)
		})
	}
}
