// Package remedy simulates changes that save memory: it applies one change to a case and replays the training step.
package remedy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/advise/systems"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

// A mitigation is a change of the case or the batch size that needs less memory.
type mitigation struct {
	title string
	batch int
	// readBy is the configuration key (see [systems.Names]) that the project's trainer must support for the change;
	// empty for changes without a key.
	readBy string
	// change applies the mitigation to a case; nil for a change of batch size alone.
	change func(*models.Case)
}

// mitigations returns the changes that guides advise to save memory, ordered by cost: first free ones, then changes
// that cost time, precision, and finally training quality.
func mitigations(s *step.Setup, gpu device.GPU, batch int) (all []mitigation) {
	c, m, half := s.Case(), s.Model(), batch/2
	add := func(holds bool, what, reads string, batch int, change func(*models.Case)) {
		if holds {
			all = append(all, mitigation{what, batch, reads, change})
		}
	}
	micro, packed := 2*c.Accumulate, c.ExpertQuantization()
	conf := strings.TrimPrefix(c.AllocConf+","+report.ExpandableSegments, ",")
	text, autocast := c.Settings["seq-len"] > 1, models.Autocast("fp16") // of models of transformers
	if text && !gpu.EmulatesBF16() {
		autocast = "bf16"
	}
	add(!s.Allocator().Expandable, report.AllocConf+conf, "", batch, func(c *models.Case) { c.AllocConf = conf })
	add(half > 0, fmt.Sprintf("batch %d with %d micro-batches a step: as many samples a step as now", half, micro),
		"accumulate", half, func(c *models.Case) { c.Accumulate = micro })
	add(!c.Checkpointing, "gradient checkpointing", "checkpointing", batch,
		func(c *models.Case) { c.Checkpointing = true })
	add(c.AMP == models.NoAutocast && c.Weights == models.FP32, "autocast in "+string(autocast), "amp", batch,
		func(c *models.Case) { c.AMP = autocast })
	add(c.Quantize != "" && !c.QuantizesExperts() && m.Supports.Experts > 0,
		"the experts packed, too: --quantize "+packed, "", batch, func(c *models.Case) { c.Quantize = packed })
	add(c.Dataset > 0, "the data set on the host, one batch at a time on the GPU", "", batch,
		func(c *models.Case) { c.Dataset = 0 })
	add(text && (c.Optimizer == "" || strings.HasPrefix(c.Optimizer, "adamw")),
		"an 8-bit optimizer: --optimizer adamw8bit", "", batch, func(c *models.Case) { c.Optimizer = "adamw8bit" })
	add(text && c.Weights == models.FP32 && c.Quantize == "" && autocast == "bf16", "weights in bf16: --weights bf16",
		"", batch, func(c *models.Case) { c.Weights, c.AMP = "bf16", models.NoAutocast })
	add(text && m.SupportsLoRA && c.LoRA == nil && c.TrainOnly == "", "adapters alone trained: --lora r=16", "", batch,
		func(c *models.Case) { c.LoRA = &models.LoRA{Rank: 16, Alpha: 16} })
	add(half > 0, fmt.Sprintf("batch %d instead of %d", half, batch), "", half, nil)
	for _, setting := range m.Settings {
		if now := c.Settings[setting.Name]; now > 1 && setting.Lower.Num > 0 {
			to := now * setting.Lower.Num / setting.Lower.Den
			what := fmt.Sprintf("%s %d instead of %d", setting.Name, to, now) +
				phrase.If(now == setting.Default, ", the default")
			add(true, what, "", batch, func(c *models.Case) {
				c.Settings = maps.Clone(c.Settings)
				c.Settings[setting.Name] = to
			})
		}
	}
	return all
}

// A Step is a training step whose memory remedies are to reduce: a case at a batch size on a GPU, with its memory need.
type Step struct {
	setup             *step.Setup
	gpu               device.GPU
	batch             int
	allocated, device report.Interval
}

// JudgeStep estimates the memory need of a case. The error is [*step.RefusedError] if PyTorch would raise.
func JudgeStep(ctx context.Context, s *step.Setup, gpu device.GPU, batch int) (*Step, error) {
	d, err := judge.JudgeBatch(ctx, s, gpu, batch)
	if err != nil {
		return nil, err
	}
	defer d.FreeRecordings()
	l := d.Loops[0]
	return &Step{s, gpu, batch, step.IntervalOf(l.Allocated), step.IntervalOf(l.Device)}, nil
}

// Remedies returns the mitigations for a step with their simulated savings of device bytes, the remaining need, and
// whether that is safe. Remedies that make the step safe come first, ordered by their cost to the user. The others
// follow, ordered by savings. Remedies that PyTorch or the model refuses are left out, as are remedies that save less
// than a hundredth without making the step safe. beyond is the memory of the process outside of the step, in bytes. The
// first remedy removes it; the others leave it unchanged.
func (n *Step) Remedies(ctx context.Context, beyond int64) ([]report.Remedy, error) {
	s, gpu, batch := n.setup, n.gpu, n.batch
	system, known, err := systems.Lookup(s.Model().Name)
	if err != nil {
		return nil, err
	}
	var out []report.Remedy
	if beyond > 0 {
		r, err := simulate(ctx, s, gpu, mitigation{
			title: "the data set and what else is not the step's on the host, one batch at a time on the GPU",
			batch: batch,
		}, 0)
		if err != nil {
			return nil, err
		}
		r.Saves = beyond
		out = append(out, r)
	}
	for _, m := range mitigations(s, gpu, batch) {
		r, err := simulate(ctx, s, gpu, m, beyond)
		if step.IsRefused(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		now := n.device.Bytes + beyond
		if r.Saves = now - r.NeedAfter.Bytes; r.Saves <= 0 || r.Unsafe != "" && r.Saves < now/100 {
			continue
		}
		if known && m.readBy != "" && !system.Supports(m.readBy) {
			r.Requires = "a change of the code: " + system.Project + " does not read its " + m.readBy
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b report.Remedy) int {
		if a.Unsafe != "" && b.Unsafe != "" {
			return cmp.Compare(b.Saves, a.Saves)
		}
		return cmp.Or(report.CompareBools(a.Unsafe == "", b.Unsafe == ""),
			report.CompareBools(a.Requires == "", b.Requires == ""))
	})
	return out, nil
}

// PresentNeed returns the device bytes of the step plus beyond, the bytes of the process outside of it.
func (n *Step) PresentNeed(beyond int64) report.Interval {
	d := n.device
	return report.Interval{Bytes: d.Bytes + beyond, Low: d.Low + beyond, High: d.High + beyond}
}

// simulate replays a mitigation on a GPU. beyond is the memory of the process outside of the step, in bytes.
func simulate(ctx context.Context, s *step.Setup, gpu device.GPU, m mitigation, beyond int64) (report.Remedy, error) {
	out := report.Remedy{What: m.title}
	c := s.Case()
	if m.change != nil {
		m.change(&c)
	}
	other, err := step.New(s.Model(), c, s.Evidence())
	if err != nil {
		return out, err
	}
	j := judge.Default(other, gpu, beyond)
	defer j.FreeRecordings()
	d, err := j.JudgeBatch(ctx, m.batch)
	if err != nil {
		return out, err
	}
	out.NeedAfter, out.Unsafe = step.IntervalOf(d.Loops[0].Device), report.Reason(d.Reason)
	after := &out.NeedAfter
	after.Bytes, after.Low, after.High = after.Bytes+beyond, after.Low+beyond, after.High+beyond
	if beyond > 0 && out.Unsafe == "" && float64(out.NeedAfter.High) > planner.DefaultMargin*float64(gpu.Memory) {
		out.Unsafe = report.Reason(planner.OverMemoryShare) // what other processes hold is no share of this one
	}
	return out, nil
}

// A Peak is the highest memory of a training process in a log, snapshot or error, in bytes: of its tensors or, with
// Device, as counted by the driver.
type Peak struct {
	Bytes  int64
	Device bool
}

// Smallest excess of a peak over the step's estimate that is a finding. Library releases cause smaller differences.
const (
	minUnexplainedBytes = 256 << 20
	minUnexplainedShare = 0.1
)

// UnexplainedBytes compares a peak with the step. It returns the bytes that the step does not explain, or zero, and the
// finding. The finding's evidence is the comparison, also of a step that needs more than the peak.
func (n *Step) UnexplainedBytes(seen Peak) (int64, report.Finding) {
	need, what := n.allocated, "tensors held"
	if seen.Device {
		need, what = n.device, "the process took"
	}
	beyond := seen.Bytes - need.Bytes
	asRun := "give --batch, precision and options as the run had them"
	finding := report.Finding{
		Kind: "not the step's",
		What: fmt.Sprintf("%s are on the GPU that the training step does not need", bytesize.Format(beyond)),
		Evidence: []string{fmt.Sprintf("%s %s; the step of %s, batch %d, needs %s (at most %s)", what,
			bytesize.Format(seen.Bytes), n.setup.Model().Name, n.batch, bytesize.Format(need.Bytes),
			bytesize.Format(need.High)) + phrase.If(need.Low > seen.Bytes,
			": remedies are for that step; if it is not the run's, %s", asRun)},
		Advice: []string{
			"keep the data set on the host: build tensors without a device, and move each batch with .to(device)",
			"do not keep losses or outputs from step to step: append loss.item() or outputs.detach().cpu() to lists",
			asRun + ": vprof plan shows the step",
		},
	}
	if beyond < max(minUnexplainedBytes, int64(minUnexplainedShare*float64(need.Bytes))) || seen.Bytes <= need.High {
		beyond = 0
	}
	return beyond, finding
}

// LargerBatchAdvice describes the memory of a batch that is a quarter larger, as advice for a GPU that is not full;
// empty if PyTorch or the model refuses that batch.
func (n *Step) LargerBatchAdvice(ctx context.Context) (string, error) {
	then, err := JudgeStep(ctx, n.setup, n.gpu, n.batch+max(1, n.batch/4))
	if step.IsRefused(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("batch %d instead of %d needs %s more; vprof fit finds the largest that is safe", then.batch,
		n.batch, bytesize.Format(then.device.Bytes-n.device.Bytes)), nil
}
