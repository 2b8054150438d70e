package report

import (
	"errors"
	"fmt"
	"slices"
)

// A MergeError says why reports are not parts of one.
type MergeError struct{ Reason string }

func (e *MergeError) Error() string { return "the reports are not parts of one: " + e.Reason }

// Usage marks the error as bad input.
func (*MergeError) Usage() bool { return true }

// Merge puts the reports of jobs of one case together, in their order: what one
// job for all of their devices and batch sizes would have given. The error is a
// [*MergeError].
func Merge(reports ...*Report) (*Report, error) {
	if len(reports) == 0 {
		return nil, &MergeError{"there are none"}
	}
	reports = slices.Clone(reports)
	for i, r := range reports {
		part := *r
		reports[i] = &part
	}
	Apart(reports...)
	whole := *reports[0]
	whole.Devices, whole.Coefficients = slices.Clone(whole.Devices), slices.Clone(whole.Coefficients)
	whole.Points, whole.Warnings = slices.Clone(whole.Points), slices.Clone(whole.Warnings)
	for _, r := range reports[1:] {
		if err := whole.add(r); err != nil {
			return nil, &MergeError{err.Error()}
		}
	}
	if err := whole.checkPoints(); err != nil {
		return nil, &MergeError{err.Error()}
	}
	return &whole, nil
}

// add puts a part behind the others.
func (r *Report) add(part *Report) error {
	switch {
	case r.Kind != part.Kind:
		return fmt.Errorf("one is a %s, another a %s", r.Kind, part.Kind)
	case !r.Case.Same(part.Case):
		return fmt.Errorf("one is of %s, another of %s", r.Case, part.Case)
	case r.Stopped != nil || part.Stopped != nil || r.Largest != nil || part.Largest != nil:
		return errors.New("a sweep that found where a board ends stands for itself")
	}
	for _, d := range part.Devices {
		known, ok := r.Find(d.Name)
		if ok && known != d {
			return fmt.Errorf("%s is %s in one and %s in another", d.Name, known, d)
		}
		if !ok {
			r.Devices = append(r.Devices, d)
		}
	}
	r.Coefficients = union(r.Coefficients, part.Coefficients)
	r.Warnings = union(r.Warnings, part.Warnings)
	r.Points = append(r.Points, part.Points...)
	return nil
}

// union are the elements of a and then those of b that a does not have.
func union[T comparable](a, b []T) []T {
	for _, x := range b {
		if !slices.Contains(a, x) {
			a = append(a, x)
		}
	}
	return a
}

// MergeSweeps puts the parts of a sweep over batch sizes together, in ascending order
// of them: what one process would have given, which ends at the first that does not
// fit. Parts that ran on several boards are several sweeps. Batches are those of the
// whole. The error is a [*MergeError].
func MergeSweeps(batches []int, parts ...*Report) ([]*Report, error) {
	for i, r := range parts {
		part := *r
		part.Stopped = nil // of the whole, not of a part
		parts[i] = &part
	}
	whole, err := Merge(parts...)
	if err != nil {
		return nil, err
	}
	var sweeps []*Report
	for _, d := range whole.Devices {
		r := whole.on(d)
		i := slices.IndexFunc(r.Points, func(p Point) bool { return p.Run != nil && !p.Run.Fits })
		if i >= 0 {
			failed := r.Points[i].Batch
			r.Points = r.Points[:i+1]
			left := slices.DeleteFunc(slices.Clone(batches), func(b int) bool { return b <= failed })
			r.Stopped = OutOfMemory(failed, left)
		}
		sweeps = append(sweeps, r)
	}
	return sweeps, nil
}

// OutOfMemory is why a sweep ends at the first batch size that does not fit; left are
// those that do not run.
func OutOfMemory(batch int, left []int) *Stopped {
	return &Stopped{Batch: batch, Left: left, Reason: fmt.Sprintf("out of memory at batch %d", batch)}
}
