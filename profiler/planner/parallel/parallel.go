// Package parallel is the arithmetic of training on several GPUs: what each of
// them holds when gradients, optimizer state and weights are copied or shared
// out, and what communication takes. It starts from the estimate of one GPU,
// whose activations each of the others has, too.
package parallel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/planner"
	"github.com/vprof/vprof/profiler/program"
)

// Strategy is how several GPUs share the training of one model.
type Strategy string

// The strategies. All split the batch; they differ in what else they split.
const (
	// DDP is DistributedDataParallel: every GPU has the whole model.
	DDP Strategy = "ddp"
	// ZeRO1 splits the optimizer's state, as DDP with ZeroRedundancyOptimizer
	// or DeepSpeed stage 1.
	ZeRO1 Strategy = "zero1"
	// ZeRO2 splits gradients as well, as DeepSpeed stage 2.
	ZeRO2 Strategy = "zero2"
	// ZeRO3 splits weights as well, as DeepSpeed stage 3.
	ZeRO3 Strategy = "zero3"
	// FSDP1 is PyTorch's FullyShardedDataParallel over every layer: as ZeRO3.
	FSDP1 Strategy = "fsdp1"
)

// Strategies lists all strategies.
func Strategies() []Strategy { return []Strategy{DDP, ZeRO1, ZeRO2, ZeRO3, FSDP1} }

// Setup is a group of GPUs that train one model together.
type Setup struct {
	// GPUs is how many there are, each with a process.
	GPUs     int
	Strategy Strategy
	// BucketView is DDP's gradient_as_bucket_view: gradients live in the
	// buckets and not beside them.
	BucketView bool
	// Bandwidth is that of the links of one GPU, in bytes per second.
	Bandwidth float64
}

// Check returns an error for a strategy that does not exist, or impossible numbers.
func (s Setup) Check() error {
	switch {
	case s.GPUs < 1 || s.GPUs > 1<<20:
		return fmt.Errorf("%d is not a number of GPUs", s.GPUs)
	case !slices.Contains(Strategies(), s.Strategy):
		names := lists.Map(Strategies(), func(s Strategy) string { return string(s) })
		return fmt.Errorf("there is no strategy %q; use %s", s.Strategy, strings.Join(names, ", "))
	case !(s.Bandwidth > 0):
		return fmt.Errorf("links of %v bytes a second move nothing", s.Bandwidth)
	}
	return nil
}

// Model is the sizes of a recorded model that communication depends on.
type Model struct {
	// Weights and Gradients are those of all parameters, in bytes.
	Weights, Gradients int64
	// Trainable is the number of elements with a gradient.
	Trainable int64
	// LargestLayer is the largest set of weights that is gathered at once, in
	// bytes.
	LargestLayer int64
}

// splits tells whether each GPU keeps only a share of the memory of a class.
func (s Strategy) splits(c program.Class) bool {
	switch c {
	case program.OptimizerState:
		return s != DDP
	case program.Gradients:
		return s == ZeRO2 || s == ZeRO3 || s == FSDP1
	case program.Weights:
		return s == ZeRO3 || s == FSDP1
	}
	return false
}

// share returns the largest part of n bytes that one of the GPUs holds.
func (s Setup) share(n int64) int64 { return (n + int64(s.GPUs) - 1) / int64(s.GPUs) }

const (
	// bucketElements is DeepSpeed's reduce_bucket_size.
	bucketElements = 500_000_000
	// gathered is how many layers are whole at once: the one at work and the
	// one fetched ahead (FSDP's backward_prefetch, DeepSpeed's prefetch bucket).
	gathered = 2
	// nccl is what NCCL and its channels' buffers take on each GPU, bytes: an
	// assumption. NCCL_BUFFSIZE is 4 MiB for each of the channels' connections,
	// of which a node of 8 has 24 to 64; kernels and a stream come on top.
	nccl       = 300 << 20
	ncclStdErr = 150 << 20
)

// bucket returns the size of DeepSpeed's buffer of gradients on their way to their
// owners: bucketElements of them in the type that they have, in bytes.
func (m Model) bucket() int64 {
	if m.Trainable <= bucketElements {
		return m.Gradients
	}
	return int64(float64(m.Gradients) / float64(m.Trainable) * bucketElements)
}

// Buffers returns the memory in bytes that communication needs on each GPU, by the component
// that it is counted as.
func (s Setup) Buffers(m Model) program.Breakdown {
	var b program.Breakdown
	if s.GPUs == 1 {
		return b
	}
	switch s.Strategy {
	case DDP, ZeRO1:
		// One flat copy of all gradients, unless they live in it.
		if !s.BucketView {
			b[program.Gradients] = m.Gradients
		}
	case ZeRO2:
		b[program.Temporaries] = m.bucket()
	case ZeRO3, FSDP1:
		// Whole layers, and one layer's gradients on their way to their owners.
		layer := min(m.LargestLayer, m.Weights)
		b[program.Temporaries] = gathered*layer + min(layer, m.Gradients)
	}
	return b
}

// Apply turns the estimate for one GPU into that for each GPU of the setup, with the same
// batch size each. Intervals keep their relative width, and NCCL's memory is added to the
// context.
func (s Setup) Apply(e planner.Estimate, m Model) planner.Estimate {
	if s.GPUs == 1 {
		return e
	}
	before := e
	buffers := s.Buffers(m)
	for c := program.Class(0); c < program.NumClasses; c++ {
		if s.Strategy.splits(c) {
			e.Components[c] = s.share(e.Components[c])
		}
		e.Components[c] += buffers[c]
	}
	e.Components[planner.Context] += nccl
	var allocated int64
	for _, n := range e.Components[:program.NumClasses] {
		allocated += n
	}
	e.Allocated = moved(before.Allocated, allocated)
	e.Reserved = moved(before.Reserved, allocated+e.Components[planner.Slack])
	device := e.Reserved.Value + e.Components[planner.Context]
	e.Device = planner.Interval{
		Value: device,
		Low:   max(0, device-(before.Device.Value-before.Device.Low)-2*ncclStdErr),
		High:  device + (before.Device.High - before.Device.Value) + 2*ncclStdErr,
	}
	return e
}

// moved returns an interval around another value, of the same relative width.
func moved(i planner.Interval, to int64) planner.Interval {
	if i.Value == 0 {
		return planner.Interval{Value: to, Low: to, High: to}
	}
	scale := float64(to) / float64(i.Value)
	return planner.Interval{Value: to, Low: int64(float64(i.Low) * scale), High: int64(float64(i.High) * scale)}
}

// Traffic returns what each GPU sends for one optimizer step, in bytes: a ring sends
// every byte (n-1)/n times to scatter sums and as often to gather them. Stages 1
// and 2 send no more than DDP; with weights split, they are gathered a second
// time, in backward (ZeRO paper, section 7).
func (s Setup) Traffic(m Model) int64 {
	passes := 2 * m.Gradients
	if s.Strategy.splits(program.Weights) {
		passes = m.Gradients + 2*m.Weights
	}
	return int64(float64(passes) * float64(s.GPUs-1) / float64(s.GPUs))
}

// overlapped is the share of a step behind which communication hides: that of
// backward, which has two of the three products of every layer.
const overlapped = 2.0 / 3

// Step returns the time of a step that takes one GPU alone some seconds.
func (s Setup) Step(seconds float64, m Model) float64 {
	send := float64(s.Traffic(m)) / s.Bandwidth
	return seconds + max(0, send-overlapped*seconds)
}
