package smoke

import (
	"context"
	"math"

	"github.com/vprof/vprof/bench/experiment/epoch"
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
	l, need, err := m.replayEpochs(ctx, c.Batch)
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

// replayEpochs replays epochs over the data set's lengths at a batch size. need is the number
// of bytes of the device that they take, which is compared with the limit of the budget.
func (m *checks) replayEpochs(ctx context.Context, batch int) (l *report.Lengths, need int64, err error) {
	l, err = epoch.Run(ctx, m.whole, m.gpu, batch, m.test.Lengths,
		epoch.Options{Others: m.test.Others, Progress: m.test.Progress})
	if err != nil {
		return nil, 0, err
	}
	d := l.Worst.Device
	if l.MostDevice != nil {
		d = *l.MostDevice
	}
	return l, m.budget.Need(planner.Estimate{Device: planner.Interval{Value: d.Bytes, Low: d.Low, High: d.High}}), nil
}

// needOfEpochs is the number of bytes that must stay within the limit at a batch size for
// epochs; zero where all samples are alike, [math.MaxInt64] if an epoch runs out of memory
// or gets through only by giving back cached memory.
func (m *checks) needOfEpochs(ctx context.Context, batch int) (int64, error) {
	if m.test.Lengths == nil {
		return 0, nil
	}
	l, need, err := m.replayEpochs(ctx, batch)
	if err == nil && l.Epochs.Strained() {
		need = math.MaxInt64
	}
	return need, err
}
