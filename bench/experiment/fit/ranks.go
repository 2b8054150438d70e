package fit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

// AutoStrategy is the value of a strategy that searches several strategies.
const AutoStrategy = "auto"

// StrategiesFor returns the strategies that a search tries for a case of a model on a number of GPUs. Half-precision
// parameters are tried only for cases without autocast, which they replace. Tensor parallelism is tried only if PyTorch
// supports it: PyTorch does not clip gradients over two meshes. If ranks can also share tokens and logits, they do (as
// in torchtitan), and clip. Groups have at most eight ranks, like the GPUs of a machine. Pipelines have as many
// micro-batches as stages; with several machines, each machine may be a stage. Experts and long sequences are also
// divided. [finer] varies the best strategies.
func StrategiesFor(m models.Model, c models.Case, gpus int) []string {
	all := []string{"ddp:bucket_view=true", "zero1:bucket_view=true", "fsdp2", "fsdp2:reshard=false", "fsdp2:wrap=none"}
	half := c.AMP == models.NoAutocast && c.Weights == models.FP32
	if half {
		all = append(all, "fsdp2:mp=bf16", "fsdp2:mp=bf16,reshard=false", "fsdp2:mp=bf16,wrap=none")
	}
	all = append(all, tensorParallelStrategies(m, c, gpus, half)...)
	all = append(all, expertParallelStrategies(m, c, gpus)...)
	all = append(all, contextParallelStrategies(m, c, gpus)...)
	return append(all, pipelineStrategies(m, c, gpus, half)...)
}

// pipelineStrategies returns the pipeline strategies: one GPU for each stage and, with several machines, one machine
// for each stage, whose GPUs share the stage by fully_shard or tensor parallelism.
func pipelineStrategies(m models.Model, c models.Case, gpus int, half bool) (all []string) {
	if gpus < 2 || c.AMP == "fp16" || c.Accumulate > 1 || c.Offload || c.LoRA != nil || !c.Objective.IsZero() {
		return nil // no trainer of peft has pipelines
	}
	if gpus <= maxPipelineStages {
		all = append(all, fmt.Sprintf("pp:micro=%d", gpus))
	}
	nodes := gpus / gpusOfNode
	if nodes < 2 || nodes > maxPipelineStages || gpus%gpusOfNode > 0 {
		return all
	}
	way := fmt.Sprintf("pp:pp=%d", nodes)
	if all = append(all, way); half {
		all = append(all, way+",mp=bf16")
	}
	if m.Supports.Context && !c.Liger {
		all = append(all, fmt.Sprintf("%s,tp=%d,sequence=true,loss=true", way, gpusOfNode))
	}
	return all
}

func tensorParallelStrategies(m models.Model, c models.Case, gpus int, half bool) (all []string) {
	if c.LoRA != nil || c.Quantize != "" {
		return nil
	}
	clips := c.Clip == models.ClipNorm || c.Clip == "" && !m.SupportsPatterns
	titan := m.Supports.Context && c.Objective.IsZero() && !c.Liger
	for n := 2; n <= gpusOfNode && n <= gpus; n *= 2 {
		ways := []string{fmt.Sprintf("tp:tp=%d", n)}
		if titan {
			ways = append(ways, ways[0]+",sequence=true,loss=true")
		}
		if clips || n == gpus {
			ways = ways[1:]
		}
		if gpus%n > 0 {
			continue
		}
		for _, way := range ways {
			all = append(all, way)
			if half && n < gpus { // param_dtype is fully_shard's
				all = append(all, way+",mp=bf16")
			}
		}
	}
	return all
}

// expertParallelStrategies returns the strategies that divide experts among ranks: among as many ranks of a node as
// possible, with fully_shard over groups of them, or among all ranks.
func expertParallelStrategies(m models.Model, c models.Case, gpus int) (all []string) {
	if m.Supports.Experts == 0 || c.Quantize != "" {
		return nil
	}
	for n := gpusOfNode; n > 1; n /= 2 {
		switch {
		case gpus%n > 0 || m.Supports.Experts%int64(n) > 0:
		case n == gpus:
			all = append(all, fmt.Sprintf("ddp:ep=%d", n))
		default:
			return append(all, fmt.Sprintf("fsdp2:ep=%d", n))
		}
	}
	return all
}

// longSequence is the number of tokens from which on strategies that divide sequences are tried.
const longSequence = 32_768

// contextParallelStrategies returns the strategies whose ranks share each sequence (context_parallel, half precision).
func contextParallelStrategies(m models.Model, c models.Case, gpus int) (all []string) {
	length := c.Settings["seq-len"]
	fp32 := c.AMP == models.NoAutocast && c.Weights != "bf16" && c.Weights != "fp16"
	if !m.Supports.Context || length < longSequence || fp32 || !c.Objective.IsZero() {
		return nil
	}
	for n := 2; n <= gpusOfNode && n <= gpus; n *= 2 {
		if gpus%n == 0 && length%int64(2*n) == 0 {
			all = append(all, fmt.Sprintf("fsdp2:cp=%d,cp_by=%s", n, models.TorchRing))
		}
	}
	return all
}

// maxPipelineStages is the largest number of pipeline stages to search.
const maxPipelineStages = 64

// Kinds of parallelism that only some models support, as messages name them.
const (
	sharedRows    = "context parallelism"
	sharedExperts = "expert parallelism"
)

// specialParallelism returns the kind of parallelism of a strategy if only some models support it; else empty.
func specialParallelism(s *models.Strategy) string {
	switch {
	case s == nil:
		return ""
	case s.EP > 0:
		return sharedExperts
	case s.CP > 0:
		return sharedRows
	case s.Name == models.TP, s.Name == models.PP:
		return s.Name
	}
	return ""
}

// dropRefused removes strategies that the search added and the model does not support. If no variant of a strategy is
// left, it adds the reason to the report.
func dropRefused(f *report.Fit) {
	if f.Parallel == nil || f.Parallel.Strategy != AutoStrategy {
		return
	}
	reasons, works := map[string]string{}, map[string]bool{}
	f.Choices = slices.DeleteFunc(f.Choices, func(c report.Choice) bool {
		name := specialParallelism(c.Case.Strategy)
		switch {
		case name == "":
			return false
		case c.Refused == "":
			works[name] = true
			return false
		}
		reasons[name] = c.Refused
		return true
	})
	for _, name := range []string{models.TP, models.PP, sharedRows, sharedExperts} {
		if why := reasons[name]; why != "" && !works[name] {
			f.Warnings = append(f.Warnings,
				report.Warning{What: fmt.Sprintf("%s is left out of the search: %s", name, why)})
		}
	}
}

// batchesOf returns the number of batches that the GPUs of a case train at a time.
func (s *Search) batchesOf(c models.Case) int { return max(1, c.ParallelBatches()) }

// usesSurvey reports whether cases are interpolated and only recommended choices are replayed.
func (s *Search) usesSurvey() bool {
	return s.Ranks.Strategy == AutoStrategy || !s.SeqLen && len(s.GPUs) > 1 &&
		len(s.GPUs)*max(s.CaseCount, len(s.Cases)) > maxExactCases
}

// maxExactCases is the largest number of cases on several GPUs for which all are replayed. If there are more, only
// recommended choices are.
const maxExactCases = 100

// leastGPUs returns the smallest number of GPUs on which a case fits with one sample: a power of two, or the number of
// the search; zero if none does.
func (s *Search) leastGPUs(ctx context.Context) (int, error) {
	cases := smallestCases(s.Cases)
	for n := 1; ; n = min(2*n, s.Ranks.GPUs) {
		tried := map[models.CaseKey]bool{}
		for _, c := range cases {
			if n == 1 {
				c.GPUs, c.Strategy = 0, nil
			} else {
				c.GPUs = n
			}
			c.Accumulate = step.StepsToRecord(c.Accumulate)
			if tried[c.Key()] {
				continue
			}
			tried[c.Key()] = true
			fits, err := s.fitsOne(ctx, c)
			if err != nil || fits {
				return n, err
			}
		}
		if n == s.Ranks.GPUs {
			return 0, nil
		}
	}
}

// smallestCases returns the cases that need the least memory, smallest need first. Of cases that differ only in
// checkpointing and options of fully_shard, it keeps the smallest.
func smallestCases(cases []models.Case) []models.Case {
	cases = slices.Clone(cases)
	slices.SortStableFunc(cases, func(a, b models.Case) int { return cmp.Compare(savingRank(b), savingRank(a)) })
	seen := map[models.CaseKey]bool{}
	return slices.DeleteFunc(cases, func(c models.Case) bool {
		like := c
		like.Checkpointing, like.Recompute = false, ""
		if c.Strategy != nil {
			o := *c.Strategy
			o.Reshard, o.Wrap = "", nil
			like.Strategy = &o
		}
		k := like.Key()
		was := seen[k]
		seen[k] = true
		return was
	})
}

// savingRank returns a rank of a case by its likely memory need, for sorting.
func savingRank(c models.Case) int {
	n := 0
	if c.Checkpointing {
		n += 2
	}
	if c.Strategy != nil && c.Strategy.Name == models.FSDP2 && c.Strategy.Resharding() == "true" &&
		!c.Strategy.WrapsRootOnly() {
		n++
	}
	return n
}

// fitsOne reports whether one sample of a case fits the GPU; false if PyTorch refuses the case.
func (s *Search) fitsOne(ctx context.Context, c models.Case) (bool, error) {
	_, q, err := s.searchOf(s.GPUs[0], c)
	if err == nil {
		defer q.judge.FreeRecordings()
		q.judge.MemoryCap = q.judge.Budget.Limit()
		t, tried := q.judgeSize(ctx, 1, c.Accumulate)
		if err = tried; err == nil {
			return t.Need <= q.judge.Budget.Limit(), nil
		}
	}
	if step.IsRefused(err) || errors.Is(err, trace.ErrCeiling) {
		return false, nil
	}
	return false, err
}
