package trainers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLaunchersSayHowGPUsShareTheWork(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("fsdp.yaml",
		[]byte("distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config: {fsdp_version: 2, "+
			"fsdp_offload_params: true}\n"), 0o600))
	require.NoError(t, os.WriteFile("ds.json", []byte(`{"zero_optimization": {"stage": 3}}`), 0o600))
	program := []string{"train.py", "--model_name_or_path", "a/b", "--per_device_train_batch_size", "1"}
	for name, k := range map[string]struct {
		words, more []string
		want        map[string]string
	}{
		"FSDP by options": {
			[]string{
				"accelerate", "launch", "--num_processes", "2", "--use_fsdp",
				"--fsdp_sharding_strategy", "FULL_SHARD", "--mixed_precision", "bf16",
			},
			nil,
			map[string]string{"gpus": "2", "amp": "bf16", "strategy": "fsdp1:prefetch=none,mp=bf16,reduce=bf16"},
		},
		"gradients kept": {
			[]string{
				"accelerate", "launch", "--num-processes=2", "--use_fsdp",
				"--fsdp_sharding_strategy", "SHARD_GRAD_OP", "--multi_gpu",
			},
			nil,
			map[string]string{"strategy": "fsdp1:prefetch=none,reshard=false"},
		},
		"options over a file": {[]string{
			"accelerate", "launch", "--config_file", "fsdp.yaml", "--num_processes",
			"4",
		}, nil, map[string]string{"gpus": "4", "strategy": "fsdp2:mp=bf16,reduce=bf16,offload=all"}},
		"several GPUs, not FSDP": {[]string{
			"accelerate", "launch", "--multi_gpu", "--num_processes", "2",
			"--mixed_precision", "no",
		}, nil, map[string]string{"gpus": "2", "strategy": "ddp", "amp": "none"}},
		"DeepSpeed by options": {
			[]string{
				"accelerate", "launch", "--use_deepspeed", "--zero_stage", "3",
				"--offload_optimizer_device", "cpu", "--num_processes", "2",
			},
			nil,
			map[string]string{"gpus": "2", "strategy": "zero3:offload=optimizer"},
		},
		"DeepSpeed's file": {
			[]string{"deepspeed", "--num_gpus", "2"},
			[]string{"--deepspeed", "ds.json", "--bf16"},
			map[string]string{"gpus": "2", "strategy": "zero3"},
		},
		"machines": {
			[]string{"torchrun", "--nnodes", "2", "--nproc-per-node", "4"},
			nil,
			map[string]string{"gpus": "8"},
		},
		"behind srun": {
			[]string{"srun", "--gres=gpu:2", "torchrun", "--nproc_per_node=2"},
			nil,
			map[string]string{"gpus": "2"},
		},
		"words of the Trainer": {[]string{"torchrun", "--nproc_per_node=2"}, []string{
			"--fsdp", "full_shard auto_wrap",
			"--block_size", "1024",
		}, map[string]string{"strategy": "fsdp2", "seq-len": "1024"}},
	} {
		c, err := Command(append(append(k.words, program...), k.more...), "")
		require.NoError(t, err, name)
		for flag, want := range k.want {
			require.Contains(t, setting(c, flag), want, "%s: --%s", name, flag)
		}
		require.Empty(t, c.Unknown, name)
	}
	c, err := Command(append([]string{"torchrun", "--nnodes", "$SLURM_NNODES", "--nproc_per_node", "4"}, program...),
		"")
	require.NoError(t, err)
	require.Contains(t, c.Notes,
		"command line: --nnodes $SLURM_NNODES is taken for 1; --gpus says how many GPUs there are in all")
}

func TestCommandsCountTheirGPUs(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("HF_HOME", cache)
	program := []string{"run_clm.py", "--model_name_or_path", "a/b", "--dataset_name", "d", "--torch_dtype", "bfloat16"}
	t.Setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
	for words, want := range map[string]string{
		"accelerate launch":                                    "4",
		"accelerate launch --num_processes 2":                  "2",
		"CUDA_VISIBLE_DEVICES=0,1 accelerate launch":           "2",
		"env CUDA_VISIBLE_DEVICES=0,1,5 torchrun":              "", // --nproc-per-node is 1 by default
		"env CUDA_VISIBLE_DEVICES=0,1,5 deepspeed":             "3",
		"CUDA_VISIBLE_DEVICES=3 deepspeed":                     "",
		"CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=4": "4",
		"CUDA_VISIBLE_DEVICES=0,1 python":                      "",
	} {
		c, err := Command(append(strings.Fields(words), program...), "")
		require.NoError(t, err, words)
		require.Equal(t, want, setting(c, "gpus"), words)
		require.Equal(t, strings.HasSuffix(words, " python"),
			strings.Contains(strings.Join(c.Notes, ""), "DataParallel"), words)
		require.Equal(t, strings.HasSuffix(words, " torchrun"),
			strings.Contains(strings.Join(c.Notes, ""), "--nproc_per_node 3 to train on all"), words)
		require.Equal(t, [2]string{"transformers", "bf16"}, [2]string{c.Trainer, setting(c, "weights")},
			"a key of TRL's does not make the script TRL's")
		require.Empty(t, c.Unknown)
	}
	require.NoError(t, os.Mkdir(filepath.Join(cache, "accelerate"), 0o755))
	own := filepath.Join(cache, "accelerate", "default_config.yaml")
	require.NoError(t, os.WriteFile(own, []byte("distributed_type: MULTI_GPU\nnum_processes: 6\n"), 0o600))
	c, err := Command(append([]string{"accelerate", "launch"}, program...), "")
	require.NoError(t, err)
	require.Equal(t, "6", setting(c, "gpus"))
	require.Contains(t, c.Notes, "command line: accelerate launch without --config_file goes by "+own)
}

// Programs are found by their names on Windows, too, and a folder there is no repository of the hub.
func TestCommandsOfWindowsAreRead(t *testing.T) {
	for words, gpus := range map[string]string{
		`C:\Python311\python.exe D:\work\run_clm.py`:                                 "",
		`C:\venv\Scripts\accelerate.exe launch --num_processes 2 D:\work\run_clm.py`: "2",
		`C:/venv/Scripts/torchrun.exe --nproc_per_node 4 run_clm.py`:                 "4",
		`uv.exe run .venv\Scripts\python.exe work\run_clm.py`:                        "",
	} {
		c, err := Command(append(strings.Fields(words), "--model_name_or_path", `D:\models\llama`, "--dataset_name",
			"d"), "")
		require.NoError(t, err, words)
		require.Equal(t, [2]string{"transformers", gpus}, [2]string{c.Trainer, setting(c, "gpus")}, words)
		_, err = c.Model.Find()
		require.ErrorContains(t, err, `there is no config.json in the folder D:\models\llama`)
	}
}

func TestCommandsNameTheirConfigurations(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, content := range map[string]string{
		"ax.yaml": "base_model: x/y\nmicro_batch_size: 4\nsequence_len: 512\n",
		"lf.yaml": "model_name_or_path: x/y\nstage: sft\ncutoff_len: 512\nper_device_train_batch_size: 4\n",
		"trl.yml": "model_name_or_path: x/y\nmax_length: 512\nper_device_train_batch_size: 4\n",
		"tt.yaml": "model: {_component_: torchtune.models.llama3.llama3_8b}\ntokenizer: {_component_: t, " +
			"max_seq_len: 512}\noptimizer: {_component_: torch.optim.AdamW, fused: True}\nbatch_size: 4\n",
	} {
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	}
	for name, k := range map[string]struct {
		words []string
		batch string
	}{
		"module":           {[]string{"accelerate", "launch", "-m", "axolotl.cli.train", "ax.yaml"}, "4"},
		"python -m":        {[]string{"python", "-m", "axolotl.cli.train", "ax.yaml", "--micro-batch-size", "2"}, "2"},
		"its own command":  {[]string{"axolotl", "train", "ax.yaml", "--micro-batch-size=2"}, "2"},
		"a script's file":  {[]string{"torchrun", "src/train.py", "lf.yaml", "per_device_train_batch_size=2"}, "2"},
		"--config":         {[]string{"trl", "sft", "--config", "trl.yml", "--per_device_train_batch_size", "2"}, "2"},
		"script, --config": {[]string{"accelerate", "launch", "sft.py", "--config", "trl.yml"}, "4"},
		"torchtune": {[]string{
			"tune", "run", "--nproc_per_node", "2", "full_finetune_distributed", "--config",
			"tt.yaml", "batch_size=2", "optimizer=torch.optim.SGD", "~optimizer.fused",
		}, "2"},
	} {
		c, err := Command(k.words, "")
		require.NoError(t, err, name)
		require.Equal(t, k.batch, setting(c, "batch"), name)
		require.Equal(t, "512", setting(c, "seq-len"), name)
		require.NotContains(t, strings.Join(c.Notes, "\n"), "stands in line", name)
		require.Empty(t, c.Unknown, name)
		if name == "torchtune" {
			require.Equal(t, "2", setting(c, "gpus"))
			require.Equal(t, "sgd", setting(c, "optimizer"))
			require.Equal(t, "fsdp2:no_sync=false", c.SeveralGPUs)
		}
	}
	c, err := Command([]string{"tune", "run", "r", "--config", "tt.yaml", "tokenizer.max_seq_len=64", "btach_size=2"},
		"")
	require.NoError(t, err)
	require.Equal(t, "64", setting(c, "seq-len"))
	require.Equal(t, []UnknownKey{{Key{commandLineFile, 0, "btach_size"}, "batch_size", "torchtune"}}, c.Unknown)
	for _, bad := range []struct {
		words []string
		want  string
	}{
		{
			[]string{"tune", "run", "r", "--config", "llama3/8B_full"},
			`command line: --config: llama3/8B_full is one of torchtune's own files; "tune cp llama3/8B_full mine.yaml" ` +
				`copies it, then name --config mine.yaml`,
		},
		{
			[]string{"tune", "run", "r", "--config", "tt.yaml", "batch_size=many"},
			`command line: batch_size: "many" is not a whole number from 1 on`,
		},
		{[]string{"tune", "run", "r"}, "command line: starts no trainer that vprof knows"},
		{[]string{"axolotl", "train", "none.yaml"}, "none.yaml: does not exist"},
	} {
		_, err := Command(bad.words, "")
		require.ErrorContains(t, err, bad.want)
	}
}

func TestMisspelledKeysAreGuessed(t *testing.T) {
	c, err := one(t, "c.yaml", "base_model: x/y\nmicro_batch_size: 1\nlora_alpah: 3\nmy_own_key: 3\n")
	require.NoError(t, err)
	require.Equal(t, []UnknownKey{
		{Key{"c.yaml", 3, "lora_alpah"}, "lora_alpha", "axolotl"},
		{Key{"c.yaml", 4, "my_own_key"}, "", "axolotl"},
	}, c.Unknown)
	_, err = one(t, "c.yaml", "base_model: x/y\nadapter: lora\nlora_rank: 4\nmicro_batch_size: 1\n")
	require.ErrorContains(t, err, "c.yaml:2: adapter: LoRA needs the rank of its adapters; add lora_r: N; not keys of "+
		"axolotl: lora_rank (line 3)")
	_, err = one(t, "c.yaml", "base_model: x/y\nadapter: lora\nlora_r: 4\nlearning_rate: 1\nmicro_batch_sise: 1\n")
	require.EqualError(t, err,
		"c.yaml: has keys of axolotl, but none of what tells its configurations: base_model and micro_batch_size; "+
			"base_model and sequence_len; base_model and datasets (line 5: did you mean micro_batch_size for "+
			"micro_batch_sise?)")
	_, err = one(t, "config.json", `{"model_type": "llama", "hidden_size": 8}`)
	require.ErrorContains(t, err, "it is a model's configuration: --model hf:config.json")
	_, err = one(t, "c.yaml", "a:\n\tb: 1\n")
	require.EqualError(t, err, "c.yaml:2: is not YAML: the line begins with a tab; indent it with spaces")
}

// What accelerate's launcher takes: groups of the way of sharing that it was told, one process where that is NO, and
// precision from the trainer before its own file.
func TestAcceleratesFileIsReadAsItsLauncherReadsIt(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	file := write("a.yaml", "distributed_type: FSDP\nnum_processes: 4\nmixed_precision: fp16\n"+
		"fsdp_config: {fsdp_version: 2, fsdp_activation_checkpointing: true}\ndeepspeed_config: {zero_stage: 3}\n")
	one := write("one.yaml", "distributed_type: 'NO'\nnum_processes: 4\n")
	above := write("fsdp.json", `{"version": 2, "reshard_after_forward": false}`)
	wrong := write("wrong.json", "{\n\"reshard_after_forward\": \"sometimes\"}")
	trainer := "train.py --per_device_train_batch_size 1 --model_name_or_path m --save_strategy no "
	const sharded = "fsdp2:mp=bf16,reduce=bf16,"
	const launch, whole = "accelerate launch --config_file ", "init=rank0,wrap=ends,reshard=auto"
	for words, want := range map[string]string{
		launch + file + " " + trainer + "--bf16":             sharded + whole,
		launch + file + " --multi_gpu " + trainer + "--bf16": "ddp",
		launch + one + " " + trainer:                         "",
		launch + file + " mine.py --rows 3":                  "fsdp2:mp=fp16,reduce=fp16," + whole,
		"torchrun --nproc_per_node 2 " + trainer + "--bf16 --fsdp --fsdp_config " + above: sharded +
			"init=host,wrap=ends,reshard=false",
	} {
		c, err := Command(strings.Fields(words), "")
		require.NoError(t, err, words)
		require.Equal(t, want, setting(c, "strategy"), words)
		require.Equal(t, want != "", setting(c, "gpus") != "", words)
	}
	_, err := Command(strings.Fields("torchrun "+trainer+"--fsdp --fsdp_config "+wrong), "")
	require.ErrorContains(t, err, "wrong.json:2: fsdp_config.reshard_after_forward: vprof does not know what")
}
