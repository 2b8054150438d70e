package report

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
)

// notOneReport begins the error about reports that do not merge.
const notOneReport = "these reports cannot be merged into one"

// Merge merges the reports of jobs of one case, in their order, into the report of one job for all of their devices and
// batch sizes. Parts of a sweep that found the largest batch must be of one GPU; see [MergeSweeps] for several. The
// error means bad input.
func Merge(reports ...*Report) (*Report, error) {
	if len(reports) == 0 {
		return nil, input.Errorf("%s: there are no results; name some", notOneReport)
	}
	reports = lists.Map(reports, shallowCopy)
	NameDevices(reports...)
	whole := *reports[0]
	whole.Agreement = nil // which was a part's
	whole.Devices, whole.Coefficients = slices.Clone(whole.Devices), slices.Clone(whole.Coefficients)
	whole.Points, whole.Warnings = slices.Clone(whole.Points), slices.Clone(whole.Warnings)
	for _, r := range reports[1:] {
		if err := whole.addPart(r); err != nil {
			return nil, input.Errorf("%s: %w", notOneReport, err)
		}
	}
	if err := whole.checkPoints(); err != nil {
		return nil, input.Errorf("%s: %w", notOneReport, err)
	}
	if err := whole.finishMerge(reports); err != nil {
		return nil, input.Errorf("%s: %w", notOneReport, err)
	}
	return &whole, nil
}

func shallowCopy(r *Report) *Report { return new(*r) }

// finishMerge sets the end of the merged sweep: the first batch size that does not fit, and the largest that does.
func (r *Report) finishMerge(parts []*Report) error {
	r.Stopped, r.Largest = nil, nil
	var tried []int
	stopped := false
	for _, p := range parts {
		tried = append(tried, p.Batches()...)
		if s := p.Stopped; s != nil {
			stopped = true
			tried = append(tried, s.Left...)
		}
		if l := p.Largest; l != nil {
			if r.Largest == nil {
				r.Largest = &Largest{}
			}
			r.Largest.Batch = max(r.Largest.Batch, l.Batch)
			r.Largest.Predicted = max(r.Largest.Predicted, l.Predicted)
			if l.FirstFailing > 0 && (r.Largest.FirstFailing == 0 || l.FirstFailing < r.Largest.FirstFailing) {
				r.Largest.FirstFailing = l.FirstFailing
			}
		}
	}
	switch {
	case !stopped && r.Largest == nil:
		return nil
	case len(r.Devices) > 1:
		return errors.New("sweeps that ran out of memory can be merged only if all ran on one GPU; merge the sweeps " +
			"of each GPU separately")
	}
	slices.SortStableFunc(r.Points, func(a, b Point) int { return cmp.Compare(a.Batch, b.Batch) })
	failed := slices.IndexFunc(r.Points, func(p Point) bool { return p.Run != nil && !p.Run.Fits })
	if !stopped || failed < 0 {
		return nil
	}
	r.Points = r.Points[:failed+1]
	end := r.Points[failed].Batch
	slices.Sort(tried)
	left := slices.DeleteFunc(slices.Compact(tried), func(b int) bool { return b <= end })
	r.Stopped = StoppedByOOM(end, left)
	return nil
}

func (r *Report) addPart(part *Report) error {
	switch {
	case r.Kind != part.Kind:
		return fmt.Errorf("one result is a %s, another a %s; merge results of one kind", r.Kind, part.Kind)
	case !r.Case.Same(part.Case):
		return fmt.Errorf("one result is of %s, another of %s; merge results of one case", r.Case, part.Case)
	}
	for _, d := range part.Devices {
		known, ok := r.Find(d.Name)
		if ok && known != d {
			return fmt.Errorf("the GPU %s is %s in one result and %s in another; merge results of the same GPU",
				d.Name, known, d)
		}
		if !ok {
			r.Devices = append(r.Devices, d)
		}
	}
	r.Coefficients = lists.Union(r.Coefficients, part.Coefficients...)
	r.Warnings = lists.Union(r.Warnings, part.Warnings...)
	r.Points = append(r.Points, part.Points...)
	r.Refused = lists.Union(r.Refused, part.Refused...)
	return nil
}

// MergeSweeps merges the parts of sweeps by GPU. The result for a GPU is as from one process, which ends at the first
// batch size that does not fit. The error means bad input.
func MergeSweeps(parts ...*Report) ([]*Report, error) {
	parts = lists.Map(parts, shallowCopy)
	NameDevices(parts...)
	var sweeps, single []*Report
	for _, r := range parts {
		single = append(single, lists.Map(r.Devices, r.forDevice)...)
	}
	for _, of := range lists.Groups(single, func(r *Report) Device { return r.Devices[0] }) {
		whole, err := Merge(of...)
		if err != nil {
			return nil, err
		}
		sweeps = append(sweeps, whole)
	}
	if len(sweeps) == 0 {
		return nil, input.Errorf("%s: there are no results; name some", notOneReport)
	}
	return sweeps, nil
}

// StoppedByOOM returns the reason why a sweep ends at the first batch that does not fit; left are those not run.
func StoppedByOOM(batch int, left []int) *Stopped {
	return &Stopped{Batch: batch, Left: left, Reason: fmt.Sprintf("out of memory at batch %d", batch)}
}
