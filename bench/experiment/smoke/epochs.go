package smoke

import (
	"context"
	"math"

	"github.com/vprof/vprof/bench/experiment/epoch"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/profiler/planner"
)

// epochs checks whether training gets through epochs over samples of different lengths. All
// further checks then use the worst batch of these epochs. It does nothing if all samples are
// alike.
func (m *checks) epochs(ctx context.Context) error {
	m.whole = m.setup
	if m.test.Lengths == nil {
		return nil
	}
	c := m.setup.Case()
	l, need, err := m.replayEpochs(ctx, c.Batch, epoch.Options{})
	if err != nil {
		return err
	}
	device, reserved := l.Worst.Device, l.Worst.Reserved.Bytes
	if l.MostDevice != nil {
		device, reserved = *l.MostDevice, max(l.Worst.Allocated.Bytes, l.Epochs.Most)
	}
	m.epoch = &report.Check{
		Name: "epoch", Note: "samples of different lengths, one allocator", Simulated: true,
		Allocated: l.Worst.Allocated.Bytes, Reserved: reserved, Device: device.Bytes, Need: need,
		Fits:      l.Epochs.OutOfMemory == 0 && device.Bytes <= m.budget.Memory,
		GivesBack: l.Epochs.OutOfMemory == 0 && l.Epochs.Slow > 0, Lengths: l,
	}
	switch {
	case l.Epochs.OutOfMemory > 0:
		m.epoch.Reason = report.Reason(planner.OutOfMemory)
	case l.Epochs.Strained():
		m.epoch.Reason = report.Reason(planner.GivesBack)
	default:
		m.epoch.Reason = report.Reason(m.budget.Judge(need))
	}
	m.epoch.Safe = m.epoch.Reason == ""
	m.setup = m.setup.For(m.test.Lengths.Worst(m.test.Model, c, l))
	return nil
}

// replayEpochs replays epochs over the data set's lengths at a batch size. need is the number of bytes of the device
// that they take, which is compared with the limit of the budget.
func (m *checks) replayEpochs(ctx context.Context, batch int, o epoch.Options) (
	l *report.Lengths, need int64, err error,
) {
	o.Others, o.Progress = m.test.Others, m.test.Progress
	l, err = epoch.Run(ctx, m.whole, m.gpu, batch, m.test.Lengths, o)
	if err != nil {
		return nil, 0, err
	}
	d := l.Worst.Device
	if l.MostDevice != nil {
		d = *l.MostDevice
	}
	return l, m.budget.Need(planner.Estimate{Device: planner.Interval{Value: d.Bytes, Low: d.Low, High: d.High}}), nil
}

// largestOfEpochs is the largest batch up to one with which epochs get through within the limit; zero if none is. A
// quick look leads there, and all epochs must then agree.
func (m *checks) largestOfEpochs(ctx context.Context, to int) (int, error) {
	all := epoch.Options{Within: m.budget.Limit()}
	largest, err := step.Largest(&planner.Search{
		From: 1, To: to, Begin: planner.Start{Batch: to, Near: true}, Limit: m.budget.Limit(), Runs: true,
		Need: func(batch int) (int64, error) { return m.needOfEpochs(ctx, batch, all.Quick()) },
	})
	for ; err == nil && largest > 0; largest-- {
		var need int64
		if need, err = m.needOfEpochs(ctx, largest, all); need <= m.budget.Limit() {
			break
		}
	}
	return largest, err
}

// needOfEpochs is the number of bytes that must stay within the limit at a batch size for
// epochs: [math.MaxInt64] if one runs out of memory or gets through only by giving back cached memory.
func (m *checks) needOfEpochs(ctx context.Context, batch int, o epoch.Options) (int64, error) {
	l, need, err := m.epoch.Lengths, m.epoch.Need, error(nil)
	if batch != m.smoke.Batch {
		l, need, err = m.replayEpochs(ctx, batch, o)
	}
	if err == nil && l.Epochs.Strained() {
		need = math.MaxInt64
	}
	return need, err
}
