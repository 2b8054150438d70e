package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
)

// source is where a model comes from, which decides what options it takes.
type source int

const (
	ofSystem  source = iota // with the training loop of its own system
	inGo                    // another listed one
	ofConfig                // a config.json of transformers
	ofFile                  // of torch.export
	ofTrainer               // with the settings of a trainer's file, which flags change
)

// An anyOption is an option that a case of some sources has once in so many.
type anyOption struct {
	name   string
	of     int
	to     []source
	values string
}

// anyOptions change the memory of a step. Cases that a model refuses are skipped.
var anyOptions = []anyOption{
	{"amp", 1, []source{ofSystem, inGo, ofConfig, ofFile, ofTrainer}, "none fp16 bf16"},
	{"checkpointing", 1, []source{ofSystem, inGo}, "true false"},
	{"checkpointing", 1, []source{ofConfig, ofFile, ofTrainer}, "true false reentrant every=2 selective=mm,sdpa"},
	{"torch", 2, []source{ofSystem, inGo, ofConfig, ofFile, ofTrainer}, "2.8 2.9 2.10 2.11 2.12 2.13 2.14 2.15"},
	{
		"optimizer", 2, []source{
			ofSystem, inGo, ofConfig,
			ofFile,
		}, "adamw adamw-fused amsgrad sgd sgd-momentum rmsprop " +
			"adafactor adafactor-transformers muon adamw8bit paged-adamw8bit lion8bit paged-lion32bit " +
			"adamw4bit adamw-fp8 galore-adamw",
	},
	{"loop", 3, []source{inGo, ofConfig, ofFile}, "trainer function plain"},
	{"accumulate", 5, []source{ofSystem, inGo, ofConfig, ofFile, ofTrainer}, "2 3 8 40"},
	{"zero-grad", 5, []source{inGo, ofConfig, ofFile}, "after before between keep"},
	{"clip", 6, []source{inGo, ofConfig, ofFile}, "norm none"},
	{"empty-cache", 6, []source{inGo, ofConfig, ofFile}, "1 2"},
	{
		"alloc-conf", 6,
		[]source{ofSystem, inGo, ofConfig, ofFile, ofTrainer},
		"expandable_segments:True max_split_size_mb:128 " +
			"roundup_power2_divisions:4 garbage_collection_threshold:0.6",
	},
	{"weights", 6, []source{ofConfig, ofFile}, "fp32 bf16 fp16"},
	{"evaluate", 6, []source{ofSystem, inGo, ofConfig, ofFile, ofTrainer}, "batch=8 batch=2,scores=4"},
	{"optimizer-in-backward", 8, []source{inGo, ofConfig, ofFile}, "true"},
	{"offload", 8, []source{ofSystem, inGo, ofConfig, ofFile}, "true"},
	{"liger", 8, []source{ofConfig, ofFile}, "true"},
	{"float8", 20, []source{ofConfig, ofFile}, "tensorwise"},
	{"chunked-loss", 8, []source{ofConfig, ofFile}, "4"},
	{"tiled-mlp", 8, []source{ofConfig}, "2 4"},
	{"use-cache", 8, []source{ofConfig}, "true false"},
	{"qat", 8, []source{ofConfig, ofFile}, "8da4w int8-int4"},
	{"objective", 6, []source{ofConfig}, "dpo kto orpo grpo simpo reward gkd"},
	{"torch-compile", 8, []source{ofSystem, inGo, ofConfig, ofFile}, "true"},
	{"dataset-on-gpu", 8, []source{ofSystem, inGo, ofConfig, ofFile, ofTrainer}, "300MiB"},
	{"seq-len", 4, []source{ofConfig, ofTrainer}, "16 29 100 257 512"},
	{"lora", 5, []source{ofConfig, ofFile}, "r=8 r=16,target=all-linear r=8,dora=true"},
	{
		"strategy", 4, []source{inGo, ofConfig, ofFile}, "ddp ddp:bucket_view=true ddp:static_graph=true fsdp2 " +
			"fsdp2:mp=bf16 fsdp2:offload=all fsdp2:reshard=false zero1 zero2 zero2:offload=optimizer zero3 tp:tp=2 pp " +
			"device-map:map=auto",
	},
}

// anyModel draws a model, as its flags.
func (j *judges) anyModel(t *rapid.T) (flags []string, from source) {
	from = rapid.SampledFrom([]source{inGo, ofConfig, ofFile, ofTrainer}).Draw(t, "from")
	name, stages := "", []string{"full", "head"}
	switch from {
	case ofTrainer:
		return []string{anyFile(t, "../bench/advise/trainers/testdata/configs/*l")}, from
	case ofConfig:
		name = "hf:" + anyFile(t, "../models/hfconfig/testdata/configs/*/config.json")
	case ofFile: // which has no stages
		return []string{"--model=" + anyFile(t, "../models/pt2/testdata/*.pt2")}, from
	default:
		m := rapid.SampledFrom(lists.Filter(j.registry.All(), func(m models.Model) bool {
			return !hasOneOf(m.Name, "large", "-xl", "h14", "l16") // which take long
		})).Draw(t, "model")
		if name, stages = m.Name, m.Stages; hasOneOf(name, "redimnet", "vqvae", "gan", "spoter", "naics") {
			from = ofSystem
		}
	}
	return []string{"--model=" + name, "--stage=" + rapid.SampledFrom(stages).Draw(t, "stage")}, from
}

// anyFile draws a file of a pattern.
func anyFile(t *rapid.T, pattern string) string {
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	return rapid.SampledFrom(files).Draw(t, "file")
}

func hasOneOf(name string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(name, part) })
}

// anywhere draws any model with any options, for any two GPUs.
func (j *judges) anywhere(t *rapid.T) (c training, gpus []string) {
	clear(j.trials)
	gpus = rapid.Permutation(device.Names()).Draw(t, "GPUs")[:2]
	j.gpus = gpus
	c = j.budget(t, 24<<10)
	flags, from := j.anyModel(t)
	for _, o := range anyOptions {
		if !slices.Contains(o.to, from) || rapid.IntRange(1, o.of).Draw(t, "has "+o.name) > 1 ||
			o.name == "accumulate" && c.grown == "effective" {
			continue
		}
		prefix := "--" + o.name
		if f := models.FieldNamed(o.name); f != nil && f.SetOnly {
			prefix = "--set=" + o.name
		}
		flags = append(flags, prefix+"="+rapid.SampledFrom(strings.Fields(o.values)).Draw(t, o.name))
		if o.name == "strategy" {
			flags = append(flags, fmt.Sprintf("--gpus=%d", rapid.SampledFrom([]int{2, 4}).Draw(t, "gpus")))
		}
	}
	c.flags = flags
	if hasOneOf(flags[0], "bert-base", "gpt2", "llama-tiny", "hf:") && rapid.IntRange(1, 10).Draw(t, "epochs") == 1 {
		low, high := rapid.IntRange(4, 100).Draw(t, "shortest"), rapid.IntRange(4, 100).Draw(t, "longest")
		c.lengths = []string{
			fmt.Sprintf("--lengths=seq-len=uniform:min=%d,max=%d,samples=60", min(low, high), max(low, high)),
			"--batching=" + rapid.SampledFrom([]string{"padded", "grouped", "packed"}).Draw(t, "batching"),
		}
	}
	return c, gpus
}

// curriculum draws the files of a project whose training has several parts, on a GPU.
func (j *judges) curriculum(t *rapid.T) (c training, gpu string) {
	clear(j.trials)
	gpu = rapid.SampledFrom(device.Names()).Draw(t, "GPU")
	j.gpus = []string{gpu}
	folder, err := os.MkdirTemp(j.folder, "")
	require.NoError(t, err)
	write := func(name, format string, values ...any) string {
		name = filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, fmt.Appendf(nil, format, values...), 0o600))
		return name
	}
	for stage := range rapid.IntRange(0, 3).Draw(t, "parts") {
		write(fmt.Sprintf("conf/text_curriculum/0%d_stage.yaml", stage+1), "n_positives: %d\nn_negatives: %d\n",
			rapid.IntRange(1, 32).Draw(t, "positives"), rapid.IntRange(1, 24).Draw(t, "negatives"))
	}
	c = j.budget(t, 24<<10)
	c.flags = []string{
		write("conf/config.yaml", "data_loader: {batch_size: %d, tokenization: {max_length: %d}}\ntraining:\n"+
			"  trainer:\n    precision: %q\n    accumulate_grad_batches: %d\n",
			rapid.IntRange(1, 12).Draw(t, "batch"), rapid.IntRange(16, 256).Draw(t, "max_length"),
			rapid.SampledFrom([]string{"32-true", "16-mixed", "bf16-mixed"}).Draw(t, "precision"),
			rapid.IntRange(1, 4).Draw(t, "accumulate")),
		"--model=naics-embedder" + rapid.SampledFrom([]string{"", "-stage01"}).Draw(t, "part"),
	}
	return c, gpu
}

// judgeCurriculum asks all verbs about the batch of a project's file, and about the smaller ones that smoke finds. What
// fit writes is then safe in every part by its own file.
func (c training) judgeCurriculum(t tester, gpu string) {
	smoke, _ := answer[report.Smoke](t, c, "smoke", c.on(gpu)...)
	c.judgeBatch(t, gpu, smoke.Batch, "the file's batch on "+gpu)
	if largest := smoke.LargestBatch; largest > 0 {
		require.True(t, c.judgeBatch(t, gpu, largest, "the largest batch on "+gpu).Safe, largest)
		require.False(t, c.judgeBatch(t, gpu, largest+1, "above the largest batch on "+gpu).Safe, largest)
	}
	_, stderr, code := c.ask(t,
		slices.Concat([]string{"fit", "--apply", "--config-path=" + c.flags[0], "--format=json"},
			c.on(gpu)[1:])...)
	require.Contains(t, []exitCode{exitFine, exitNegative}, code, stderr)
	parts := []string{""}
	if _, err := os.Stat(filepath.Join(filepath.Dir(c.flags[0]), "text_curriculum/01_stage.yaml")); err == nil {
		parts = append(parts, "-stage01")
	}
	if code == exitFine {
		for _, part := range parts {
			c.flags[1] = "--model=naics-embedder" + part
			smoke, _ := answer[report.Smoke](t, c, "smoke", c.on(gpu)...)
			require.True(t, smoke.Safe, "%s on %s as fit writes it: %s", c.flags[1], gpu, smoke.Verdict())
		}
	}
}

// takes reports whether a GPU can train the case at all.
func (c training) takes(t tester, gpu string) bool {
	_, stderr, code := c.ask(t, append([]string{"plan", "--batch=2"}, c.on(gpu)...)...)
	require.Contains(t, []exitCode{exitFine, exitNegative, exitUsage}, code, stderr)
	require.NotContains(t, stderr, "replay: ")
	return code != exitUsage
}

// The same of any model, option and GPU. There are so many that this is no test of every day.
func TestVerbsAgreeAnywhere(t *testing.T) {
	if os.Getenv(settingsVariable) == "" {
		t.Skip("make properties runs it")
	}
	checked(t)
	j := newJudges(t)
	rapid.Check(t, func(t *rapid.T) {
		if rapid.IntRange(1, 12).Draw(t, "curriculum") == 1 {
			c, gpu := j.curriculum(t)
			if !c.takes(t, gpu) {
				t.Skip("refused")
			}
			c.judgeCurriculum(t, gpu)
			return
		}
		c, gpus := j.anywhere(t)
		if !c.takes(t, gpus[0]) || !c.takes(t, gpus[1]) {
			t.Skip("refused") // does not count
		}
		if c.lengths != nil { // epochs are replayed for one GPU
			gpus = gpus[:1]
		}
		for _, row := range c.largestOn(t, gpus) {
			c.judgeRow(t, row)
		}
	})
}
