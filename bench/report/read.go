package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// A FormatError says that a file does not hold reports.
type FormatError struct {
	File   string
	Reason string
}

func (e *FormatError) Error() string { return e.File + ": " + e.Reason }

// Read reads the reports of a file: one as JSON, or one a line. Lines of the
// same work are put together again. File is the name for errors, which are
// [*FormatError].
func Read(file string, r io.Reader) ([]*Report, error) {
	var reports []*Report
	d := json.NewDecoder(r)
	for n := 1; ; n++ {
		var one Report
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = one.check()
		}
		if err != nil {
			return nil, &FormatError{file, fmt.Sprintf("value %d is not a %s report: %v", n, Schema, err)}
		}
		reports = join(reports, &one)
	}
	if len(reports) == 0 {
		return nil, &FormatError{file, "is empty; make one with \"vprof sweep --export run.json\""}
	}
	return reports, nil
}

// check finds what a writer of the schema cannot have written.
func (r *Report) check() error {
	switch {
	case r.Schema != Schema:
		return fmt.Errorf("its schema is %q", r.Schema)
	case r.Kind != Plan && r.Kind != Sweep:
		return fmt.Errorf("its kind is %q", r.Kind)
	case r.Case.Model == "":
		return errors.New("its case names no model")
	}
	for _, p := range r.Points {
		_, known := r.Find(p.Device)
		switch {
		case p.Batch < 1:
			return fmt.Errorf("%d is not a batch size", p.Batch)
		case !known:
			return fmt.Errorf("batch %d is of device %q, which it does not describe", p.Batch, p.Device)
		case p.Estimate == nil && p.Run == nil:
			return fmt.Errorf("batch %d has neither an estimate nor a run", p.Batch)
		}
		if err := p.Run.check(); err != nil {
			return fmt.Errorf("batch %d: %w", p.Batch, err)
		}
	}
	return nil
}

// check finds bytes that no run can have seen.
func (u *Run) check() error {
	switch {
	case u == nil:
		return nil
	case min(u.Requested, u.Allocated, u.Reserved, u.Device, u.Kernels, u.Others) < 0:
		return errors.New("its run has negative bytes")
	case u.Allocated > u.Reserved:
		return fmt.Errorf("its run has %d bytes allocated of %d reserved", u.Allocated, u.Reserved)
	case u.Device > 0 && u.Reserved > u.Device:
		return fmt.Errorf("its run has %d bytes reserved of %d on the device", u.Reserved, u.Device)
	}
	return nil
}

// join adds a report to a list: to the last one's points if the two are lines
// of the same work.
func join(reports []*Report, r *Report) []*Report {
	if n := len(reports); n > 0 {
		last := reports[n-1]
		if last.Kind == r.Kind && last.Started.Equal(r.Started) && last.Case.Same(r.Case) {
			for _, d := range r.Devices {
				if _, known := last.Find(d.Name); !known {
					last.Devices = append(last.Devices, d)
				}
			}
			last.Points = append(last.Points, r.Points...)
			return reports
		}
	}
	return append(reports, r)
}

// Same tells whether two cases are one.
func (c Case) Same(d Case) bool {
	return c.String() == d.String() && bytes.Equal(compact(c.Config), compact(d.Config))
}

// compact is JSON without the white space that a file's layout brings.
func compact(text json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return text
	}
	return b.Bytes()
}

// Batches are the batch sizes of the points, ascending.
func (r *Report) Batches() []int {
	var sizes []int
	for _, p := range r.Points {
		sizes = append(sizes, p.Batch)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// Components are of what the device's memory consists: those of the estimate,
// which sum to its device bytes, or else the classes of the run.
func (p Point) Components() []Component {
	if p.Estimate != nil {
		return p.Estimate.Components
	}
	return p.Run.Classes
}
