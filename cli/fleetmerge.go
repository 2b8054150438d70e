package cli

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/experiment/fit"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/shard"
)

type fleetMergeOptions struct {
	app  *app
	path string
	out  output
}

func newFleetMergeCmd(a *app) *cobra.Command {
	o := &fleetMergeOptions{app: a, out: output{app: a}}
	cmd := &cobra.Command{
		Use:   "merge FOLDER",
		Short: "Merge the shards of a plan, sweep, accuracy or fit",
		Args:  argCount(1, 1, "name the folder of the shards, the value of --into (default: shards)"),
		RunE:  func(_ *cobra.Command, args []string) error { return runFleetMerge(o, args[0]) },
	}
	o.out.register(cmd)
	cmd.Flags().StringVarP(&o.path, "output", "o", "",
		"`file` to write, in the format of its suffix, in place of standard output")
	return cmd
}

func runFleetMerge(o *fleetMergeOptions, dir string) error {
	set, err := shard.ReadDir(dir)
	if err != nil {
		return usageError{err}
	}
	// Fail before the work if a part is missing or a file cannot be written.
	if err := set.Incomplete(); err != nil {
		return err
	}
	if o.path != "" {
		if err := o.out.alsoWrite(o.path); err != nil {
			return err
		}
	}
	merge, ok := mergers[set.Verb]
	if !ok {
		return usagef("%s: the shards hold results of %q, which vprof cannot merge; name a folder of plan, sweep, "+
			"accuracy or fit", dir, set.Verb)
	}
	d, err := merge(o.app, set)
	if err != nil {
		return err
	}
	if err := o.out.save(d); err != nil {
		return err
	}
	if o.path == "" {
		if err := o.out.print(d); err != nil {
			return err
		}
	}
	if f, ok := d.(*report.Fit); ok {
		return verdictOf(f, "try a larger GPU or several GPUs")
	}
	return nil
}

// mergers merge the shards of a verb.
var mergers = map[string]func(*app, *shard.Set) (report.Document, error){
	"plan": mergePlan, "sweep": mergeSweep, "accuracy": mergeAccuracy, "fit": mergeFit,
}

func decodeResults[T any](set *shard.Set) ([]*T, error) {
	var all []*T
	err := set.Results(func(unit, _ int, result json.RawMessage) error {
		v := new(T)
		if err := json.Unmarshal(result, v); err != nil {
			return usagef("unit %d: %w", unit, err)
		}
		all = append(all, v)
		return nil
	})
	return all, err
}

func mergePlan(_ *app, set *shard.Set) (report.Document, error) {
	var warnings []report.Warning
	if err := json.Unmarshal(set.First.Common, &warnings); err != nil {
		return nil, err
	}
	parts, err := decodeResults[report.Report](set)
	if err != nil {
		return nil, err
	}
	r, err := report.Merge(parts...)
	if err != nil {
		return nil, err
	}
	setEarliestStart(r, parts)
	r.Warnings = append(r.Warnings, warnings...)
	return r, nil
}

func setEarliestStart(r *report.Report, parts []*report.Report) {
	for _, p := range parts {
		if p.Started.Before(r.Started) {
			r.Started = p.Started
		}
	}
}

func mergeSweep(_ *app, set *shard.Set) (report.Document, error) {
	parts, err := decodeResults[report.Report](set)
	if err != nil {
		return nil, err
	}
	sweeps, err := report.MergeSweeps(parts...)
	if err != nil {
		return nil, err
	}
	for _, r := range sweeps {
		setEarliestStart(r, parts)
	}
	if len(sweeps) == 1 {
		return sweeps[0], nil
	}
	return report.Sweeps(sweeps), nil
}

func mergeAccuracy(_ *app, set *shard.Set) (report.Document, error) {
	parts, err := decodeResults[report.Accuracy](set)
	if err != nil {
		return nil, err
	}
	whole := &report.Accuracy{
		Schema: report.AccuracySchema, Rows: []report.AccuracyRow{},
		Unknown: []report.UnknownRecord{},
	}
	for _, p := range parts {
		whole.Rows, whole.Unknown = append(whole.Rows, p.Rows...), append(whole.Unknown, p.Unknown...)
	}
	whole.Summarize()
	return whole, nil
}

func mergeFit(_ *app, set *shard.Set) (report.Document, error) {
	var head fitShardHeader
	if err := json.Unmarshal(set.First.Common, &head); err != nil {
		return nil, err
	}
	parts, err := decodeResults[fit.PartResult](set)
	if err != nil {
		return nil, err
	}
	f, err := fit.JoinParts(head.Fit, head.Stages, parts)
	if err != nil {
		return nil, err
	}
	f.Tool = set.Tool
	return f, nil
}
