package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/accuracy"
	"github.com/vprof/vprof/bench/job"
	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/printable"
	"github.com/vprof/vprof/internal/progress"
)

type accuracyOptions struct {
	app   *app
	files []string
	cases []string
	// models is the folder with the files of exported models.
	models string
	// shared is the file for anonymous measurements, "-" for none.
	shared string
	part   shardFlags
	out    output
}

func newAccuracyCmd(a *app) *cobra.Command {
	o := &accuracyOptions{app: a, out: output{app: a}}
	cmd := &cobra.Command{
		Use:   "accuracy FILE...",
		Short: "Compare estimates with records of PyTorch",
		Args: argCount(1, unlimitedArgs,
			"name the reference files to compare with (there are some in bench/reference/data)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.files = args
			if o.shared != "" {
				return o.anonymize()
			}
			return runAccuracy(cmd.Context(), o)
		},
	}
	cmd.Flags().StringSliceVar(&o.cases, "case", nil, "estimate only the records of these `models`")
	cmd.Flags().StringVar(&o.models, "models", "",
		"`folder` with the .pt2 files of exported models in the records, such as timm-resnet18.pt2 for timm:resnet18")
	cmd.Flags().StringVar(&o.shared, "share", "",
		"show measurements from GPUs and write them to `file`, without names or paths; - only shows them")
	o.part.register(cmd.Flags())
	return o.out.register(cmd)
}

func runAccuracy(ctx context.Context, o *accuracyOptions) error {
	if path := o.files[0]; len(o.files) == 1 && path != "-" {
		rows, ok, err := reference.OpenPublished(path)
		switch {
		case ok && err != nil:
			return err
		case ok:
			return o.out.withProgress(func(step progress.Func) (report.Document, error) {
				all, err := o.app.publishedRows(ctx, rows, filepath.Dir(path), step)
				return report.PublishedOf(all), err
			})
		}
	}
	records, err := o.readRecords()
	if err != nil {
		return err
	}
	if done, err := o.part.runShardIfSet(func() error { return o.shard(ctx, records) }); done {
		return err
	}
	return o.out.withProgress(func(step progress.Func) (report.Document, error) {
		return accuracy.Compare(ctx, records,
			accuracy.Recorder{Models: o.app.models().WithSource(reference.FineTuned())}, step)
	})
}

func (o *accuracyOptions) readRecords() ([]reference.Record, error) {
	defer input.BeginReading()()
	var records []reference.Record
	var errs []error
	for _, path := range o.files {
		var f *reference.File
		var err error
		if path == "-" {
			f, err = reference.Read(o.app.stdin, "stdin")
		} else {
			f, err = reference.Open(path)
		}
		switch {
		case errors.As(err, new(*input.FormatError)):
			errs = append(errs, err)
			continue
		case err != nil:
			errs = append(errs, usageError{err})
			continue
		}
		for _, r := range f.Records {
			if len(o.cases) > 0 && !slices.Contains(o.cases, r.Model) {
				continue
			}
			if r.Exported {
				if o.models == "" {
					return nil,
						usagef("%s: its records describe exported models (.pt2): name the folder of those files with "+
							"--models", path)
				}
				r.Model = filepath.Join(o.models, reference.FileName(r.Model))
			}
			records = append(records, r)
		}
	}
	if len(errs) == 0 && len(records) == 0 {
		return nil, usagef("name the files of reference records to compare with, such as records.jsonl")
	}
	return records, errors.Join(errs...)
}

// recordsPerChunk is the number of records that are compared before their results are written.
const recordsPerChunk = 256

// shard compares a part of the records.
func (o *accuracyOptions) shard(ctx context.Context, records []reference.Record) error {
	p, err := newShardPlan("accuracy", len(records), records)
	if err != nil {
		return err
	}
	return o.part.run(ctx, o.app, p, nil,
		func(ctx context.Context, from, to int, _ json.RawMessage, _ func(any) error) (int, any, error) {
			to = min(to, from+recordsPerChunk)
			a, err := accuracy.Compare(ctx, records[from:to], accuracy.Recorder{Models: o.app.models()}, nil)
			return to - from, a, err
		})
}

func (o *accuracyOptions) anonymize() error {
	all, err := o.readMeasuredRuns()
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
	printable.Fprintf(o.app.stderr, "vprof: wrote these %d lines to %s; docs/lab/evidence.md says where to send them\n",
		len(all), o.shared)
	return nil
}

// isReport reports whether a file with this beginning is a result of sweep, plan or run.
func isReport(head []byte) bool { return bytes.Contains(head, []byte(`"`+report.Schema+`"`)) }

// firstBytes returns the first bytes of a file; none if it cannot be read, which the later read of the file reports.
func firstBytes(path string) []byte {
	f, err := input.OpenFile(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	head := make([]byte, 4096)
	n, _ := io.ReadFull(f, head)
	return head[:n]
}

// readMeasuredRuns returns the runs on real GPUs in the files: results of vprof, and lines of the Python callbacks.
func (o *accuracyOptions) readMeasuredRuns() ([]reference.Measured, error) {
	defer input.BeginReading()()
	var all []reference.Measured
	for _, path := range o.files {
		if isReport(firstBytes(path)) {
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
		return nil, usagef("--share: no file has measurements from a GPU; name a log of vprof_gpu's callbacks, or a " +
			"result of sweep --device, run --device or run --both")
	}
	return all, nil
}

// publishedRows returns published measurements with their plans.
func (a *app) publishedRows(ctx context.Context, rows []reference.Published, folder string, step progress.Func) (
	all []report.PublishedRow, err error,
) {
	planned := map[string]*report.Estimate{}
	refused := map[string]string{"": ""}
	for i, p := range rows {
		step("figures", i, len(rows))
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		row := p.PublishedRow
		row.Refused = p.Missing
		if _, tried := planned[p.Command]; !tried && p.Command != "" {
			e, err := a.estimateCommand(ctx, p.Command, folder)
			if planned[p.Command] = e; err != nil {
				refused[p.Command] = err.Error()
			}
		}
		if e := planned[p.Command]; e != nil {
			active := report.Interval{Bytes: e.Allocated.Bytes, Low: e.Allocated.Low, High: e.Reserved.High}
			of := map[string]*report.Interval{
				"allocated": &e.Allocated, "active": &active, "reserved": &e.Reserved, "device": &e.Device,
			}
			row.Estimate = of[p.Kind]
		} else if p.Command != "" {
			row.Refused = refused[p.Command]
		}
		all = append(all, row)
	}
	return all, nil
}

// estimateCommand returns the estimate of a plan for one GPU and batch size; folder is where the plan finds its files.
func (a *app) estimateCommand(ctx context.Context, command, folder string) (*report.Estimate, error) {
	words := joinOptionalValues(strings.Fields(command)[1:])
	for i, w := range words {
		if file, ok := strings.CutPrefix(w, "hf:"); ok && !filepath.IsAbs(file) {
			words[i] = "hf:" + filepath.Join(folder, file)
		}
	}
	cmd, o := planCmd(a)
	if err := cmd.ParseFlags(words); err != nil {
		return nil, err
	}
	if rest := cmd.Flags().Args(); len(rest) > 0 {
		return nil, usagef("%s: unexpected argument %q; it accepts only flags here", command, rest[0])
	}
	m, cases, own, err := o.cases()
	if err != nil {
		return nil, err
	}
	evidence, err := o.c.readEvidence(a)
	if err != nil {
		return nil, err
	}
	gpus, err := o.gpus()
	if err != nil {
		return nil, err
	}
	batches, err := o.batch.sizes([]int{own})
	if err != nil {
		return nil, err
	}
	if len(cases)*len(gpus)*len(batches) != 1 {
		return nil, usagef("%s exports events of one step of %s: name one PyTorch release (--torch), one GPU (--gpu) "+
			"and one batch size (--batch)", command, m.Name)
	}
	here := &job.Local{Models: a.models(), Evidence: evidence}
	r, err := here.Run(ctx, job.Plan(cases[0], o.c.ranks.withLinkSpeed(gpus), batches)[0], nil)
	if err != nil {
		return nil, err
	}
	return r.Points[0].Estimate, nil
}
