package step

import (
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/planner/host"
	"github.com/vprof/vprof/profiler/trace"
)

// hostNeed returns the trial's host memory; zero for steps recorded from a script, without parameter counts.
func (r *Result) hostNeed() host.Need {
	c := r.trial.Case.Case
	if r.Counts.Total == 0 {
		return host.Need{}
	}
	gpu := r.trial.GPU
	_, processes := host.MachinesFor(c.GPUs)
	if gpu.UnifiedMemory {
		processes = 1
	}
	here, stages := stagesOf(c, int64(processes))
	n := host.Need{
		Processes: processes, WorkersPerProcess: c.Workers, Loading: r.hostLoading(c, int64(processes)),
		Saving:  r.Counts.Gradients * min(here, stages) / stages,
		Weights: r.Facts.Host.Weights, Gradients: r.Facts.Host.Gradients, State: r.Facts.Host.State,
		Rounding: r.Facts.Host.Rounding, Activations: r.Facts.HostSaved, Pinned: r.Facts.HostPinned,
		Managed: r.Facts.Managed, Memory: gpu.HostMemory, Unified: gpu.UnifiedMemory,
	}
	if gpu.UnifiedMemory && (n.Memory == 0 || n.Memory > gpu.Memory) {
		n.Memory = gpu.Memory // all that the firmware leaves
	}
	for _, in := range r.Facts.Inputs {
		bytes := in.DType.Size()
		for _, d := range in.Shape {
			bytes *= d
		}
		n.Batch += bytes
	}
	return n
}

// hostLoading returns the copies of the weights that a machine's processes hold while they load the model. transformers
// maps files, whose pages the kernel can reclaim, and copies weights whose type changes. Other code builds the module
// on the host, and often also reads a checkpoint. Quantized layers are read one by one. If ranks share the weights, the
// first rank loads them for all. Pipeline stages built on the meta device are loaded one by one: a machine holds the
// stages of its GPUs, and the largest may have both the embeddings and the output layer.
func (r *Result) hostLoading(c models.Case, processes int64) host.Interval {
	stages, most := int64(1), processes
	if s := c.Strategy; s != nil && s.Init != models.InitDevice && s.Init != models.InitHost {
		switch {
		case s.SharesWeights():
			processes, most = 1, 1
		case s.Name == models.PP:
			processes, stages = stagesOf(c, processes)
			most = 1
		}
	}
	size := int64(4)
	if c.Weights != models.FP32 {
		size = 2
	}
	whole := r.Counts.Gradients + (r.Counts.Total-r.Counts.Trainable)*size
	weights := ceil.Div(processes*whole, stages)
	high := min(most*whole, weights+2*r.LargestWeight)
	switch {
	case c.Quantize != "":
		largest := processes * r.LargestWeight
		return host.Interval{Value: largest, High: max(largest, weights/2)}
	case strings.HasPrefix(c.Model, "hf:"):
		return host.Interval{Value: weights, High: high}
	}
	return host.Interval{Value: weights, Low: weights, High: 2 * high}
}

// stagesOf returns the number of pipeline stages on the given number of GPUs of one machine, and the number of all
// stages. Without a pipeline, the model is one stage.
func stagesOf(c models.Case, gpus int64) (here, all int64) {
	all = c.Strategy.PipelineRanks(c.GPUs)
	return max(1, ceil.Div(gpus*all, int64(max(1, c.GPUs)))), all
}

// hostLinkBandwidth is the bandwidth between a GPU and the host in bytes per second: PCIe 4.0 x8, or x16 with memory
// that is not pinned. hostMemoryBandwidth is one process's share of the machine's memory bandwidth: of 300 GB/s for
// eight processes on a server, or 80 GB/s for two on a desktop. Both are assumptions.
const (
	hostLinkBandwidth   = 12e9
	hostMemoryBandwidth = 40e9
)

// hostSeconds returns the time of a step's work on the host: copies in both directions, and the optimizer step, which
// reads weights, gradients and state, and writes weights and state. Weights are copied for forward and for backward of
// each micro-batch. Only DeepSpeed copies gradients after each micro-batch, and returns weights in half the size.
func hostSeconds(c models.Case, facts trace.Facts) float64 {
	h, batches := facts.Host, int64(max(1, c.Accumulate))
	moved := 2*batches*(facts.HostSaved+h.Weights) + h.Gradients
	if c.Strategy.IsDeepSpeed() {
		moved += (batches-1)*h.Gradients + h.Stepped/2
	}
	return float64(moved)/hostLinkBandwidth + float64(2*h.Stepped+h.Gradients+2*h.State)/hostMemoryBandwidth
}

// hostMemoryReport converts a host memory estimate for a report; nil if the estimate is empty.
func hostMemoryReport(e host.Estimate) *report.HostMemory {
	if e.Processes == 0 {
		return nil
	}
	out := &report.HostMemory{
		Interval: IntervalOf(planner.Interval(e.Interval)), Processes: e.Processes, Peak: e.Peak, Memory: e.Memory,
		Unified: e.Unified,
	}
	for _, p := range e.Parts {
		out.Parts = append(out.Parts, report.HostPart{Name: p.Name, Interval: IntervalOf(planner.Interval(p.Interval))})
	}
	return out
}
