package remedy

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
)

// A mitigation is a change that takes less memory.
type mitigation struct {
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

// mitigations are the changes that the guides advise against too much memory, by what they cost:
// first what costs nothing, then time, then precision, then what is trained.
func mitigations(s *step.Setup, batch int) []mitigation {
	var all []mitigation
	if !s.Allocator().Expandable {
		const expandable = "expandable_segments:True"
		all = append(all, mitigation{"PYTORCH_CUDA_ALLOC_CONF=" + expandable, batch, func(c *models.Case) { c.AllocConf = expandable }})
	}
	half, micro := batch/2, 2*s.Case().Accumulate
	if half > 0 {
		all = append(all, mitigation{
			what:  fmt.Sprintf("batch %d with %d micro-batches a step: as many samples a step as now", half, micro),
			batch: half, change: func(c *models.Case) { c.Accumulate = micro },
		})
	}
	if !s.Case().Checkpointing {
		all = append(all, mitigation{"gradient checkpointing", batch, func(c *models.Case) { c.Checkpointing = true }})
	}
	if s.Case().AMP == models.NoAutocast {
		all = append(all, mitigation{"autocast in fp16", batch, func(c *models.Case) { c.AMP = "fp16" }})
	}
	if half > 0 {
		all = append(all, mitigation{what: fmt.Sprintf("batch %d instead of %d", half, batch), batch: half})
	}
	for _, cut := range cuts {
		if now := s.Case().Settings[cut.setting]; now > 1 {
			to := now * cut.num / cut.den
			all = append(all, mitigation{fmt.Sprintf("%s %d instead of %d", cut.setting, to, now), batch, func(c *models.Case) {
				c.Settings = maps.Clone(c.Settings)
				c.Settings[cut.setting] = to
			}})
		}
	}
	return all
}

// For returns what the guides advise, in their order, each with what it would
// change in the device bytes of the case at this batch size. What PyTorch
// would refuse is left out.
func For(ctx context.Context, s *step.Setup, gpu device.GPU, batch int) ([]report.Remedy, error) {
	now, err := deviceBytes(ctx, s, gpu, batch)
	if err != nil {
		return nil, err
	}
	var out []report.Remedy
	for _, r := range mitigations(s, batch) {
		then, err := relieved(ctx, s, gpu, r)
		var refused *step.RefusedError
		if errors.As(err, &refused) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, report.Remedy{What: r.what, Saves: now - then})
	}
	rec, err := s.Record(ctx, batch, gpu)
	if err != nil {
		return nil, err
	}
	sample, err := s.Sample(ctx, gpu, rec)
	// What the cache does not use at the peak is the least that it can spare.
	return append(out, report.Remedy{What: "torch.cuda.empty_cache(), until the next peak", Saves: sample.Slack()}), err
}

// relieved is how many bytes the device needs with a mitigation.
func relieved(ctx context.Context, s *step.Setup, gpu device.GPU, r mitigation) (int64, error) {
	c := s.Case()
	if r.change != nil {
		r.change(&c)
	}
	other, err := step.New(s.Model(), c, s.Evidence())
	if err != nil {
		return 0, err
	}
	return deviceBytes(ctx, other, gpu, r.batch)
}

// Enlarge says what a quarter more of a batch would need, which is what the
// guides advise on a board that is not full.
func Enlarge(ctx context.Context, s *step.Setup, gpu device.GPU, batch int) (string, error) {
	now, err := deviceBytes(ctx, s, gpu, batch)
	if err != nil {
		return "", err
	}
	more := batch + max(1, batch/4)
	then, err := deviceBytes(ctx, s, gpu, more)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("batch %d instead of %d needs %s more; vprof fit finds the largest that is safe", more, batch, bytesize.Format(then-now)), nil
}

func deviceBytes(ctx context.Context, s *step.Setup, gpu device.GPU, batch int) (int64, error) {
	e, _, err := s.Estimated(ctx, gpu, batch)
	return e.Device.Value, err
}
