package report

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/vprof/vprof/models"
)

// maxBytes limits amounts of memory. It is far above any GPU: estimates may exceed GPUs.
const maxBytes = 1 << 60

// check returns an error for values that no writer of the schema produces.
func (r *Report) check() error {
	switch {
	case r.Schema != Schema:
		return fmt.Errorf("the schema is %q%s", r.Schema, schemaReaders[r.Schema])
	case r.Kind != Plan && r.Kind != Sweep:
		return fmt.Errorf("the kind is %q: need plan or sweep", r.Kind)
	case r.Case.Model == "":
		return errors.New("the case names no model; export the result again")
	case r.Case.Dataset < 0:
		return errors.New("the case has a negative number of samples; export the result again")
	}
	if err := checkAccumulate(r.Case.Case); err != nil {
		return err
	}
	for i, d := range r.Devices {
		if err := d.check(); err != nil {
			return err
		}
		if slices.ContainsFunc(r.Devices[:i], func(other Device) bool { return other.Name == d.Name }) {
			return fmt.Errorf("device %q appears twice; list each device once", d.Name)
		}
	}
	for _, c := range r.Coefficients {
		if c.StdErr < 0 {
			return fmt.Errorf("coefficient %s has a negative standard error; need 0 or more", c.Name)
		}
	}
	for _, p := range r.Points {
		if err := p.check(r); err != nil {
			return err
		}
	}
	return nil
}

// checkAccumulate returns an error for an invalid number of micro-batches; zero stands for one.
func checkAccumulate(c models.Case) error {
	if c.Accumulate == 0 {
		return nil
	}
	return models.CheckAccumulate(c.Accumulate)
}

// checkPoints returns an error for points that appear twice.
func (r *Report) checkPoints() error {
	points := slices.Clone(r.Points)
	order := func(a, b Point) int { return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Batch, b.Batch)) }
	slices.SortFunc(points, order)
	for i := 1; i < len(points); i++ {
		if order(points[i-1], points[i]) == 0 {
			return fmt.Errorf("batch %d on %s appears twice; keep one of the two points",
				points[i].Batch, points[i].Device)
		}
	}
	return nil
}

func (d Device) check() error {
	if d.Memory < 0 || d.Context < 0 || d.Context > d.Memory {
		return fmt.Errorf("device %q: its %d bytes of memory are less than the %d bytes of its CUDA context",
			d.Name, d.Memory, d.Context)
	}
	const most = 1 << 16 // far more than any GPU has
	if least, highest := min(d.SMs, d.ThreadsPerSM, d.MHz), max(d.SMs, d.ThreadsPerSM, d.MHz); least < 0 ||
		highest > most {
		return fmt.Errorf("device %q: %d multiprocessors, %d threads each, %d MHz: need numbers from 0 to %d", d.Name,
			d.SMs, d.ThreadsPerSM, d.MHz, most)
	}
	return nil
}

func (p *Point) check(r *Report) error {
	_, known := r.Find(p.Device)
	if err := models.CheckBatch(p.Batch); err != nil {
		return err
	}
	switch {
	case !known:
		return fmt.Errorf("batch %d: its device %q is not in the list of devices; add it there", p.Batch, p.Device)
	case p.Estimate == nil && p.Run == nil:
		return fmt.Errorf("batch %d has neither an estimate nor a run; remove it, or export the result again", p.Batch)
	}
	err := cmp.Or(
		p.Estimate.check(), p.Streamed.check("streamed_device"), p.Expandable.check("expandable_device"),
		p.Lengths.check(), p.Run.check(),
	)
	if err != nil {
		return fmt.Errorf("batch %d: %w", p.Batch, err)
	}
	return nil
}

func (i *Interval) check(name string) error {
	if i != nil && (i.Low < 0 || i.Low > i.Bytes || i.Bytes > i.High || i.High > maxBytes) {
		return fmt.Errorf("%s: %d bytes must lie in the interval from %d to %d", name, i.Bytes, i.Low, i.High)
	}
	return nil
}

func (e *Estimate) check() error {
	if e == nil {
		return nil
	}
	if !slices.Contains(verdicts, e.Verdict) {
		return fmt.Errorf("the estimate's verdict is %q: need one of %q", e.Verdict, verdicts)
	}
	if o := e.OtherLoop; o != nil && (o.Device < 0 || o.Device > maxBytes) {
		return fmt.Errorf("the estimate: other_loop: %d bytes are out of range; need 0 or more", o.Device)
	}
	return cmp.Or(
		e.Host.check(), e.Evaluation.check(),
		e.Allocated.check("the estimate: allocated"), e.Reserved.check("its estimate: reserved"),
		e.Device.check("the estimate: device"),
		checkSum("the estimate: components", e.Components, "device", e.Device.Bytes),
	)
}

func checkSum(name string, parts []Component, of string, total int64) error {
	var sum int64
	for i, c := range parts {
		if c.Bytes < 0 || c.Bytes > maxBytes {
			return fmt.Errorf("%s: %s: %d bytes are out of range; need 0 or more", name, c.Name, c.Bytes)
		}
		if slices.ContainsFunc(parts[:i], func(other Component) bool { return other.Name == c.Name }) {
			return fmt.Errorf("%s: %s appears twice; keep one entry", name, c.Name)
		}
		if sum += c.Bytes; sum > total {
			break // before it overflows
		}
	}
	if sum != total {
		return fmt.Errorf("%s: the bytes of its entries must add up to the %d bytes of %s", name, total, of)
	}
	return nil
}

// check returns an error for values that no run can have.
func (u *Run) check() error {
	if u == nil {
		return nil
	}
	switch {
	case min(u.Requested, u.Allocated, u.Reserved, u.Device, u.Context, u.Kernels, u.OtherProcessBytes, u.Process) < 0:
		return errors.New("the run has a negative number of bytes; need 0 or more")
	case max(u.Reserved, u.Device, u.OtherProcessBytes, u.Process) > maxBytes:
		return fmt.Errorf("the run has a number of bytes above the largest possible one, %d", int64(maxBytes))
	case u.Requested > u.Allocated:
		return fmt.Errorf("the run has more requested bytes (%d) than allocated bytes (%d); export it again",
			u.Requested, u.Allocated)
	case u.Allocated > u.Reserved:
		return fmt.Errorf("the run has more allocated bytes (%d) than reserved bytes (%d); export it again",
			u.Allocated, u.Reserved)
	case u.Device > 0 && u.Reserved > u.Device:
		return fmt.Errorf("the run has more reserved bytes (%d) than bytes on the device (%d); export it again",
			u.Reserved, u.Device)
	case u.Fits && u.OOM != nil:
		return errors.New("the run is marked both as fitting and as out of memory; keep one of fits and oom")
	case min(u.WarmUp, u.Repeat, u.Verified) < 0 || u.Retries < 0:
		return errors.New("the run has a negative count (warm_up, repeat, verified or retries); need 0 or more")
	}
	for _, p := range u.Phases {
		if err := u.checkPhase(p); err != nil {
			return err
		}
	}
	if t := u.Step; t != nil && (t.Least < 0 || t.Least > t.Seconds || t.Seconds > t.Most || t.SamplesPerSecond < 0) {
		return fmt.Errorf("the run: a step time of %v s must lie between its least and most, %v s and %v s",
			t.Seconds, t.Least, t.Most)
	}
	if len(u.Classes) == 0 {
		return nil
	}
	return checkSum("the run: classes", u.Classes, "allocated_bytes", u.Allocated)
}

func (u *Run) checkPhase(p Phase) error {
	if min(int64(p.Step), p.Allocated, p.Reserved) < 0 || p.Seconds < 0 ||
		p.Allocated > p.PeakAllocated || p.Reserved > p.PeakReserved || p.PeakAllocated > u.Allocated ||
		p.PeakReserved > u.Reserved {
		return fmt.Errorf("the run: phase %d (%s): need allocated %d <= its peak %d <= the run's peak %d bytes, and "+
			"reserved %d <= its peak %d <= the run's peak %d bytes",
			p.Step, p.Name, p.Allocated, p.PeakAllocated, u.Allocated, p.Reserved, p.PeakReserved, u.Reserved)
	}
	return nil
}
