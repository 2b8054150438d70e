package main

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/printable"
)

// share writes what was measured on real GPUs as lines without names, after showing them.
func (o *accuracyOptions) share() error {
	all, err := o.measured()
	if err != nil {
		return err
	}
	listed := map[string]bool{}
	for _, name := range o.app.models().Names() {
		listed[name] = true
	}
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	for _, m := range all {
		if err := lines.Encode(m.Anonymous(listed[m.Case.Model])); err != nil {
			return err
		}
	}
	printable.Fprintf(o.app.stdout, "%s", text.String())
	if o.shared == "-" {
		return nil
	}
	err = report.WriteFile(o.shared, func(w io.Writer) error {
		_, err := text.WriteTo(w)
		return err
	})
	if err != nil {
		return err
	}
	printable.Fprintf(o.app.stderr, "vprof: these %d lines are in %s; docs/evidence.md says where they may go\n",
		len(all), o.shared)
	return nil
}

// isReport reports whether a file that begins so is a result of vprof's sweep, plan or run.
func isReport(head []byte) bool { return bytes.Contains(head, []byte(`"`+report.Schema+`"`)) }

// beginning are the first bytes of a file; what is wrong with it is said by whoever reads it.
func beginning(path string) []byte {
	f, err := input.OpenFile(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	head := make([]byte, 4096)
	n, _ := io.ReadFull(f, head)
	return head[:n]
}

// measured are the runs on real GPUs that the files hold: results of vprof, and lines of callbacks.
func (o *accuracyOptions) measured() ([]reference.Measured, error) {
	defer input.Begin()()
	var all []reference.Measured
	for _, path := range o.files {
		if isReport(beginning(path)) {
			data, name, err := o.app.readAll(path)
			if err != nil {
				return nil, err
			}
			reports, err := report.Read(name, bytes.NewReader(data))
			if err != nil {
				return nil, usageError{err}
			}
			for _, r := range reports {
				all = append(all, reference.MeasuredBy(r)...)
			}
			continue
		}
		f, err := reference.Open(path)
		if err != nil {
			return nil, usageError{err}
		}
		for _, r := range f.Records {
			if r.Measured != nil && !r.Measured.Simulated {
				all = append(all, *r.Measured)
			}
		}
	}
	if len(all) == 0 {
		return nil, usagef("--share: nothing in these files was measured on a GPU, and what was simulated is no " +
			"evidence. Lines of the callbacks of vprof_gpu, and results of sweep --device, run --device and " +
			"run --both are")
	}
	return all, nil
}
