package fit

import (
	"context"
	"slices"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
)

// A memoryOption is a memory-saving option that a search may turn on.
type memoryOption struct {
	name string
	// flag is the flag that sets the option.
	flag  string
	apply func(c *models.Case)
	is    func(c *models.Case) bool
}

// memoryOptions returns the memory-saving options, in order of the time that they cost.
func memoryOptions() []memoryOption {
	optimizer := func(name string) memoryOption {
		return memoryOption{
			name, "optimizer",
			func(c *models.Case) { c.Optimizer = name }, func(c *models.Case) bool { return c.Optimizer == name },
		}
	}
	quantize := func(kind string) memoryOption {
		return memoryOption{kind, "quantize", func(c *models.Case) {
			c.Quantize = kind
		}, func(c *models.Case) bool { return c.Quantize == kind }}
	}
	return []memoryOption{
		{"liger", "liger", func(c *models.Case) { c.Liger = true }, func(c *models.Case) bool { return c.Liger }},
		{"optimizer in backward", "optimizer-in-backward", func(c *models.Case) {
			c.InBackward, c.Clip = true, ""
		}, func(c *models.Case) bool { return c.InBackward }},
		optimizer("adamw8bit"),
		optimizer("paged-adamw8bit"),
		quantize("nf4"),
		quantize("nf4-dq"),
		quantize("nf4-dq+experts"),
		{"checkpointing", "checkpointing", func(c *models.Case) {
			c.Checkpointing = true
		}, func(c *models.Case) bool { return c.Checkpointing }},
		{"offload", "offload", func(c *models.Case) {
			c.Offload = true
		}, func(c *models.Case) bool { return c.Offload }},
	}
}

// SavingCases returns copies of a case with all useful combinations of memory-saving options for the model, the case
// itself first. It leaves out options whose flag the user has fixed.
func SavingCases(m models.Model, c models.Case, fixed func(flag string) bool) []models.Case {
	cases := []models.Case{c}
	for _, t := range memoryOptions() {
		if fixed(t.flag) || !isApplicable(t, m, c) {
			continue
		}
		for _, k := range cases {
			if t.is(&k) || conflictsWith(t, &k) {
				continue
			}
			t.apply(&k)
			if _, err := m.Complete(k); err == nil {
				cases = append(cases, k)
			}
		}
	}
	return cases
}

// searchPrecisions searches the best combinations of memory-saving options in the other precisions: combinations nearly
// as fast as the recommended one on a GPU, or all if nothing fits.
func (s *Search) searchPrecisions(ctx context.Context, f *report.Fit) error {
	var cases []models.Case
	best := 0.0
	for _, c := range f.Choices {
		if c.Recommended {
			best = c.SamplesPerSecond
		}
		for _, amp := range s.Precisions {
			if k := c.Case.Case; c.Refused == "" && c.SamplesPerSecond >= nearlyAsFastShare*best {
				k.AMP = amp
				cases = append(cases, k)
			}
		}
	}
	_, err := s.addCases(ctx, f, cases)
	return err
}

// HasSaving reports whether a case has the memory-saving option of a flag turned on.
func HasSaving(flag string, c *models.Case) bool {
	return slices.ContainsFunc(memoryOptions(), func(t memoryOption) bool { return t.flag == flag && t.is(c) })
}

// isApplicable reports whether a memory-saving option can save much in a case of a model. Options for optimizer states
// save little with adapters, and few models have experts.
func isApplicable(t memoryOption, m models.Model, c models.Case) bool {
	switch t.flag {
	case "quantize":
		return m.Supports.Experts > 0 || !models.MemoryOptions{Quantize: t.name}.QuantizesExperts()
	case "optimizer":
		return c.LoRA == nil
	case "optimizer-in-backward":
		return c.LoRA == nil && c.Accumulate <= 1
	}
	return true
}

// conflictsWith reports whether a memory-saving option is impossible or useless with the other options of a case. For
// example, recomputed activations need no offloading.
func conflictsWith(t memoryOption, c *models.Case) bool {
	switch t.flag {
	case "optimizer":
		return c.Optimizer != "" && !slices.Contains([]string{"adamw", "adamw-fused", "adamw-single"}, c.Optimizer)
	case "quantize":
		return c.Quantize != ""
	case "offload":
		return !c.Checkpointing
	}
	return false
}

// addWaterfalls computes how much each memory-saving option of the recommended choices saves.
func (s *Search) addWaterfalls(ctx context.Context, f *report.Fit) (err error) {
	gpus := s.simulatedGPUs()
	for i := range f.Choices {
		c := &f.Choices[i]
		gpu, simulated := gpus[c.Device]
		if !c.Recommended || !simulated {
			continue
		}
		if c.Waterfall, err = s.waterfall(ctx, gpu, c); err != nil {
			return err
		}
	}
	return nil
}

// waterfall replays a choice at its batch without memory-saving options, then adds its options one after another.
func (s *Search) waterfall(ctx context.Context, gpu device.GPU, c *report.Choice) ([]report.Lever, error) {
	whole := c.Case.Case
	k := whole
	k.Quantize, k.Liger, k.Recompute, k.Offload, k.InBackward = "", false, "", false, false
	k.Checkpointing, k.Optimizer = false, s.Cases[0].Optimizer
	first, err := s.caseNeed(ctx, gpu, k, c.Batch)
	if err != nil {
		return nil, err
	}
	out := []report.Lever{first}
	for _, t := range memoryOptions() {
		if !t.is(&whole) || t.is(&k) {
			continue
		}
		t.apply(&k)
		if k.Checkpointing {
			k.Recompute = whole.Recompute
		}
		l, err := s.caseNeed(ctx, gpu, k, c.Batch)
		if err != nil {
			return nil, err
		}
		l.Name, l.Saves = t.name, out[len(out)-1].Device-l.Device
		out = append(out, l)
	}
	return out, nil
}

// caseNeed returns the memory need of a case at a batch size, independent of the GPU's memory size.
func (s *Search) caseNeed(ctx context.Context, gpu device.GPU, k models.Case, batch int) (report.Lever, error) {
	_, q, err := s.searchOf(gpu, k)
	if err != nil {
		return report.Lever{}, err
	}
	defer q.judge.FreeRecordings()
	micro := judgedMicroBatches(max(1, k.Accumulate))
	t, err := q.judgeSize(ctx, batch, micro)
	if err != nil {
		return report.Lever{}, err
	}
	seconds, err := q.stepSeconds(ctx, t)
	if err != nil {
		return report.Lever{}, err
	}
	l := report.Lever{Device: t.Loops[0].Device.Value}
	if seconds > 0 {
		l.SamplesPerSecond = float64(batch*micro) / seconds
	}
	return l, nil
}
