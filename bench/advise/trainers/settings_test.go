package trainers

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func setting(c *Config, flag string) string {
	for _, s := range c.Settings {
		if s.Flag == flag {
			return s.Value
		}
	}
	return ""
}

// What generates the answers, and how many steps learn from them, says which
// log-probabilities come before the step and what is left of the GPU.
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

func TestPairsOfAnswersAreAnObjective(t *testing.T) {
	for text, want := range map[string]string{
		"swift rlhf --rlhf_type dpo --model a --loss_type sigmoid bco_pair sft --rpo_alpha 0.1": "dpo:as=ms-swift",
		"swift rlhf --rlhf_type dpo --model a --packing true --attn_impl flash_attn":            "dpo:packed,as=ms-swift",
	} {
		c, err := one(t, "c.sh", text+"\n")
		require.NoError(t, err, text)
		require.Equal(t, want, setting(c, "objective"), text)
	}
}

// Few examples of the trainers have these objectives; the message has the command that answers.
func TestRareObjectivesNameTheCommandThatAnswers(t *testing.T) {
	for file, text := range map[string]string{
		"swift.sh":     "swift sft --model a --task_type embedding --loss_type infonce\n",
		"reranker.sh":  "swift sft --model a --task_type generative_reranker --loss_type listwise_reranker\n",
		"weighed.sh":   "swift sft --model a --enable_dft_loss true\n",
		"trl.sh":       "trl sft --model_name_or_path a --dataset_name d --loss_type dft\n",
		"features.yml": "base_model: a/b\nmicro_batch_size: 1\nsequence_len: 512\nrl: ebft\n",
		"distilled.yaml": "model: {_component_: torchtune.models.llama3_2.lora_llama3_2_1b}\nteacher_model: " +
			"{_component_: torchtune.models.llama3_1.llama3_1_8b}\noptimizer: {_component_: torch.optim.AdamW}\n" +
			"kd_loss: {_component_: torchtune.modules.loss.ForwardKLLoss}\n",
	} {
		_, err := one(t, file, text)
		require.ErrorContains(t, err, "run the training: vprof run -- ", text)
	}
}

func TestTeachersAreFound(t *testing.T) {
	g, err := one(t, "c.sh",
		"swift rlhf --model a/b --rlhf_type gkd --teacher_model c/d --max_length 1000 --max_completion_length 24\n")
	require.NoError(t, err)
	require.Equal(t, [3]string{"c/d", "gkd:completion=24", "1024"},
		[3]string{g.Teacher.Name, setting(g, "objective"), setting(g, "seq-len")})
	_, err = one(t, "c.sh", "swift rlhf --model a/b --rlhf_type gkd --max_length 1000\n")
	require.ErrorContains(t, err, "c.sh:1: rlhf_type: names no teacher_model")
}

func TestUnfrozenParametersAreAnExpression(t *testing.T) {
	c, err := one(t, "c.yaml",
		"base_model: a/b\nmicro_batch_size: 1\nsequence_len: 512\nunfrozen_parameters:\n  - "+
			"^lm_head.weight$[:32000]\n  - model.layers.2[0-9]+.mlp\n  - a.+b\n")
	require.NoError(t, err)
	require.Equal(t, `^(?:^lm_head\.weight$)|^(?:model\.layers\.2[0-9]+\.mlp)|^(?:a.+b)`, setting(c, "train-only"))
}

// DeepSpeed's options become options of the strategy, and its engine trains in the type of the weights.
func TestDeepSpeedsFileIsTheStrategy(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("a.json",
		[]byte(`{"output_dir": "o", "bf16": true, "per_device_train_batch_size": 4}`), 0o600))
	for zero, want := range map[string]string{
		`"stage": 1`: "zero1:engine=deepspeed",
		`"stage": 2, "reduce_bucket_size": 2e8, "overlap_comm": true, "stage3_prefetch_bucket_size": ` +
			`7`: "zero2:bucket=200000000,overlap=true",
		`"stage": 2, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": ` +
			`"cpu"}`: "zero2:offload=optimizer",
		`"stage": 3, "reduce_bucket_size": "auto", "sub_group_size": 0, "stage3_max_live_parameters": ` +
			`1000`: "zero3:bucket=auto,live=1000,part=1",
		`"stage": 3, "overlap_comm": true, "contiguous_gradients": true`: "zero3",
		`"stage": 3, "memory_efficient_linear": ` +
			`false`: "zero3:linear=torch",
		`"stage": 3, "overlap_comm": false, "contiguous_gradients": ` +
			`false`: "zero3:overlap=false,contiguous=false",
		`"stage": 2, "overlap_comm": false, "cpu_offload": true, "contiguous_gradients": ` +
			`true`: "zero2:offload=optimizer",
		`"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": ` +
			`"cpu"}`: "zero3:offload=all",
		`"stage": 3, "offload_param": {"device": "cpu"}, "stage3_param_persistence_threshold": ` +
			`"auto"`: "zero3:persist=auto,offload=params",
	} {
		require.NoError(t, os.WriteFile("d.json", []byte(`{"zero_optimization": {`+zero+`}}`), 0o600))
		c, err := Open([]string{"a.json", "d.json"}, "")
		require.NoError(t, err, zero)
		require.Equal(t, want, setting(c, "strategy"))
		require.Equal(t, "none", setting(c, "amp"))
		require.Equal(t, "bf16", setting(c, "weights"))
	}
	require.NoError(t, os.WriteFile("d.json",
		[]byte("{\"zero_optimization\": {\"stage\": 2,\n\"reduce_bucket_size\": \"many\"}}"), 0o600))
	_, err := Open([]string{"a.json", "d.json"}, "")
	require.ErrorContains(t, err, "d.json:2: zero_optimization.reduce_bucket_size: invalid number of elements \"many\"")
	require.NoError(t, os.WriteFile("d.json",
		[]byte("{\"zero_optimization\": {\"stage\": 2,\n\"contiguous_gradients\": false}}"), 0o600))
	_, err = Open([]string{"a.json", "d.json"}, "")
	require.ErrorContains(t, err,
		"d.json:2: zero_optimization.contiguous_gradients: vprof records gradients of stages 1 and 2 that are "+
			"copied to a bucket; take true")
	for stage, refused := range map[int]bool{1: true, 2: false, 3: true} {
		require.NoError(t, os.WriteFile("d.json", fmt.Appendf(nil,
			`{"zero_optimization": {"stage": %d}, "data_types": {"grad_accum_dtype": "fp32"}}`, stage), 0o600))
		_, err = Open([]string{"a.json", "d.json"}, "")
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

func TestAdaptersHaveTheirOptions(t *testing.T) {
	const begin = "base_model: x/y\nmicro_batch_size: 1\nadapter: lora\nlora_r: 4\n"
	for more, want := range map[string]string{
		"lora_target_modules: 'model.layers.[\\d]+.(mlp|self_attn).(up|q)_proj'\n": "r=4," +
			"match=model.layers.[\\d]+.(mlp|self_attn).(up|q)_proj",
		"lora_target_modules: [q_proj, v_proj]\nlora_modules_to_save:\n- embed_tokens\n- " +
			"lm_head\n": "r=4,save=embed_tokens+lm_head,target=q_proj+v_proj",
		"lora_target_linear: true\nlora_modules_to_save: " +
			"[]\n": "r=4,target=linear-layers",
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

func TestEffectiveBatchCountsGPUs(t *testing.T) {
	c, err := Open([]string{filepath.Join("testdata", "configs", "swift.sh")}, "")
	require.NoError(t, err)
	require.Equal(t, 2*4*4, c.Effective(4))
	require.True(t, slices.ContainsFunc(c.Settings, func(s Setting) bool {
		return s.Flag == "alloc-conf" && s.Value == "expandable_segments:True" && s.From.Line == 4
	}))
}

// A lever that is written into a trainer's file is read from it again, of all that tables know how to turn.
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
			c, err := combineDocuments([]*document{d})
			require.NoError(t, err, "%s\n%s", trainer, text)
			require.Equal(t, trainer, c.Trainer)
			return c
		}
		c := open(text)
		require.NotEmpty(t, c.table.SavingValues, trainer)
		for lever := range c.table.SavingValues {
			flag, value, _ := strings.Cut(lever, "=")
			require.True(t, c.CanSet(flag))
			v := Values{
				Batch: 1, Accumulate: 1, Checkpointing: setting(c, "checkpointing") != "false",
				Savings: map[string]string{flag: value},
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
			Savings: map[string]string{"quantize": "int3"},
		})
		require.ErrorContains(t, err, "does not know which keys of "+trainer+" set --quantize int3")
	}
}

// Every trainer's key for torch.compile becomes the flag; a backend of which nothing is published is refused.
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
		`model: {_component_: torchtune.models.phi3.lora_phi3_mini, lora_attn_modules: [q_proj, v_proj], lora_rank: `+
			`4, lora_alpha: 8, use_dora: True}
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
	require.Equal(t, []string{"repeated-heads=1", "torchtune-modules=2"}, set)
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
		"axolotl":             {"c.yaml", axolotl + "val_set_size: 0.05\n", "batch=training"},
		"axolotl's own batch": {"c.yaml", axolotl + "val_set_size: 0.05\neval_batch_size: 3\n", "batch=3"},
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
