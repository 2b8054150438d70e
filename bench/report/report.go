// Package report is the public form of a result: the vprof.report/v1 schema and the writers that print it. It computes
// nothing: the package with a result fills in a [Report] and chooses a [Format].
package report

import (
	"encoding/json"
	"time"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
)

// Schema names this version of the format. Readers ignore unknown fields; removing a field or changing its meaning
// requires a new version.
const Schema = "vprof.report/v1"

// Kind is the experiment that made a report.
type Kind string

// The kinds of reports.
const (
	// Plan holds estimates only.
	Plan Kind = "plan"
	// Sweep holds estimates and runs over batch sizes.
	Sweep Kind = "sweep"
)

// Report is the result of a plan or a sweep.
type Report struct {
	Schema string `json:"schema" jsonschema:"const=vprof.report/v1"`
	Kind   Kind   `json:"kind" jsonschema:"enum=plan,enum=sweep"`
	Tool   Tool   `json:"tool"`
	// Started is the start of the work, UTC.
	Started time.Time `json:"started"`
	Case    Case      `json:"case"`
	// Parameters are element counts of the model.
	Parameters Parameters `json:"parameters"`
	// Devices are the GPUs that points refer to by name.
	Devices []Device `json:"devices"`
	// Coefficients are the numbers of the estimates that measurement can correct.
	Coefficients []Coefficient `json:"coefficients"`
	Points       []Point       `json:"points"`
	// Refused are batch sizes that PyTorch refuses, with its reason.
	Refused []Refusal `json:"refused,omitempty"`
	// Agreement compares a sweep on a GPU with its estimates; absent for others.
	Agreement *EstimateAgreement `json:"agreement,omitempty"`
	// Largest is the result of a search for the largest batch size; absent without one.
	Largest *Largest `json:"largest,omitempty"`
	// Stopped is the reason why a sweep left out batch sizes; absent if it ran all.
	Stopped *Stopped `json:"stopped,omitempty"`
	// Script is the command of a result of vprof run.
	Script   *Script   `json:"script,omitempty"`
	Warnings []Warning `json:"warnings,omitempty"`
	SettingsFrom
}

// Tool is the program that made the report.
type Tool struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
}

// Case is the case of a report, with more facts. If the result has points, they have the batch sizes.
type Case struct {
	models.Case
	// BatchUnit names one element of a batch.
	BatchUnit string `json:"batch_unit"`
	// Config is the description of the model, if it is not one of vprof's own: the values of its configuration file.
	// With them the case can be recorded again without the file.
	Config json.RawMessage `json:"config,omitempty" jsonschema:"type=object"`
}

// CaseOf returns a complete case of a model as reports show it.
func CaseOf(m models.Model, c models.Case) Case {
	c = m.Canonical(c)
	c.Batch = 0
	out := Case{Case: c, BatchUnit: m.BatchUnit}
	if text := m.Description.Text(); text != "" {
		out.Config = json.RawMessage(text)
	}
	return out
}

// Short returns the case without the description of its model, for documents that store that once for many cases.
func (c Case) Short() Case {
	c.Config = nil
	return c
}

// Description returns the description of the case's model, empty for models of the registry.
func (c Case) Description() models.Description {
	return models.NewDescription(string(compact(c.Config)))
}

// Same reports whether two cases are equal.
func (c Case) Same(d Case) bool { return c.Key() == d.Key() }

// Parameters are numbers of elements.
type Parameters struct {
	Total     int64 `json:"total"`
	Trainable int64 `json:"trainable"`
	Criterion int64 `json:"criterion"`
	Buffers   int64 `json:"buffers"`
}

// Device is a GPU of the catalog, simulated or real.
type Device struct {
	// Name is the name by which points refer to the device: "sim:rtx-5060-ti".
	Name      string `json:"name"`
	GPU       string `json:"gpu"`
	Title     string `json:"title"`
	Simulated bool   `json:"simulated"`
	// Memory is the total that the driver reports, in bytes.
	Memory  int64 `json:"memory_bytes"`
	Context int64 `json:"context_bytes"`
	// Capability, SMs, ThreadsPerSM and MHz are reported by the driver. With them a case can be recorded for a GPU that
	// the catalog does not have.
	Capability   string `json:"compute_capability,omitempty"`
	SMs          int    `json:"multiprocessors,omitempty"`
	ThreadsPerSM int    `json:"threads_per_multiprocessor,omitempty"`
	MHz          int    `json:"boost_mhz,omitempty"`
	// Driver is the release of a real GPU's driver, if known, and CUDA the newest version that it supports.
	Driver string `json:"driver,omitempty"`
	CUDA   string `json:"cuda,omitempty"`
	// UUID is the driver's identifier of a real GPU or of the slice of one, MIG reports whether it is a slice, and Host
	// is its machine; absent if unknown, and in older files.
	UUID string `json:"uuid,omitempty"`
	MIG  bool   `json:"mig,omitempty"`
	Host string `json:"host,omitempty"`
}

// Coefficient is a number that measurement can correct.
type Coefficient struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	StdErr float64 `json:"stderr"`
	Source string  `json:"source"`
}

// Point is one batch size on one device.
type Point struct {
	Batch    int       `json:"batch"`
	Device   string    `json:"device"`
	Estimate *Estimate `json:"estimate,omitempty"`
	Run      *Run      `json:"run,omitempty"`
	// StackRange is the range of runs that others report; absent if flags name a stack, or no such runs are known.
	StackRange *StackRange `json:"stack_range,omitempty"`
	// Streamed is the estimated device bytes with the data set on the host, batch by batch on the GPU; absent if the
	// data set is not on the GPU.
	Streamed *Interval `json:"streamed_device,omitempty"`
	// Expandable is the estimated device bytes with expandable segments; absent if they are on already or would save
	// little. ExpandableUnsafe is why training is not safe with them.
	Expandable       *Interval `json:"expandable_device,omitempty"`
	ExpandableUnsafe Reason    `json:"expandable_unsafe,omitempty" jsonschema:"enum=over-share,enum=gpu-full"`
	// Spill is the step's host memory on Windows or WSL2; absent if the batch fits, and for GPUs that run on neither.
	Spill *Spill `json:"spill,omitempty"`
	// Workspaces counts the convolutions whose workspace cuDNN answered; absent if it was not queried about the model.
	Workspaces *Workspaces `json:"convolution_workspaces,omitempty"`
	// Buffers are the largest buffers of compiled graphs at the peak of requested bytes; absent without them.
	Buffers []Buffer `json:"compiled_buffers,omitempty"`
	// LastStep is the peak of allocated bytes in steps after the first, in which Inductor tunes; absent without a
	// recorded step of torch.compile, or if it is the same.
	LastStep int64 `json:"last_step_allocated_bytes,omitempty"`
	// Tuned are the peaks of a run in which Inductor finds an earlier run's tunings; absent if it tunes nothing.
	Tuned *Peaks `json:"tuned_before,omitempty"`
	// Lengths is the result of epochs over samples of different lengths; absent if all samples have one length.
	Lengths *Lengths `json:"lengths,omitempty"`
	// Claims are the estimates of the project's guide for this case, the most specific first; absent without any.
	Claims []Claim `json:"claims,omitempty"`
}

// Spill is the host memory that a step uses on Windows or WSL2, whose drivers allocate there once the GPU is full.
type Spill struct {
	// Bytes is the peak of that memory. Moved counts its bytes that kernels read and write in one step.
	Bytes int64 `json:"bytes"`
	Moved int64 `json:"moved_bytes_per_step"`
	// Slowdown is the time of a step, divided by its time without spilling. The speed of the link is an assumption.
	// Absent if times are not known.
	Slowdown float64 `json:"slowdown,omitempty"`
	// Shared is the limit of that memory, half of the host's, in bytes; absent if the host's memory is not known.
	Shared int64 `json:"shared_bytes,omitempty"`
}

// Peaks are the peaks of a replayed run.
type Peaks struct {
	Allocated int64 `json:"allocated_bytes"`
	Reserved  int64 `json:"reserved_bytes"`
}

// Buffer is memory of a compiled graph, by the node whose result it holds: Count allocations with one name.
type Buffer struct {
	// Name is the node's, "mul_34"; Line is the user's line, file:line:function.
	Name  string `json:"name"`
	Line  string `json:"line"`
	Bytes int64  `json:"bytes"`
	Count int    `json:"count"`
	// Saved reports whether forward keeps the buffer for backward, and Reused are the nodes whose results use its
	// memory later.
	Saved  bool     `json:"saved_for_backward"`
	Reused []string `json:"reused_for,omitempty"`
}

// Workspaces counts allocations whose size a library chooses (cuDNN): of the different convolutions of a step, forward
// and backward, or of all convolutions of a script.
type Workspaces struct {
	// FromCuDNN counts the answers of cuDNN itself, Modeled the others.
	FromCuDNN int `json:"asked"`
	Modeled   int `json:"modeled"`
	// Unknown counts a script's convolutions with neither an answer nor a rule, which count as zero bytes.
	Unknown int `json:"unknown,omitempty"`
}

// Interval is an amount of bytes and the range it is expected in.
type Interval struct {
	Bytes int64 `json:"bytes"`
	Low   int64 `json:"low_bytes"`
	High  int64 `json:"high_bytes"`
}

// Estimate is the planner's estimate of one batch size, made without running anything.
type Estimate struct {
	// Allocated is the peak of tensors as rounded by the caching allocator, Reserved the allocator's memory, Device the
	// memory that the driver reports, context included.
	Allocated Interval `json:"allocated"`
	Reserved  Interval `json:"reserved"`
	Device    Interval `json:"device"`
	// Components sum to Device.Bytes.
	Components []Component `json:"components"`
	// Host is the host memory that the machine needs; absent for scripts and in older files.
	Host      *HostMemory `json:"host,omitempty"`
	PeakPhase string      `json:"peak_phase"`
	Verdict   Verdict     `json:"verdict" jsonschema:"enum=fits,enum=tight,enum=fits slowly,enum=not known without a recording,enum=does not fit"`
	// Unsafe is why the batch is not safe; absent if it is, or in older files.
	Unsafe Reason `json:"unsafe,omitempty" jsonschema:"enum=over-share,enum=gpu-full,enum=oom,enum=gives-back,enum=not-recorded,enum=host-full,enum=smaller-batch"`
	// Source names the records from which the intervals were computed; the JSON has it with the coefficients.
	Source string `json:"-"`
	// Interpolated is false if this very batch size was replayed.
	Interpolated bool `json:"interpolated"`
	// Loop is the training loop of the estimate: if no flag chose a loop, the one with the largest need. It is absent
	// if a flag did, or the model has a loop of its own. OtherLoop needs less.
	Loop      models.Loop `json:"loop,omitempty"`
	OtherLoop *OtherLoop  `json:"other_loop,omitempty"`
	// Evaluation is the need of an evaluation batch, if users requested it, or if it would not be safe.
	Evaluation *Evaluation `json:"evaluation,omitempty"`
	// Decides is the moment that makes the batch unsafe; absent if it is safe, or in older files.
	Decides *Decision `json:"decides,omitempty"`
}

// OtherLoop is the need of the step in another training loop, in bytes of the device.
type OtherLoop struct {
	Loop   models.Loop `json:"loop"`
	Device int64       `json:"device_bytes"`
}

// Component is a named part of a total, in bytes.
type Component struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Run is the result of a replay on a device.
type Run struct {
	// Simulated reports whether no GPU was used.
	Simulated bool `json:"simulated"`
	// At is the end of a measured run, UTC; absent in older files.
	At   time.Time `json:"at,omitzero"`
	Fits bool      `json:"fits"`
	// The peaks; for a run that did not fit, up to its failure.
	Requested int64 `json:"requested_bytes"`
	Allocated int64 `json:"allocated_bytes"`
	Reserved  int64 `json:"reserved_bytes"`
	Device    int64 `json:"device_bytes"`
	// Context and Kernels are the parts of Device that are not tensors: the memory of the CUDA context, and of the
	// synthetic kernels.
	Context int64 `json:"context_bytes,omitempty"`
	Kernels int64 `json:"kernels_bytes,omitempty"`
	// Granularity is the number of bytes that the driver added to segments. Unexplained is the rest of Device besides
	// Granularity, Context, Kernels and the reserved bytes. It is negative if part of the reserved bytes was never
	// observed.
	Granularity int64 `json:"granularity_bytes,omitempty"`
	Unexplained int64 `json:"unexplained_bytes,omitempty"`
	// OtherProcessBytes is the memory of other processes in addition to Device, Process the memory that NVML reports
	// for this process; absent if unknown. Shared reports whether others used the GPU during the run, OthersAssumed
	// that their memory is unknown, so that Context and Others may be mixed.
	OtherProcessBytes int64 `json:"others_bytes,omitempty"`
	OthersAssumed     bool  `json:"others_assumed,omitempty"`
	Process           int64 `json:"process_bytes,omitempty"`
	Shared            bool  `json:"shared,omitempty"`
	// WarmUp and Repeat count the untimed replays before timing, without the measured first one, and the timed replays.
	WarmUp int `json:"warm_up,omitempty"`
	Repeat int `json:"repeat,omitempty"`
	// Step is the time of the last step; absent if it did not fit or the
	// GPU's speed is not known. On a simulated GPU it is a lower bound.
	Step *Timing `json:"step,omitempty"`
	// Verified is the number of buffers whose memory held what was written.
	Verified int `json:"verified,omitempty"`
	// Retries counts how often the allocator had to free its cache.
	Retries   int64  `json:"retries"`
	PeakPhase string `json:"peak_phase"`
	// Classes are the allocated bytes at the peak, by the purpose of tensors.
	Classes []Component `json:"classes"`
	Phases  []Phase     `json:"phases"`
	OOM     *OOM        `json:"oom,omitempty"`
}

// Kind returns "measured" or "simulated"; empty if there is no run.
func (u *Run) Kind() string {
	if u == nil {
		return ""
	}
	return deviceKind(u.Simulated)
}

// HadRetries reports whether the run was out of memory, or succeeded only by freeing cached memory. It is never safe.
func (u *Run) HadRetries() bool { return !u.Fits || u.Retries > 0 }

// VerdictGiven returns the verdict on a step that was both estimated and run. A simulated run that fits does not show
// that the upper end of the estimate fits, so then the estimate's verdict stands.
func (u *Run) VerdictGiven(estimated Verdict) Verdict {
	switch {
	case !u.Fits:
		return DoesNotFit
	case u.Retries > 0:
		return Slow
	case u.Simulated && estimated != "":
		return estimated
	}
	return Fits
}

// Phase is a part of a run. Peaks are those within it. Steps count from 1; 0 is set-up.
type Phase struct {
	Step          int    `json:"step"`
	Name          string `json:"phase"`
	Allocated     int64  `json:"allocated_bytes"`
	PeakAllocated int64  `json:"peak_allocated_bytes"`
	Reserved      int64  `json:"reserved_bytes"`
	PeakReserved  int64  `json:"peak_reserved_bytes"`
	// Seconds it took on the device; absent if that was not timed.
	Seconds float64 `json:"seconds,omitempty"`
}

// Timing is the duration of a training step: the median of all repeats, the minimum and the maximum.
type Timing struct {
	Seconds          float64 `json:"seconds"`
	Least            float64 `json:"least_seconds"`
	Most             float64 `json:"most_seconds"`
	SamplesPerSecond float64 `json:"samples_per_second,omitempty"`
	// Loading is the median time that the GPU waited for the data of a step, which Seconds leaves out.
	Loading float64 `json:"data_loading_seconds,omitempty"`
	// SMMHz and MemoryMHz are the lowest clocks after the timed runs, and Slowdowns why they were reduced; absent if
	// NVML did not report them.
	SMMHz     int      `json:"sm_mhz,omitempty"`
	MemoryMHz int      `json:"memory_mhz,omitempty"`
	Slowdowns []string `json:"slowdowns,omitempty"`
}

// Largest holds the largest tried batch that runs without running out of memory, zero if none does, and the smallest
// tried batch that does not, zero if all do.
type Largest struct {
	Batch        int `json:"batch"`
	FirstFailing int `json:"fails,omitempty"`
	// Interpolated reports whether Fails was not run: by the line through other batches, its need exceeds the limit.
	Interpolated bool `json:"fails_by_line,omitempty"`
	// Predicted is the largest by estimates, for a search on a GPU.
	Predicted int `json:"predicted,omitempty"`
	// Safe reports whether the search was for a safe batch; otherwise it was for one that completes.
	Safe bool `json:"safe,omitempty"`
	// Samples is the number of samples of the data set, if it bounded the search.
	Samples int `json:"samples,omitempty"`
	// Limit is the number of bytes that a safe batch may fill; absent if the search was not for a safe batch.
	Limit int64 `json:"limit_bytes,omitempty"`
}

// A Refusal is a batch size that cannot be trained, and the reason. Device is the name of the plan's device; empty for
// sweeps, which have only one.
type Refusal struct {
	Batch  int    `json:"batch"`
	Device string `json:"device,omitempty"`
	Reason string `json:"reason"`
}

// OOM is the allocation that failed.
type OOM struct {
	// Requested is the tensor's size, Free the device's remaining memory.
	Requested int64  `json:"want_bytes"`
	Free      int64  `json:"free_bytes"`
	Class     string `json:"class"`
	Op        string `json:"op"`
	// Node is the autograd node; absent in forward.
	Node   string `json:"node,omitempty"`
	Module string `json:"module,omitempty"`
	// Line is the line of source, file:line:function; absent if unknown.
	Line  string `json:"line,omitempty"`
	Phase string `json:"phase"`
}

// Stopped is the reason why the rest of a sweep did not run.
type Stopped struct {
	Batch int `json:"batch"`
	// Left are the batch sizes that did not run.
	Left   []int  `json:"left"`
	Reason string `json:"reason"`
}

// Warning is a fact that limits a result without stopping the run. Hint is the advice.
type Warning struct {
	What string `json:"what"`
	Hint string `json:"hint,omitempty"`
}

// String returns the warning with its hint.
func (w Warning) String() string {
	if w.Hint == "" {
		return w.What
	}
	return w.What + "; " + w.Hint
}

// Warn adds a warning, unless the report has it.
func (r *Report) Warn(w Warning) { r.Warnings = lists.Union(r.Warnings, w) }

// Find returns the device that a point refers to.
func (r *Report) Find(name string) (Device, bool) { return find(r.Devices, name) }

// find returns the device of a name; false if there is none.
func find(devices []Device, name string) (Device, bool) {
	return lists.First(devices, func(d Device) bool { return d.Name == name })
}
