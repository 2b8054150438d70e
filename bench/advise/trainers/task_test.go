package trainers

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file of TRL is planned as the training that its keys, its script or its name stand for, or it is refused.
func TestFilesOfTRLArePlannedAsTheirTask(t *testing.T) {
	const model = "model_name_or_path: a/b\nper_device_train_batch_size: 2\n"
	for name, k := range map[string]struct{ file, content, objective, refused string }{
		"next token":           {"c.yaml", model + "max_length: 64\npacking: true\n", "", ""},
		"next token of a name": {"sft/dpo/sft.yaml", model + "max_length: 64\n", "", ""},
		"a loss of DPO":        {"c.yaml", model + "beta: 0.1\nloss_type: apo_zero\n", "dpo", ""},
		"several losses": {
			"c.yaml", model + "loss_type: [sigmoid, sppo_hard]\nloss_weights: [1, 2]\n", "dpo",
			"",
		},
		"only DPO has it":   {"c.yaml", model + "beta: 0.1\nrpo_alpha: 1\n", "dpo", ""},
		"computed before":   {"dpo.yaml", model + "precompute_ref_log_probs: true\n", "dpo:precomputed", ""},
		"a folder":          {"recipes/dpo/c.yaml", model + "beta: 0.1\nmax_prompt_length: 32\n", "dpo", ""},
		"a folder, no key":  {"recipes/kto/c.yaml", model + "max_length: 64\n", "kto", ""},
		"a file":            {"dpo/orpo_small.yaml", model + "beta: 0.1\nmax_prompt_length: 32\n", "orpo", ""},
		"a key over a name": {"dpo/c.yaml", model + "desirable_weight: 1.2\n", "kto", ""},
		"only GRPO has it": {
			"c.yaml", model + "num_generations: 4\nscale_rewards: false\n", "grpo:completion=512",
			"",
		},
		"rewards": {"c.yaml", model + "center_rewards_coefficient: 0.01\n", "reward", ""},
		"of RLOO": {
			"c.yaml", model + "normalize_advantages: true\n", "grpo:completion=512,reference,old",
			"",
		},
		"of CPO": {"c.yaml", model + "cpo_alpha: 0.5\nloss_type: simpo\n", "simpo", ""},
		"several, unnamed": {"c.yaml", model + "beta: 0.1\nmax_prompt_length: 3\n", "", "c.yaml:3: beta: is a key " +
			"of dpo, grpo, rloo, kto, orpo, cpo, bco, and nothing says which"},
		"two, unnamed": {"c.yaml", model + "num_generations: 4\n", "", "c.yaml:3: num_generations: is a key " +
			"of grpo, rloo, and nothing"},
		"of two trainers": {"c.yaml", model + "desirable_weight: 1\nnum_generations: 4\n", "", "c.yaml:4: " +
			"num_generations: is no key of kto, which other keys"},
		"not recorded": {"c.yaml", model + "num_ppo_epochs: 4\n", "", "c.yaml:3: num_ppo_epochs: is of ppo: " +
			"vprof does not record"},
		"not recorded, a name": {"nash_md.yaml", model + "missing_eos_penalty: 1\n", "", "is of nash-md: vprof does " +
			"not record"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			require.NoError(t, os.MkdirAll(filepath.Dir(k.file), 0o700))
			require.NoError(t, os.WriteFile(k.file, []byte(k.content), 0o600))
			c, err := Open([]string{k.file}, "")
			if k.refused != "" {
				require.ErrorContains(t, err, k.refused)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "TRL", c.Trainer)
			require.Equal(t, k.objective, setting(c, "objective"))
		})
	}
}

// What the user says answers the question. So do the imports of the script, and else its name.
func TestTheUserAndTheScriptNameTheTask(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("c.yaml", []byte("model_name_or_path: a/b\nbeta: 0.1\nmax_prompt_length: "+
		"32\n"), 0o600))
	require.NoError(t, os.WriteFile("train.py", []byte("from trl import ORPOConfig, "+
		"ORPOTrainer\nORPOTrainer()\n"), 0o600))
	require.NoError(t, os.WriteFile("dpo_or_kto.py", []byte("from trl import KTOTrainer\n"), 0o600))
	for _, said := range []string{"dpo", "kto", "simpo", "dpo:precomputed"} {
		c, err := Open([]string{"c.yaml"}, said)
		require.NoError(t, err, said)
		objective, _, _ := strings.Cut(said, ":")
		require.True(t, strings.HasPrefix(setting(c, "objective"), objective), said)
	}
	for words, want := range map[string]string{
		"accelerate launch scripts/dpo.py --config c.yaml":                               "dpo",
		"accelerate launch scripts/run_orpo.py c.yaml":                                   "orpo",
		"python train.py --config c.yaml":                                                "orpo",
		"python dpo_or_kto.py --config c.yaml":                                           "kto",
		"trl kto --config c.yaml":                                                        "kto",
		"python -m trl.scripts.dpo --config c.yaml":                                      "dpo",
		"python -m trl.scripts.reward --model_name_or_path a/b --bf16":                   "reward",
		"python scripts/dpo_vlm.py --model_name_or_path a --learning_rate 1e-6":          "dpo",
		"python train_it.py --model_name_or_path a --bf16 true --num_train_epochs 1":     "",
		"torchrun grpo.py --model_name_or_path a --max_completion_length 64 --bf16 true": "grpo:completion=64",
	} {
		c, err := Command(strings.Fields(words), "")
		require.NoError(t, err, words)
		require.Equal(t, want, setting(c, "objective"), words)
	}
	_, err := Command(strings.Fields("trl vllm-serve --model a"), "")
	require.ErrorContains(t, err, "command line: is of vLLM, which generates; it is no training")
}

// Files and commands of programs that vprof does not plan are called by their names.
func TestStrangersAreNamed(t *testing.T) {
	for _, s := range unplannedTrainers() {
		require.NotEmpty(t, slices.Concat(slices.Concat(s.Recognized...), s.Commands, s.Scripts), s.Trainer)
		for _, table := range Tables() {
			require.False(t, slices.ContainsFunc(s.Recognized, func(keys []string) bool {
				return slices.ContainsFunc(table.Recognized, func(r []string) bool { return slices.Equal(keys, r) })
			}), "%s and %s are recognized by the same keys", s.Trainer, table.Trainer)
		}
	}
	for name, k := range map[string]struct{ file, content, want string }{
		"Automodel": {"c.yaml", "recipe: X\nstep_scheduler: {local_batch_size: 8}\nmodel: {_target_: " +
			"nemo_automodel.X}\n", "c.yaml: is of NeMo Automodel, whose keys vprof does not know; vprof run"},
		"Automodel's Eagle": {
			"c.yaml", "recipe: X\nrecipe_args: {micro_batch_size: 1}\ncheckpoint: {enabled: true}\n",
			"is of NeMo Automodel",
		},
		"Automodel's diffusion": {"c.yaml", "dist_env: {backend: nccl}\nmodel: {model_type: wan}\nflow_matching: " +
			"{flow_shift: 3}\n", "is of NeMo Automodel"},
		"nanotron": {"c.yaml", "general: {run: a}\nparallelism: {dp: 1}\ntokens: {sequence_length: 8}\nmodel: " +
			"{dtype: bf16}\n", "is of nanotron"},
		"Megatron": {"c.yaml", "model_name_or_path: a\nstage: sft\ntensor_model_parallel_size: 2\n", "is of Megatron"},
		"LLaMA-Factory": {"c.yaml", "model: a/b\npeft_config: {name: lora}\nmicro_batch_size: 1\n", "is of " +
			"LLaMA-Factory v1"},
		"mergekit": {"c.yaml", "merge_method: slerp\nbase_model: a/b\ndtype: bfloat16\n", "which merges models; " +
			"it is no training"},
		"sd-scripts": {"c.toml", "pretrained_model_name_or_path = \"x\"\nnetwork_module = " +
			"\"networks.lora\"\n", "is of sd-scripts"},
		"filter": {"c.yaml", "model_name_or_path: a\nnum_generations: 4\npass_rate_min: 0.1\n", "it is no training"},
		"a command": {"c.sh", "export A=1\nswift infer --adapters a --infer_backend vllm\n", "c.sh: is of " +
			"ms-swift, and this command generates"},
		"prediction": {"c.yaml", "model_name_or_path: a\nstage: sft\ndo_predict: true\nfinetuning_type: " +
			"lora\n", "c.yaml:3: do_predict: this is a prediction"},
		"evaluation": {"c.yaml", "model_name_or_path: a\nstage: sft\ndo_eval: true\ntemplate: " +
			"llama3\n", "c.yaml:3: do_eval: this is an evaluation"},
		"benchmark": {
			"c.yaml", "model_name_or_path: a\nfinetuning_type: lora\ntemplate: fewshot\ntask: mmlu_test\n",
			"this is an evaluation, and vprof plans training",
		},
		"embeddings": {"c.yaml", "model_name_or_path: a\nper_device_train_batch_size: 8\nbatch_sampler: " +
			"no_duplicates\n", "is of sentence-transformers"},
		"inference": {"c.yaml", "model_name_or_path: a\ntemplate: qwen3\ninfer_backend: vllm\n", "c.yaml:3: " +
			"infer_backend: this is inference"},
		"export": {"c.yaml", "model_name_or_path: a\ntemplate: qwen3\nexport_dir: out\n", "c.yaml:3: " +
			"export_dir: this merges or exports"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := one(t, k.file, k.content)
			require.ErrorContains(t, err, k.want)
		})
	}
	c, err := one(t, "c.yaml", "model_name_or_path: a\nstage: sft\ndo_train: true\ndo_predict: true\nexport_dir: out\n")
	require.NoError(t, err)
	require.Equal(t, "LLaMA-Factory", c.Trainer)
	c, err = one(t, "c.sh", "swift sft --model a --max_length 64\nswift infer --adapters out\n")
	require.NoError(t, err)
	require.Equal(t, "ms-swift", c.Trainer)
}

func TestGPUsThatACommandCountsAreAsked(t *testing.T) {
	for _, script := range []string{
		"NPROC_PER_NODE=$(nvidia-smi -L | wc -l) swift sft --model a --max_length 64\n",
		"accelerate launch --num_processes $(nvidia-smi -L | wc -l) sft.py --model_name_or_path a --max_length 64\n",
		"torchrun --nproc_per_node $GPUS sft.py --model_name_or_path a --max_length 64\n",
	} {
		c, err := one(t, "c.sh", script)
		require.NoError(t, err, script)
		_, err = c.CaseSettings("", false)
		require.ErrorContains(t, err, "give their number with --gpus N", script)
		settings, err := c.CaseSettings("4", false)
		require.NoError(t, err)
		for _, s := range settings {
			require.NotContains(t, s.Value, "$", script)
		}
	}
}

func TestLitGPTIsRead(t *testing.T) {
	const file = "checkpoint_dir: checkpoints/a/b\nprecision: bf16-true\ntrain: {global_batch_size: 8, " +
		"micro_batch_size: 2, max_seq_length: 64}\n"
	c, err := one(t, "c.yaml", file+"devices: 2\nquantize: bnb.nf4\nlora_r: 4\nlora_key: true\nlora_query: "+
		"false\nlora_mlp: true\n")
	require.NoError(t, err)
	require.Equal(t, "a/b", c.Model.Name)
	for flag, want := range map[string]string{
		"batch": "2", "accumulate": "2", "seq-len": "64", "weights": "bf16", "amp": "none", "quantize": "nf4",
		"gpus":      "2",
		"optimizer": "paged-adamw32bit",
		"lora":      "r=4,alpha=16,dropout=0.05,dtype=weights,target=k_proj+v_proj+gate_proj+up_proj+down_proj",
	} {
		require.Equal(t, want, setting(c, flag), flag)
	}
	c, err = one(t, "c.yaml", file+"devices: auto\noptimizer: {class_path: torch.optim.AdamW, init_args: {lr: 1}}\n")
	require.NoError(t, err)
	require.Equal(t, "adamw", setting(c, "optimizer"))
	require.Empty(t, setting(c, "lora"))
	c, err = Command(strings.Fields("litgpt finetune_lora a/b --precision 32-true --train.micro_batch_size 3"), "")
	require.NoError(t, err)
	require.Equal(t, []string{"a/b", "3", "fp32"}, []string{c.Model.Name, setting(c, "batch"), setting(c, "weights")})
}
