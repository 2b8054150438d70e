package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vprof/vprof/models"
)

// recomputeHelp are the ways of checkpointing beside on and off.
const recomputeHelp = "non-reentrant, reentrant, reentrant-trained for layers alone that are not all frozen, every=2 for every second layer, selective=mm,sdpa with the operators whose results are kept"

// leverFlags turn the levers of fine-tuning.
type leverFlags struct {
	quantize, clip             string
	objective, trainOnly, qat  string
	float8                     string
	trainedWeights             string
	tiledMLP                   string
	liger, offload, inBackward bool
	compile, stateOfFrozen     bool
	flags                      *pflag.FlagSet
}

func (f *leverFlags) register(flags *pflag.FlagSet) {
	f.flags = flags
	flags.StringVar(&f.quantize, "quantize", "", "hold the frozen layers below adapters (--lora) as bitsandbytes does: `type` is "+strings.Join(models.Quantizations(), ", "))
	flags.BoolVar(&f.liger, "liger", false, "compute norms, rotary positions, feed-forward layers and the loss with liger-kernel")
	flags.BoolVar(&f.offload, "offload", false, "keep what backward needs in the host's memory (save_on_cpu)")
	flags.BoolVar(&f.inBackward, "optimizer-in-backward", false, "step the optimizer of each parameter when its gradient is there, and free the gradient")
	flags.BoolVar(&f.compile, "torch-compile", false, "the step runs under torch.compile: it is planned as the eager one, with an interval as wide as published pairs of the two are apart")
	flags.StringVar(&f.clip, "clip", "", "clip gradients by their `norm` before the optimizer's step: norm, none (default: as the model's system does)")
	flags.StringVar(&f.trainOnly, "train-only", "", "train the parameters alone whose names have a `regex` in them, such as 'layers\\.(30|31)\\.|lm_head', and freeze the others")
	flags.StringVar(&f.trainedWeights, "trained-weights", "", "with --train-only, hold what is trained in this `type` and what is frozen in that of --weights: fp32")
	flags.BoolVar(&f.stateOfFrozen, "state-of-frozen", false, "with --train-only, the optimizer has the state of what is frozen, too, which was trained before (LISA)")
	flags.StringVar(&f.qat, "qat", "", "round weights and inputs of linear layers as torchao's training for quantization does, by `kind`: "+strings.Join(models.QATs(), ", ")+"; options like int8-int4:group=32")
	flags.StringVar(&f.float8, "float8", "", "linear layers but the output layer multiply in 8-bit floats as torchao's convert_to_float8_training has it, by `recipe`: "+strings.Join(models.Float8s(), ", "))
	flags.StringVar(&f.tiledMLP, "tiled-mlp", "", "have feed-forward layers see the tokens in `n` tiles, one after the other, and again in backward, as axolotl's tiled_mlp does: a number, or auto for one for every 32768 tokens")
	flags.StringVar(&f.objective, "objective", "", "learn from answers that were compared or judged, in place of the next token, by `name`: "+strings.Join(models.Objectives(), ", ")+"; options like dpo:precomputed,as=llama-factory")
}

// turn sets the levers that were given.
func (f *leverFlags) turn(l *models.Levers) error {
	if f.flags.Changed("quantize") && !slices.Contains(models.Quantizations(), f.quantize) {
		return usagef("--quantize: there is no quantization %q; use %s", f.quantize, strings.Join(models.Quantizations(), ", "))
	}
	if f.flags.Changed("clip") && f.clip != models.ClipNorm && f.clip != models.ClipNone {
		return usagef("--clip: %q is neither norm nor none", f.clip)
	}
	if f.objective != "" {
		var err error
		if l.Objective, err = models.ParseObjective(f.objective); err != nil {
			return usagef("--objective: %w", err)
		}
	}
	if f.qat != "" {
		var err error
		if l.QAT, err = models.ParseQAT(f.qat); err != nil {
			return usagef("--qat: %w", err)
		}
	}
	l.Float8 = f.float8
	l.TrainOnly, l.TrainedWeights, l.StateOfFrozen, l.Compile = f.trainOnly, f.trainedWeights, f.stateOfFrozen, f.compile
	if f.tiledMLP != "" {
		var err error
		if l.TiledMLP, err = models.ParseTiles(f.tiledMLP); err != nil {
			return usagef("--tiled-mlp: %w", err)
		}
	}
	l.Quantize, l.Liger, l.Offload, l.InBackward, l.Clip = f.quantize, f.liger, f.offload, f.inBackward, f.clip
	return nil
}

// parseCheckpointing reads whether to recompute, or how.
func parseCheckpointing(text string) (on bool, how string, err error) {
	if on, err := strconv.ParseBool(text); err == nil {
		return on, "", nil
	}
	if how, err = models.ParseRecompute(text); err != nil {
		return false, "", fmt.Errorf("%w, or true and false", err)
	}
	return true, how, nil
}

// joinCheckpointing has "--checkpointing reentrant" mean "--checkpointing=reentrant":
// the flag may stand alone, so a word after it would be an argument.
func joinCheckpointing(args []string) []string {
	const flag = "--checkpointing"
	var out []string
	for i := 0; i < len(args); i++ {
		if args[i] == flag && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			if _, _, err := parseCheckpointing(args[i+1]); err == nil || strings.Contains(args[i+1], "=") {
				out = append(out, flag+"="+args[i+1])
				i++
				continue
			}
		}
		out = append(out, args[i])
	}
	return out
}
