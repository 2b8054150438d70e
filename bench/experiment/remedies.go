package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
)

// A relief is a change that takes less memory.
type relief struct {
	what  string
	batch int
	// change makes the change of the case; nil for none.
	change func(*models.Case)
}

// cuts are the settings that the guides lower, and to how much of them.
var cuts = []struct {
	setting  string
	num, den int64
}{{"n-negatives", 2, 3}, {"n-patches", 1, 2}}

// reliefs are what the guides advise against too much memory, in their order.
func (l *Lab) reliefs(batch int) []relief {
	var all []relief
	if half := batch / 2; half > 0 {
		micro := 2 * l.c.Accumulate
		all = append(all, relief{what: fmt.Sprintf("batch %d instead of %d", half, batch), batch: half}, relief{
			what:  fmt.Sprintf("batch %d with %d micro-batches a step: as many samples a step as now", half, micro),
			batch: half, change: func(c *models.Case) { c.Accumulate = micro },
		})
	}
	for _, cut := range cuts {
		if now := l.c.Settings[cut.setting]; now > 1 {
			to := now * cut.num / cut.den
			all = append(all, relief{fmt.Sprintf("%s %d instead of %d", cut.setting, to, now), batch, func(c *models.Case) {
				c.Settings = maps.Clone(c.Settings)
				c.Settings[cut.setting] = to
			}})
		}
	}
	if l.c.AMP == models.NoAutocast {
		all = append(all, relief{"autocast in fp16", batch, func(c *models.Case) { c.AMP = "fp16" }})
	}
	if !l.c.Checkpointing {
		all = append(all, relief{"gradient checkpointing", batch, func(c *models.Case) { c.Checkpointing = true }})
	}
	if !l.conf.Expandable {
		const expandable = "expandable_segments:True"
		all = append(all, relief{"PYTORCH_CUDA_ALLOC_CONF=" + expandable, batch, func(c *models.Case) { c.AllocConf = expandable }})
	}
	return all
}

// Remedies are what the guides advise, in their order, each with what it would
// change in the device bytes of the lab's case at this batch size. What PyTorch
// would refuse is left out.
func (l *Lab) Remedies(ctx context.Context, gpu device.GPU, batch int) ([]report.Remedy, error) {
	now, err := l.deviceBytes(ctx, gpu, batch)
	if err != nil {
		return nil, err
	}
	var out []report.Remedy
	for _, r := range l.reliefs(batch) {
		then, err := l.relieved(ctx, gpu, r)
		var refused *RefusedError
		if errors.As(err, &refused) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, report.Remedy{What: r.what, Saves: now - then})
	}
	s, err := l.sample(ctx, gpu, batch)
	clear(l.kept)
	// What the cache does not use at the peak is the least that it can spare.
	return append(out, report.Remedy{What: "torch.cuda.empty_cache(), until the next peak", Saves: s.Slack()}), err
}

// relieved are the device bytes with a relief.
func (l *Lab) relieved(ctx context.Context, gpu device.GPU, r relief) (int64, error) {
	c := l.c
	if r.change != nil {
		r.change(&c)
	}
	other, err := NewLab(l.model, c, l.residuals)
	if err != nil {
		return 0, err
	}
	other.Learn(l.learned)
	return other.deviceBytes(ctx, gpu, r.batch)
}

// Enlarged says what a quarter more of a batch would need, which is what the
// guides advise on a board that is not full.
func (l *Lab) Enlarged(ctx context.Context, gpu device.GPU, batch int) (string, error) {
	now, err := l.deviceBytes(ctx, gpu, batch)
	if err != nil {
		return "", err
	}
	more := batch + max(1, batch/4)
	then, err := l.deviceBytes(ctx, gpu, more)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("batch %d instead of %d needs %s more; vprof fit finds the largest that is safe", more, batch, size(float64(then-now))), nil
}

func (l *Lab) deviceBytes(ctx context.Context, gpu device.GPU, batch int) (int64, error) {
	p, err := l.planner(ctx, gpu, []int{batch})
	clear(l.kept)
	if err != nil {
		return 0, err
	}
	e, err := p.Estimate(batch)
	return e.Device.Value, err
}
