package calibration

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/vprof/vprof/bench/observe/series"
	"github.com/vprof/vprof/bench/observe/snapshot"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner/coefficients"
)

// ReadDescribedRuns reads files that do not say what was trained, which the caller then says:
// the case c on boards called gpu. They are a memory snapshot of PyTorch, or a monitor's log
// of one GPU or of the GPUs of several ranks, returned in their order. The error is a
// [*input.FormatError] unless reading itself failed.
func ReadDescribedRuns(r io.Reader, name string, c models.Case, gpu string) ([]Observed, coefficients.Input, error) {
	data, in, err := readInput(r, name)
	if err != nil {
		return nil, in, err
	}
	if snapshot.Is(data[:min(len(data), 4096)]) || !series.Is(data[:min(len(data), 4096)]) {
		run, in, err := ReadSnapshotRun(bytes.NewReader(data), name, c, gpu)
		return []Observed{run}, in, err
	}
	all, err := series.Read(bytes.NewReader(data), name)
	if err != nil {
		return nil, in, err
	}
	if len(all) > max(1, c.GPUs) {
		return nil, in, input.FileErrorf(name,
			"has %d GPUs, and the step is said to run on %d; say so with --gpus and --strategy",
			len(all), max(1, c.GPUs))
	}
	in.Kind, in.Source, in.Batches = "log", "GPU memory over time", []int{c.Batch}
	var runs []Observed
	named, _ := device.Lookup(gpu) // a board of one's own is in no catalog, and none is of its name
	for i, s := range all {
		logged, err := device.Lookup(s.Product)
		if err == nil && named.Product != "" && logged.Product != named.Product {
			return nil, in, input.FileErrorf(name, "is a log of %s, not of %s; name the board that it was with --gpu",
				logged.Product, gpu)
		}
		o := Observed{
			File: name, Label: fmt.Sprintf("%s: %s: batch %d", name, s.GPU, c.Batch), Case: c,
			GPU: gpu, Board: s.GPU,
		}
		if c.Strategy != nil && c.Strategy.Rank == nil {
			strategy, rank := *c.Strategy, int64(i)
			strategy.Rank = &rank
			o.Case.Strategy = &strategy
		}
		if len(s.Mine) > 0 {
			o.Device = int64(slices.Max(s.Mine))
		}
		if o.Device > 0 {
			runs = append(runs, o)
		}
	}
	if len(runs) == 0 {
		return nil, in, &input.FormatError{File: name, Reason: "shows no memory in use"}
	}
	return runs, in, nil
}
