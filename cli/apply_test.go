package cli

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/tools/sample"
)

// appliedFiles are trainers' files that name the model in the folder "model".
var appliedFiles = map[string]string{
	"axolotl.yaml": "base_model: model\nadapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_target_linear: true\n" +
		"sequence_len: 256\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\nbf16: true\noptimizer: adamw_torch\n",
	"llamafactory.yaml": "stage: sft\ndo_train: true\nmodel_name_or_path: model\nfinetuning_type: full\n" +
		"cutoff_len: 256\nper_device_train_batch_size: 8\nbf16: true\n",
	"trl.yaml": "model_name_or_path: model\ndataset_name: trl-lib/Capybara\nmax_length: 256\n" +
		"per_device_train_batch_size: 16\neval_strategy: steps\nbf16: true\n",
	"train.json": `{"model_name_or_path": "model", "output_dir": "out", "block_size": 256,
 "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "gradient_checkpointing": true}`,
	"torchtune.yaml": "model:\n  _component_: torchtune.models.qwen2_5.qwen2_5_0_5b\ntokenizer:\n" +
		"  max_seq_len: 128\nbatch_size: 2\ngradient_accumulation_steps: 4\noptimizer:\n" +
		"  _component_: torch.optim.AdamW\nenable_activation_checkpointing: true\ndtype: bf16\n" +
		"loss:\n  _component_: torchtune.modules.loss.LinearCrossEntropyLoss\n",
}

// appliedOptions are options of fit, which must be refused where the file lacks their value.
var appliedOptions = []string{
	"", "--evaluate=batch=1", "--gpus=2", "--seq-len=32", "--levers", "--lora=r=4", "--amp=none", "--optimizer=sgd",
	"--gpus=2 --strategy=fsdp2", "--gpus=2 --strategy=zero3", "--loop=plain", "--set=padding=1", "--weights=bf16",
	"--alloc-conf=expandable_segments:True", "--clip=none", "--checkpointing=every=2", "--evaluate=none",
	"--optimizer-in-backward", "--liger", "--set=chunked-loss=4", "--target-effective-batch=64", "--max-batch=3",
	"--quantize=int8 --lora=r=4", "--torch-compile", "--train-only=lm_head", "--objective=dpo", "--batch=1",
	"--accumulate=2", "--other-processes=100MiB", "--dataset-on-gpu=100MiB",
}

// What fit writes into a trainer's file is safe by that file: smoke with the same GPU says so. Otherwise fit leaves the
// file as it is.
func TestAppliedFilesAreSafe(t *testing.T) {
	sample.Alone(t)
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("model", 0o755))
	require.NoError(t, os.WriteFile(filepath.Join("model", "config.json"), []byte(`{"model_type": "llama",
		"architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4,
		"num_attention_heads": 8, "vocab_size": 8192, "max_position_embeddings": 256}`), 0o600))
	models, written, refused := sync.OnceValue(all.Models), 0, 0
	ask := func(args ...string) (stderr string, code exitCode) {
		a, _, failed := desk()
		a.models = models
		code = run(t.Context(), a, args)
		return failed.String(), code
	}
	type applied struct{ name, options, gpu string }
	var cases []applied
	for i, name := range slices.Sorted(maps.Keys(appliedFiles)) {
		for j, options := range appliedOptions {
			gpus := []string{"--gpu=rtx-3090 --gpu-memory=2GiB", "--gpu=a100-40 --gpu-memory=9GiB"}
			cases = append(cases, applied{name, options, gpus[(i+j)%2]})
		}
	}
	for _, c := range sample.OfSlow(cases) {
		text, gpu := appliedFiles[c.name], strings.Fields(c.gpu)
		require.NoError(t, os.WriteFile(c.name, []byte(text), 0o600))
		stderr, code := ask(slices.Concat([]string{"fit", c.name, "--apply"}, strings.Fields(c.options), gpu)...)
		after, err := os.ReadFile(c.name)
		require.NoError(t, err)
		if code != exitFine {
			require.Contains(t, []exitCode{exitUsage, exitNegative}, code, "%v: %s", c, stderr)
			require.Equal(t, text, string(after), "%v: %s", c, stderr)
			refused++
			continue
		}
		same := append([]string{"smoke", c.name}, gpu...)
		for _, option := range strings.Fields(c.options) {
			if strings.HasPrefix(option, "--gpus") || strings.HasPrefix(option, "--other-processes") {
				same = append(same, option)
			}
		}
		stderr, code = ask(same...)
		require.Equal(t, exitFine, code, "%v: %s\n%s", c, stderr, after)
		written++
	}
	t.Logf("%d written, %d refused", written, refused)
	require.Greater(t, written, 5)
	require.Greater(t, refused, 10)
}
