// Package remedy simulates changes that reduce the memory of a training step: each remedy is the case with one change,
// replayed.
package remedy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/vprof/vprof/bench/advise/systems"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/judge"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner"
)

// A mitigation is a change of the case or the batch size that needs less memory.
type mitigation struct {
	what  string
	batch int
	// reads is what the project's trainer must read for it, as [systems.Names] has it; empty if nothing.
	reads string
	// change makes the change of the case; nil for none.
	change func(*models.Case)
}

// mitigations returns the changes that guides advise to save memory, ordered by cost: first free ones, then changes
// that cost time, precision, and finally training quality.
func mitigations(s *step.Setup, batch int) []mitigation {
	var all []mitigation
	if !s.Allocator().Expandable {
		conf := report.ExpandableSegments
		if old := s.Case().AllocConf; old != "" {
			conf = old + "," + conf
		}
		all = append(all, mitigation{
			what: "PYTORCH_CUDA_ALLOC_CONF=" + conf, batch: batch,
			change: func(c *models.Case) { c.AllocConf = conf },
		})
	}
	half, micro := batch/2, 2*s.Case().Accumulate
	if half > 0 {
		all = append(all, mitigation{
			what:  fmt.Sprintf("batch %d with %d micro-batches a step: as many samples a step as now", half, micro),
			batch: half, reads: "accumulate", change: func(c *models.Case) { c.Accumulate = micro },
		})
	}
	if !s.Case().Checkpointing {
		all = append(all, mitigation{"gradient checkpointing", batch, "checkpointing", func(c *models.Case) {
			c.Checkpointing = true
		}})
	}
	if s.Case().AMP == models.NoAutocast {
		all = append(all, mitigation{"autocast in fp16", batch, "amp", func(c *models.Case) { c.AMP = "fp16" }})
	}
	if c := s.Case(); c.Quantize != "" && !c.PacksExperts() && s.Model().Levers.Experts > 0 {
		packed := c.AlsoExperts()
		all = append(all, mitigation{
			"the experts packed, too: --quantize " + packed, batch, "", func(c *models.Case) { c.Quantize = packed },
		})
	}
	if s.Case().Dataset > 0 {
		all = append(all, mitigation{
			"the data set on the host, one batch at a time on the GPU", batch, "",
			func(c *models.Case) { c.Dataset = 0 },
		})
	}
	if half > 0 {
		all = append(all, mitigation{what: fmt.Sprintf("batch %d instead of %d", half, batch), batch: half})
	}
	for _, setting := range s.Model().Settings {
		if now := s.Case().Settings[setting.Name]; now > 1 && setting.Lower.Num > 0 {
			to := now * setting.Lower.Num / setting.Lower.Den
			all = append(all, mitigation{
				fmt.Sprintf("%s %d instead of %d", setting.Name, to, now), batch, "",
				func(c *models.Case) {
					c.Settings = maps.Clone(c.Settings)
					c.Settings[setting.Name] = to
				},
			})
		}
	}
	return all
}

// A Step is a step of training for which remedies are sought: a case at a batch size on a GPU, with its need.
type Step struct {
	setup             *step.Setup
	gpu               device.GPU
	batch             int
	allocated, device report.Interval
}

// Of estimates the step of a case. The error is [*step.RefusedError] if PyTorch would raise.
func Of(ctx context.Context, s *step.Setup, gpu device.GPU, batch int) (*Step, error) {
	d, err := judge.Of(ctx, s, gpu, batch)
	if err != nil {
		return nil, err
	}
	defer d.End()
	l := d.Loops[0]
	return &Step{s, gpu, batch, step.IntervalOf(l.Allocated), step.IntervalOf(l.Device)}, nil
}

// Remedies returns the mitigations for a step with their simulated savings of device bytes, the remaining need, and
// whether that is safe. Remedies that make the step safe come first, then the others that help; each group is sorted by
// its cost to the user. Remedies that save nothing, or that PyTorch or the model refuses, are left out. beyond is the
// memory of the process besides the step, in bytes: the first remedy removes it, with all others it stays.
func (n *Step) Remedies(ctx context.Context, beyond int64) ([]report.Remedy, error) {
	s, gpu, batch := n.setup, n.gpu, n.batch
	system, known, err := systems.Lookup(s.Model().Name)
	if err != nil {
		return nil, err
	}
	var out []report.Remedy
	if beyond > 0 {
		r, err := tried(ctx, s, gpu, mitigation{
			what:  "the data set and what else is not the step's on the host, one batch at a time on the GPU",
			batch: batch,
		}, 0)
		if err != nil {
			return nil, err
		}
		r.Saves = beyond
		out = append(out, r)
	}
	for _, m := range mitigations(s, batch) {
		r, err := tried(ctx, s, gpu, m, beyond)
		if step.Refused(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if r.Saves = n.device.Bytes + beyond - r.Then.Bytes; r.Saves <= 0 {
			continue
		}
		if known && m.reads != "" && !system.Reads(m.reads) {
			r.Needs = "a change of the code: " + system.Project + " does not read its " + m.reads
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b report.Remedy) int {
		return cmp.Or(report.TrueFirst(a.Unsafe == "", b.Unsafe == ""), report.TrueFirst(a.Needs == "", b.Needs == ""))
	})
	return out, nil
}

// tried returns the result of a mitigation, on a GPU where the process holds further bytes.
func tried(ctx context.Context, s *step.Setup, gpu device.GPU, m mitigation, beyond int64) (report.Remedy, error) {
	out := report.Remedy{What: m.what}
	c := s.Case()
	if m.change != nil {
		m.change(&c)
	}
	other, err := step.New(s.Model(), c, s.Evidence())
	if err != nil {
		return out, err
	}
	j := judge.Default(other, gpu, beyond)
	defer j.End()
	d, err := j.At(ctx, m.batch)
	if err != nil {
		return out, err
	}
	out.Then, out.Unsafe = step.IntervalOf(d.Loops[0].Device), report.Reason(d.Reason)
	out.Then.Bytes, out.Then.Low, out.Then.High = out.Then.Bytes+beyond, out.Then.Low+beyond, out.Then.High+beyond
	if beyond > 0 && out.Unsafe == "" && float64(out.Then.High) > planner.DefaultMargin*float64(gpu.Memory) {
		out.Unsafe = report.Reason(planner.OverShare) // what other processes hold is no share of this one
	}
	return out, nil
}

// A Peak is the highest memory of a training process in a log, snapshot or error, in bytes: of its tensors, or, with
// Device, as the driver counted.
type Peak struct {
	Bytes  int64
	Device bool
}

// A peak that exceeds the step by less than these is no finding: libraries differ by as much.
const (
	beyondBytes = 256 << 20
	beyondShare = 0.1
)

// Beyond compares a peak with the step. It returns the bytes that the step does not explain, with the finding; zero if
// the peak lies within the estimate.
func (n *Step) Beyond(seen Peak) (int64, report.Finding) {
	need, what := n.allocated, "tensors held"
	if seen.Device {
		need, what = n.device, "the process took"
	}
	beyond := seen.Bytes - need.Bytes
	if beyond < max(beyondBytes, int64(beyondShare*float64(need.Bytes))) || seen.Bytes <= need.High {
		return 0, report.Finding{}
	}
	return beyond, report.Finding{
		Kind: "not the step's",
		What: fmt.Sprintf("%s are on the GPU that the training step does not need", bytesize.Format(beyond)),
		Evidence: []string{fmt.Sprintf("%s %s; the step of %s, batch %d, needs %s (at most %s)", what,
			bytesize.Format(seen.Bytes), n.setup.Model().Name, n.batch, bytesize.Format(need.Bytes),
			bytesize.Format(need.High))},
		Advice: []string{
			"keep the data set on the host: build tensors without a device, and move each batch with .to(device)",
			"do not keep losses or outputs from step to step: append loss.item() or outputs.detach().cpu() to lists",
			"give --batch, precision and options as the run had them: vprof plan shows the step",
		},
	}
}

// Enlarge describes the memory of a batch that is a quarter larger, as advice for a GPU that is not full; empty if
// PyTorch or the model refuses that batch.
func (n *Step) Enlarge(ctx context.Context) (string, error) {
	then, err := Of(ctx, n.setup, n.gpu, n.batch+max(1, n.batch/4))
	if step.Refused(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("batch %d instead of %d needs %s more; vprof fit finds the largest that is safe", then.batch,
		n.batch, bytesize.Format(then.device.Bytes-n.device.Bytes)), nil
}
