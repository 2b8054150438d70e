package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vprof/vprof/bench/advise/trainers"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/sweep"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hfconfig"
	"github.com/vprof/vprof/models/pt2"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/stack"
)

// defaultGPU is the board that is simulated by default.
const defaultGPU = "rtx-5060-ti"

// caseFlags are the flags that choose a case. A flag that is not given leaves the choice
// to the model.
type caseFlags struct {
	model, task, stage, amp, weights, optimizer, lora, dataset, allocConf string
	loss, output, freeze, blocks, torch                                   string
	// writes says that the command's --output is a file and no output of a model.
	writes        bool
	checkpointing string
	levers        leverFlags
	accumulate    int
	settings      settingFlags
	ranks         rankFlags
	// alone says that the command has flags of its own for several GPUs, or is about
	// one.
	alone   bool
	learned coefficientFlag
	flags   *pflag.FlagSet
	// trainer is the trainer's configuration that flags come from; nil if there is
	// none.
	trainer *trainers.Config
	// followed are the flags that were set from it.
	followed []string
}

func (f *caseFlags) register(cmd *cobra.Command, a *app) {
	f.flags = cmd.Flags()
	f.flags.Var(&once{to: &f.model}, "model", "`name` of the model (see vprof models), a file of torch.export (model.pt2), or hf: and a config.json of transformers")
	f.flags.StringVar(&f.task, "task", "", "what an hf: model is trained for: `task` is "+strings.Join(hfconfig.Tasks(), ", ")+" (default: by its architectures)")
	f.flags.StringVar(&f.stage, "stage", "", "freeze `stage` (default: the model's)")
	f.flags.StringVar(&f.amp, "amp", "", "autocast `precision`: none, fp16, bf16 (default: the model's)")
	f.flags.StringVar(&f.weights, "weights", "", "`type` of the weights: fp32, bf16, fp16 (default: the model's, of an hf: model its configuration's dtype)")
	f.flags.StringVar(&f.checkpointing, "checkpointing", "", "recompute activations in backward, and `how`: true, false, "+recomputeHelp+" (default: the model's)")
	f.flags.Lookup("checkpointing").NoOptDefVal = "true"
	f.levers.register(f.flags)
	f.flags.IntVar(&f.accumulate, "accumulate", 0, "micro-batches `n` of one optimizer step (default: the model's)")
	f.flags.StringVar(&f.optimizer, "optimizer", "", "`name` of the optimizer (default: the model's): "+strings.Join(models.Optimizers(), ", ")+"; those that project gradients take options like galore-adamw:rank=64,target=attn+mlp")
	f.flags.StringVar(&f.dataset, "dataset-on-gpu", "", "also count training data that lies on the GPU for the whole run, as `size` like 3.2GiB (default: it comes from the host)")
	f.flags.StringVar(&f.lora, "lora", "", "train low-rank adapters instead of the model: `options` like r=8,alpha=16,target=all-linear, or target=q_proj,v_proj; dora=true; towers=false leaves out what sees or hears; parameters=experts.gate_up_proj,experts.down_proj is beside those of experts; save=embed_tokens,lm_head trains modules as a whole, match=REGEX goes by whole paths, and last")
	f.flags.StringVar(&f.loss, "loss", "", "`loss` of a .pt2 model: "+strings.Join(pt2.Losses(), ", ")+" (default: output if the model returns a loss, else cross-entropy)")
	if !f.writes {
		f.flags.StringVar(&f.output, "output", "", "`name` or number of the output of a .pt2 model that the loss is of, also as --loss LOSS:NAME (default: the first)")
	}
	f.flags.StringVar(&f.freeze, "freeze", "", "parameters of a .pt2 model that are not trained, by `patterns` of their names like 'stem.*,blocks.0.*'")
	f.flags.StringVar(&f.blocks, "checkpoint", "", "modules of a .pt2 model that are recomputed, by `patterns` of their paths like 'layers.*' (implies --checkpointing; default: the longest list of equal modules)")
	f.flags.StringVar(&f.torch, "torch", "", "`release` of PyTorch that trains, like 2.15, by whose rules memory is taken; auto reads it from a .pt2 model, or else from uv.lock, requirements.txt or pyproject.toml beside "+projectFile+" (default "+stack.Default().Release()+")")
	f.settings.register(f.flags)
	if !f.alone {
		f.ranks.register(cmd)
	}
	complete(cmd, "torch", func() []string { return append(stack.Releases(), autoRelease) })
	complete(cmd, "loss", pt2.Losses)
	complete(cmd, "model", func() []string { return a.models().Names() })
	complete(cmd, "amp", func() []string { return []string{"none", "fp16", "bf16"} })
	complete(cmd, "weights", func() []string { return []string{"fp32", "bf16", "fp16"} })
	complete(cmd, "optimizer", models.Optimizers)
	complete(cmd, "task", hfconfig.Tasks)
	complete(cmd, "set", func() []string {
		var names []string
		if m, err := a.models().Lookup(f.model); err == nil {
			for _, s := range m.Settings {
				names = append(names, s.Name+"=")
			}
		}
		return names
	})
	complete(cmd, "stage", func() []string {
		m, err := a.models().Lookup(f.model)
		if err != nil {
			return nil
		}
		return m.Stages
	})
}

// registerAllocConf adds the flags that only replays have a use for: allocator
// settings and coefficients.
func (f *caseFlags) registerAllocConf() {
	f.learned.register(f.flags)
	f.flags.StringVar(&f.allocConf, "alloc-conf", "", "allocator `settings`, as in PYTORCH_CUDA_ALLOC_CONF")
}

// resolve finds the model and the case that the flags describe.
func (f *caseFlags) resolve(a *app) (models.Model, models.Case, error) {
	if f.model == "" {
		return models.Model{}, models.Case{}, usagef(`--model is missing (list the models with "vprof models")`)
	}
	defer a.reads()()
	m, err := a.models().Lookup(f.model)
	if err != nil {
		return models.Model{}, models.Case{}, err
	}
	c := m.Default
	c.Model = m.Name
	if c.Torch, err = f.release(m); err != nil {
		return m, c, err
	}
	if err := f.training(&c); err != nil {
		return m, c, err
	}
	if c.Dataset, err = parseSize("--dataset-on-gpu", f.dataset); err != nil {
		return m, c, err
	}
	if c.Settings, err = f.settings.values(); err != nil {
		return m, c, err
	}
	c.AllocConf = f.allocConf
	if err := f.ranks.apply(&c); err != nil {
		return m, c, err
	}
	c, err = m.Complete(c)
	return m, c, f.blame(err)
}

// training puts into a case how the model is trained: for what, which part of it, with
// which loss, precision, levers and optimizer.
func (f *caseFlags) training(c *models.Case) (err error) {
	if f.task != "" {
		c.Task = f.task
	}
	if f.stage != "" {
		c.Stage = f.stage
	}
	loss, output, _ := strings.Cut(f.loss, ":")
	c.Loss, c.Output, c.Freeze, c.Blocks = cmp.Or(loss, c.Loss), cmp.Or(f.output, output), f.freeze, f.blocks
	c.Checkpointing = c.Checkpointing || f.blocks != ""
	if err := f.precision(c); err != nil {
		return err
	}
	if f.flags.Changed("checkpointing") {
		if c.Checkpointing, c.Recompute, err = parseCheckpointing(f.checkpointing); err != nil {
			return usagef("--checkpointing: %w", err)
		}
	}
	if err := f.levers.turn(&c.Levers); err != nil {
		return err
	}
	if f.flags.Changed("accumulate") {
		if f.accumulate < 1 {
			return usagef("--accumulate: %d is not a number of micro-batches; the smallest is 1", f.accumulate)
		}
		c.Accumulate = f.accumulate
	}
	if f.optimizer != "" {
		c.Optimizer = f.optimizer
	}
	if f.flags.Changed("lora") {
		l, err := models.ParseLoRA(f.lora)
		if err != nil {
			return usagef("--lora: %w", err)
		}
		c.LoRA = &l
	}
	return nil
}

// precision puts the types of autocast and of the weights into a case.
func (f *caseFlags) precision(c *models.Case) (err error) {
	if f.flags.Changed("amp") {
		if c.AMP, err = models.ParseAutocast(f.amp); err != nil {
			return usagef("--amp: %w", err)
		}
	}
	if f.flags.Changed("weights") {
		if c.Weights, err = models.ParseWeightType(f.weights); err != nil {
			return usagef("--weights: %w", err)
		}
	}
	return nil
}

// evidence is the residuals and coefficients that estimates use.
func (f *caseFlags) evidence(a *app) (step.Evidence, error) {
	calibrated, err := f.learned.selection()
	missed := func(err error) { printable.Fprintf(a.stderr, "vprof: %v; the defaults stand\n", err) }
	return step.Evidence{Residuals: a.residuals, Calibrated: calibrated, Missed: missed}, err
}

// setup resolves the flags and makes the setup of the case.
func (f *caseFlags) setup(a *app) (*step.Setup, models.Case, error) {
	m, c, err := f.resolve(a)
	if err != nil {
		return nil, c, err
	}
	e, err := f.evidence(a)
	if err != nil {
		return nil, c, err
	}
	setup, err := step.New(m, c, e)
	return setup, c, err
}

// batchFlag is a list of batch sizes.
type batchFlag struct{ list string }

func (f *batchFlag) register(cmd *cobra.Command, otherwise string) {
	cmd.Flags().StringVar(&f.list, "batch", "", "batch sizes: a `list` like 8,16,32 or ranges like 8..128x2 and 8..64+8 (default: "+otherwise+")")
}

// sizes are the batch sizes given, or else those of the default.
func (f *batchFlag) sizes(otherwise []int) ([]int, error) {
	if f.list == "" {
		return otherwise, nil
	}
	sizes, err := sweep.ParseBatches(f.list)
	if err != nil {
		return nil, usagef("--batch: %w", err)
	}
	return sizes, nil
}

// boardFlags are the flags that choose simulated boards.
type boardFlags struct {
	gpu, spec, memory string
	flags             *pflag.FlagSet
}

// given tells whether the user named a board.
func (f *boardFlags) given() bool {
	return slices.ContainsFunc([]string{"gpu", "gpu-spec", "gpu-memory"}, f.flags.Changed)
}

func (f *boardFlags) register(cmd *cobra.Command, gpuUsage string) {
	f.flags = cmd.Flags()
	cmd.Flags().StringVar(&f.gpu, "gpu", defaultGPU, gpuUsage)
	cmd.Flags().StringVar(&f.memory, "gpu-memory", "", "replace the board's total memory by `size`, like 12GiB; a bare number counts GiB, 70% is a part of it")
	cmd.Flags().StringVar(&f.spec, "gpu-spec", "", "instead of --gpu: a board of your own, described in a YAML `file` (see vprof help gpu-spec)")
	complete(cmd, "gpu", device.Names)
}

// board finds the one board.
func (f *boardFlags) board() (device.GPU, error) {
	gpu, err := f.described()
	if err == nil && f.spec == "" {
		gpu, err = device.Lookup(f.gpu)
	}
	if err != nil {
		return gpu, err
	}
	return f.resize(gpu)
}

// described is the board of --gpu-spec; the zero GPU without it.
func (f *boardFlags) described() (device.GPU, error) {
	if f.spec == "" {
		return device.GPU{}, nil
	}
	if f.flags.Changed("gpu") {
		return device.GPU{}, usagef("--gpu and --gpu-spec both name the board; give one")
	}
	file, err := os.Open(f.spec)
	if err != nil {
		return device.GPU{}, usagef("--gpu-spec: %w", err)
	}
	defer file.Close()
	gpu, err := device.ReadSpec(file, f.spec)
	if err != nil {
		return gpu, usagef("--gpu-spec: %w", err)
	}
	return gpu, nil
}

// boards finds several, named in a list with commas, or all.
func (f *boardFlags) boards() ([]device.GPU, error) {
	if f.spec != "" {
		gpu, err := f.board()
		return []device.GPU{gpu}, err
	}
	if f.gpu == "all" {
		if f.memory != "" {
			return nil, usagef("--gpu-memory: all boards cannot have the same memory; name one with --gpu")
		}
		return device.Catalog(), nil
	}
	var gpus []device.GPU
	for name := range strings.SplitSeq(f.gpu, ",") {
		gpu, err := device.Lookup(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if gpu, err = f.resize(gpu); err != nil {
			return nil, err
		}
		gpus = append(gpus, gpu)
	}
	return gpus, nil
}

func (f *boardFlags) resize(gpu device.GPU) (device.GPU, error) {
	if f.memory == "" {
		return gpu, nil
	}
	total, err := parseMemory(f.memory, gpu.Memory)
	if err != nil {
		return gpu, usagef("--gpu-memory: %w", err)
	}
	if total <= gpu.Context {
		return gpu, usagef("--gpu-memory: %s is less than the %s that CUDA's context takes on %s",
			bytesize.Format(total), bytesize.Format(gpu.Context), gpu.Name)
	}
	gpu.Memory = total
	return gpu, nil
}

// parseMemory reads the memory of a board, or a part of the whole. People say a 24 board,
// so a bare number that is too small for bytes counts GiB.
func parseMemory(s string, whole int64) (int64, error) {
	if percent, ok := strings.CutSuffix(s, "%"); ok {
		part, err := strconv.ParseFloat(percent, 64)
		if err != nil || !(part > 0 && part <= 100) {
			return 0, fmt.Errorf("%q is not a part of the board from 0%% to 100%%", s)
		}
		return int64(part / 100 * float64(whole)), nil
	}
	if gib, err := strconv.ParseFloat(s, 64); err == nil && gib > 0 && gib < 1<<16 {
		return int64(gib * bytesize.GiB), nil
	}
	return bytesize.Parse(s)
}
