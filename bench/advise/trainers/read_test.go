package trainers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/tools/golden"
)

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
	{"torchtitan-long.toml"},
	{"torchtitan-pipeline.toml"},
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
		c, err := Open(paths, "")
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
	return Open([]string{name}, "")
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
			"c.yaml:5: deepspeed: no.json: does not exist",
		},
		"unknown trainer": {
			"c.yaml", "base_modell: x\nlayers: 3\n",
			"c.yaml: has the keys of no trainer that vprof knows: axolotl, litgpt, torchtune,",
		},
		"near a trainer": {
			"c.yaml", "base_modell: x\nlayers: 3\n",
			"line 1: did you mean base_model for base_modell?",
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
		"all of the GPU": {
			"c.sh", "trl grpo --model_name_or_path a --use_vllm --vllm_gpu_memory_utilization 1.5",
			`c.sh:1: vllm_gpu_memory_utilization: "1.5" is not a part of the GPU`,
		},
		"a method": {
			"c.sh", "swift rlhf --model a --rlhf_type ppo",
			"c.sh:1: rlhf_type: is ppo: vprof does not record the value model",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := one(t, k.file, k.content)
			require.ErrorContains(t, err, k.want)
			require.True(t, input.IsBadInput(err), "%v must be bad input", err)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestFilesThatDisagreeAreRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("a.json",
		[]byte("{\"output_dir\": \"o\", \"bf16\": true,\n\"per_device_train_batch_size\": 4}"), 0o600))
	require.NoError(t, os.WriteFile("ds.json",
		[]byte("{\"zero_optimization\": {\"stage\": 2},\n\n\"train_micro_batch_size_per_gpu\": 8}"), 0o600))
	_, err := Open([]string{"a.json", "ds.json"}, "")
	require.ErrorContains(t, err,
		"ds.json:3: train_micro_batch_size_per_gpu: says 8, and a.json:2: per_device_train_batch_size says 4; make "+
			"them agree")
	_, err = Open([]string{"a.json", "a.json"}, "")
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
	require.Equal(t, []UnknownKey{{Key: Key{"c.yaml", 1, "base"}, Trainer: "axolotl"}}, c.Unknown)
	require.Contains(t, c.Notes, "c.yaml:7: micro_batch_size stands in line 6, too; the trainer takes the later one")
}

func TestCommandLinesAreRead(t *testing.T) {
	c, err := Command([]string{
		"accelerate", "launch", "--num_processes", "2", "--mixed_precision=bf16", "train.py",
		"--model_name_or_path", "a/b", "--output_dir=o", "--per-device-train-batch-size", "3",
		"--gradient_checkpointing",
	}, "")
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
	_, err = Command([]string{"ls", "-l"}, "")
	require.ErrorContains(t, err, "command line: starts no trainer that vprof knows")
}

func TestArgumentsStandOverTheFileThatACommandNames(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("a.yaml",
		[]byte("model_name_or_path: x/y\nstage: sft\ncutoff_len: 512\nper_device_train_batch_size: 4\n"), 0o600))
	c, err := Command([]string{"llamafactory-cli", "train", "a.yaml", "per_device_train_batch_size=1"}, "")
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
	from := Key{"cfg/a.yaml", 3, "base_model"}
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
	got, err = Model{Name: "Qwen/Qwen3-8B", Revision: "main", from: from}.Find() // embedded
	require.NoError(t, err)
	require.Equal(t, "Qwen/Qwen3-8B", got)
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
		c, err := Open([]string{path}, "")
		require.NoError(t, err)
		v := Values{Batch: 7, Accumulate: 3, Checkpointing: setting(c, "checkpointing") == "false"}
		if setting(c, "optimizer-in-backward") != "" || c.table.WrittenKeys["accumulate"] == "" {
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
		got, err := combineDocuments([]*document{d})
		require.NoError(t, err, "%s\n%s", path, after)
		require.Equal(t, "7", setting(got, "batch"), path)
		require.Equal(t, strconv.Itoa(v.Accumulate), setting(got, "accumulate"), path)
		require.Equal(t, v.Checkpointing, setting(got, "checkpointing") != "false", path)
		again, err := got.Edits(v)
		require.NoError(t, err)
		require.Empty(t, again, "what the file says already stays")
	}
}
