package calibration

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/observe/series"
	"github.com/vprof/vprof/bench/observe/snapshot"
	"github.com/vprof/vprof/bench/reference"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner/coefficients"
)

// ObservedRun is a training step that ran: its case, its GPU, and the measured peaks in bytes; zero is not measured.
type ObservedRun struct {
	// Label names the run's source in messages: "b2.json: batch 8".
	Label string
	Case  models.Case
	// Description describes the case's model.
	Description models.Description
	// GPU is the GPU's name for [device.Lookup], or the name of DescribedGPU.
	GPU string
	// DescribedGPU is the GPU as its driver described it; the zero GPU if the file does not have that.
	DescribedGPU device.GPU
	// GPUIdentity is the physical GPU, as text; empty if the file does not name it.
	GPUIdentity string
	Stack       coefficients.Stack
	Simulated   bool
	// OthersAssumed reports whether other processes' memory on the GPU is unknown, so that Device may include it.
	OthersAssumed bool
	// Synthetic reports whether vprof's synthetic kernels ran in place of PyTorch's. Such a run lacks the memory that
	// cuBLAS and cuDNN load.
	Synthetic bool
	// Bare reports whether the run was a process on a GPU that loads none of PyTorch's libraries.
	Bare bool
	// Script reports whether the run was a script under "vprof run", whose Case is unknown.
	Script bool

	Allocated, Reserved, Device int64
	// StepSeconds is the time of a step; zero if it was not measured.
	StepSeconds float64
}

// ReadObserved reads the runs of a report or of reference records. It skips runs that ran out of memory or had to free
// cached memory, since their peak is the GPU's size and not the case's need. The error is a [*input.FormatError] unless
// reading failed.
func ReadObserved(r io.Reader, name string) ([]ObservedRun, coefficients.Input, error) {
	data, in, err := readInput(r, name)
	if err != nil {
		return nil, in, err
	}
	var runs []ObservedRun
	switch head := data[:min(len(data), 4096)]; {
	case snapshot.IsSnapshot(head):
		err = input.FileErrorf(name, "a memory snapshot does not name its model; give the batch size as BATCH=%s, "+
			"and the case with --model and --gpu", name)
	case strings.Contains(string(head), `"`+reference.Schema+`"`):
		runs, err = fromReference(data, name, &in)
	case strings.Contains(string(head), `"`+report.Schema+`"`):
		if runs, err = fromReports(data, name, &in); err == nil && runs[0].Script {
			err = input.FileErrorf(name, "the result of a script does not name a model; give the batch size as "+
				"BATCH=%s, and the case with --model", name)
		}
	default:
		err = &input.FormatError{File: name, Reason: "neither a report of vprof (" + report.Schema +
			") nor reference records (" + reference.Schema + ")"}
	}
	if err != nil {
		return nil, in, err
	}
	for _, o := range runs {
		in.Simulated = in.Simulated || o.Simulated
		in.Batches = append(in.Batches, o.Case.Batch)
	}
	slices.Sort(in.Batches)
	in.Batches = slices.Compact(in.Batches)
	return runs, in, nil
}

// readInput reads a whole file. It returns its content, and its name and SHA-256 for the coefficients file.
func readInput(r io.Reader, name string) ([]byte, coefficients.Input, error) {
	data, err := input.ReadAll(r, name)
	if err == nil && len(bytes.TrimSpace(data)) == 0 {
		err = &input.FormatError{File: name, Reason: "empty"}
	}
	sum := sha256.Sum256(data)
	return data, coefficients.Input{File: name, SHA256: hex.EncodeToString(sum[:])}, err
}

// ReadSnapshotRun reads a PyTorch memory snapshot as a run of the case on a GPU. A snapshot lacks memory allocated by
// the driver and, unless it has events, the peak of allocated bytes. The error is a [*input.FormatError] unless reading
// failed.
func ReadSnapshotRun(r io.Reader, name string, c models.Case, gpu string) (ObservedRun, coefficients.Input, error) {
	data, in, err := readInput(r, name)
	if err != nil {
		return ObservedRun{}, in, err
	}
	s, err := snapshot.Parse(data, name)
	if err != nil {
		return ObservedRun{}, in, err
	}
	sum, err := s.SummarizeOnlyDevice(name)
	if err != nil {
		return ObservedRun{}, in, err
	}
	if sum.OOMs > 0 {
		return ObservedRun{}, in, input.FileErrorf(name,
			"the recording has a failed allocation; calibration needs a recording of a complete step")
	}
	in.Kind, in.Source, in.Batches = "snapshot", "torch.cuda.memory._dump_snapshot", []int{c.Batch}
	if s.SimulatedBy != "" {
		in.Source, in.Simulated = s.SimulatedBy, true
	}
	c.AllocConf = s.AllocConf
	o := ObservedRun{
		Label: fmt.Sprintf("%s: batch %d", name, c.Batch), Case: c, GPU: gpu,
		Simulated: in.Simulated, Reserved: sum.PeakReserved,
	}
	if sum.Traced > 0 {
		o.Allocated = sum.PeakAllocated
	}
	return o, in, nil
}

func fromReference(data []byte, name string, in *coefficients.Input) ([]ObservedRun, error) {
	f, err := reference.Read(bytes.NewReader(data), name)
	if err != nil {
		return nil, err
	}
	in.Kind, in.Source = "reference", f.Header.Source
	in.Simulated = strings.Contains(f.Header.Source, reference.SimulatedDriver)
	stack := coefficients.Stack{Torch: f.Header.Torch, CUDA: f.Header.CUDA}
	if f.Header.CUDNN != 0 {
		stack.CUDNN = fmt.Sprint(f.Header.CUDNN)
	}
	var runs []ObservedRun
	for i := range f.Records {
		r := &f.Records[i]
		if r.Status != reference.StatusOK || r.Retries > 0 {
			continue
		}
		runs = append(runs, ObservedRun{
			Label: fmt.Sprintf("%s:%d: batch %d", name, r.Line, r.Batch),
			Case:  r.Case, GPU: r.GPU, Stack: stack,
			Simulated: in.Simulated,
			Allocated: r.PeakAllocated, Reserved: r.PeakReserved, Device: r.PeakDevice,
			StepSeconds: r.StepMS / 1e3,
		})
	}
	return runs, nil
}

func fromReports(data []byte, name string, in *coefficients.Input) ([]ObservedRun, error) {
	reports, err := report.Read(name, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	in.Kind, in.Source = "report", "vprof "+reports[0].Tool.Version
	var runs []ObservedRun
	for _, r := range reports {
		runs = append(runs, observedRuns(r, name)...)
	}
	if len(runs) == 0 {
		return nil, &input.FormatError{File: name, Reason: "has no run that got through; a plan has none, a sweep has"}
	}
	return runs, nil
}

// ObservedRuns returns the runs of a report, as [ReadObserved] reads them from a file.
func ObservedRuns(r *report.Report) []ObservedRun { return observedRuns(r, r.Case.Model) }

func observedRuns(r *report.Report, name string) []ObservedRun {
	var runs []ObservedRun
	for _, p := range r.Points {
		if p.Run == nil || !p.Run.Fits || p.Run.Retries > 0 {
			continue
		}
		d, _ := r.Find(p.Device)
		known, _ := step.GPUOf(d) // what is not known is an error where it is needed
		c := r.Case.Case
		c.Batch = p.Batch
		o := ObservedRun{
			Label: fmt.Sprintf("%s: batch %d", name, p.Batch),
			Case:  c, Description: r.Case.Description(),
			GPU: d.GPU, DescribedGPU: known, GPUIdentity: d.String(), Stack: coefficients.Stack{
				CUDA:   d.CUDA,
				Driver: d.Driver,
			},
			Synthetic: r.Script == nil, Bare: r.Script == nil && d.IsBare(), OthersAssumed: p.Run.OthersAssumed,
			Script:    r.Script != nil,
			Simulated: p.Run.Simulated || d.Simulated || strings.Contains(d.Driver, reference.SimulatedDriver),
			// The memory of synthetic kernels is not PyTorch's.
			Allocated: p.Run.Allocated, Reserved: p.Run.Reserved, Device: p.Run.Device - p.Run.Kernels,
		}
		if p.Run.Step != nil {
			o.StepSeconds = p.Run.Step.Seconds
		}
		if r.Script != nil {
			o.Stack.Torch = r.Script.Torch
		}
		runs = append(runs, o)
	}
	return runs
}

// SplitByProcess groups runs that can be calibrated together: runs of one kind of GPU and driver, measured in the same
// kind of process. Groups are in order of appearance.
func SplitByProcess(runs []ObservedRun) [][]ObservedRun {
	type kind struct {
		gpu       string
		stack     coefficients.Stack
		simulated bool
	}
	return lists.Groups(runs, func(r ObservedRun) kind { return kind{r.GPU, r.Stack, r.Simulated} })
}

// processKey returns a key that is equal for runs of the same kind of process, GPU and driver.
func (o *ObservedRun) processKey() string {
	if o.Synthetic {
		return "vprof's own"
	}
	return "PyTorch's"
}

// mixedError returns the error that runs cannot be calibrated together. what names the difference, a and b its values.
func mixedError(what, a, b string) error {
	return input.Errorf("the runs have different %s: %s and %s; calibrate each in a command of its own", what, a, b)
}

// checkPoolable returns an error if the runs cannot be calibrated together.
func checkPoolable(runs []ObservedRun, pool bool) error {
	if len(runs) == 0 {
		return errors.New("there are no runs to learn from; name results of vprof sweep or vprof run")
	}
	first := runs[0]
	for _, r := range runs[1:] {
		switch {
		case r.GPU != first.GPU:
			return mixedError("GPUs", cmp.Or(first.GPUIdentity, first.GPU), cmp.Or(r.GPUIdentity, r.GPU))
		case r.Stack != first.Stack:
			return mixedError("software stacks", first.Stack.String(), r.Stack.String())
		case r.Case.Model != first.Case.Model && !pool:
			return mixedError("models", first.Case.Model, r.Case.Model)
		case r.Simulated != first.Simulated:
			return mixedError("kinds", "measured", "simulated")
		case r.Synthetic != first.Synthetic, r.Bare != first.Bare:
			return mixedError("processes", first.processKey(), r.processKey())
		}
	}
	return nil
}

// fromScripts reads reports of "vprof run" as runs of case c.
func fromScripts(data []byte, name string, c models.Case, gpu string, in *coefficients.Input) ([]ObservedRun, error) {
	runs, err := fromReports(data, name, in)
	if err != nil {
		return nil, err
	}
	in.Batches = []int{c.Batch}
	for i := range runs {
		o := &runs[i]
		switch {
		case !o.Script:
			return nil, input.FileErrorf(name, "the file names its batch size itself; leave out BATCH= before its name")
		case gpu != "" && gpu != o.GPU:
			return nil, input.FileErrorf(name, "the run is of %s, not of %s; leave out --gpu", o.GPU, gpu)
		}
		o.Label, o.Case, o.Description = fmt.Sprintf("%s: batch %d", name, c.Batch), c, models.Description{}
		in.Simulated = in.Simulated || o.Simulated
	}
	return runs, nil
}

// ReadDescribedRuns reads a file that does not record the case, and returns its runs in order. The caller passes case c
// and the GPU's name. The file is a report of "vprof run", a PyTorch memory snapshot, or a monitor's log of one GPU or
// of several ranks' GPUs. Only a report records its GPU; gpu may then be empty. The error is a [*input.FormatError]
// unless reading failed.
func ReadDescribedRuns(r io.Reader, name string, c models.Case, gpu string) ([]ObservedRun, coefficients.Input, error) {
	data, in, err := readInput(r, name)
	if err != nil {
		return nil, in, err
	}
	head := data[:min(len(data), 4096)]
	if bytes.Contains(head, []byte(`"`+report.Schema+`"`)) {
		runs, err := fromScripts(data, name, c, gpu, &in)
		return runs, in, err
	}
	if gpu == "" {
		return nil, in, input.Errorf("--gpu is missing, because %s does not name its GPU; add it", name)
	}
	if snapshot.IsSnapshot(head) || !series.IsLog(head) {
		run, in, err := ReadSnapshotRun(bytes.NewReader(data), name, c, gpu)
		return []ObservedRun{run}, in, err
	}
	all, err := series.Read(bytes.NewReader(data), name)
	if err != nil {
		return nil, in, err
	}
	if len(all) > max(1, c.GPUs) {
		return nil, in, input.FileErrorf(name, "the snapshot has %d GPUs, but the flags describe %d; set --gpus and "+
			"--strategy", len(all), max(1, c.GPUs))
	}
	in.Kind, in.Source, in.Batches = "log", "GPU memory over time", []int{c.Batch}
	var runs []ObservedRun
	named, _ := device.Lookup(gpu) // a GPU of one's own is in no catalog, and none has its name
	for i, s := range all {
		logged, err := device.Lookup(s.Product)
		if err == nil && named.Product != "" && logged.Product != named.Product {
			return nil, in, input.FileErrorf(name, "the log is of %s, not of %s; name the logged GPU with --gpu",
				logged.Product, gpu)
		}
		o := ObservedRun{
			Label: fmt.Sprintf("%s: %s: batch %d", name, s.GPU, c.Batch), Case: c,
			GPU: gpu, GPUIdentity: s.GPU,
		}
		if c.Strategy != nil && c.Strategy.Rank == nil {
			strategy, rank := *c.Strategy, int64(i)
			strategy.Rank = &rank
			o.Case.Strategy = &strategy
		}
		if len(s.WatchedBytes) > 0 {
			o.Device = int64(slices.Max(s.WatchedBytes))
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
