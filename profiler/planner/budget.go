package planner

import (
	"fmt"
	"math"

	"github.com/vprof/vprof/internal/ceil"
)

// Budget is the limit of a safe batch: the upper end of the batch's need must be within a share of the memory.
type Budget struct {
	// Memory is the available memory in bytes: the GPU's total, with the context, less the memory of other processes.
	Memory int64
	// Margin is the share of Memory that a step may use, in (0, 1]. The rest is reserved for memory that no estimate of
	// a step contains: other users of the GPU, other work of the script, and growth of the allocator's cache over
	// thousands of steps. The error of the estimate is in its interval and not counted again.
	Margin float64
	// Risk, if not zero, replaces Margin: the probability, below 0.5, with which the step may need more than Memory.
	Risk float64
}

// DefaultMargin is the default share of the memory that a step may use.
const DefaultMargin = 0.85

// MaxSearchedBatch is the default of the largest batch that a search tries.
const MaxSearchedBatch = 4096

// defaultRisk is the probability that a need exceeds the upper end of a 95 % interval.
const defaultRisk = 0.025

// Need returns the bytes of an estimate that must not exceed [Budget.Limit]: the upper end of its device bytes or, with
// a Risk, the corresponding quantile. Managed memory does not count, since the driver moves it to the host when GPU
// memory is short.
func (b Budget) Need(e Estimate) int64 {
	value, high := e.Device.Value-e.Paged.Value, e.Device.High-e.Paged.High
	if b.Risk == 0 || b.Risk == defaultRisk {
		return high
	}
	// The upper end of a 95 % interval is z95 standard errors above the value.
	z := math.Sqrt2 * math.Erfinv(1-2*b.Risk)
	return value + int64(math.Ceil(float64(high-value)*z/z95))
}

// Limit returns the largest accepted [Budget.Need] in bytes.
func (b Budget) Limit() int64 {
	if b.Risk == 0 {
		return int64(float64(b.Memory) * b.Margin)
	}
	return b.Memory
}

// Reason is a keyword for the reason why a batch is not safe; empty if it is safe.
type Reason string

// The reasons.
const (
	// OverMemoryShare means that the need fits the memory, but exceeds the share of it that may be used.
	OverMemoryShare Reason = "over-share"
	// GPUFull means that the need exceeds all memory that other processes leave free.
	GPUFull Reason = "gpu-full"
	// OutOfMemory means that an allocation failed in a replay on the GPU.
	OutOfMemory Reason = "oom"
	// FreesCache means that a replay on the GPU completed only because PyTorch released cached memory to the driver.
	FreesCache Reason = "gives-back"
	// NotRecorded means that the step under torch.compile has not been recorded.
	NotRecorded Reason = "not-recorded"
	// HostFull means that the step needs more host memory than the machine has.
	HostFull Reason = "host-full"
	// SmallerBatch means that only a smaller batch is unsafe, since its blocks leave more of the cache unused.
	SmallerBatch Reason = "smaller-batch"
)

// ReasonOf returns the reason why an estimate is not safe; empty if it is safe.
func (b Budget) ReasonOf(e Estimate) Reason {
	why := b.Judge(b.Need(e))
	if why != "" && e.Verdict == StepNotRecorded {
		return NotRecorded
	}
	return why
}

// Judge returns the reason why a need in bytes is not safe; empty if it is safe.
func (b Budget) Judge(need int64) Reason {
	switch {
	case need > b.Memory:
		return GPUFull
	case need > b.Limit():
		return OverMemoryShare
	}
	return ""
}

// Check returns an error if the margin or the risk is out of range, or no memory is left.
func (b Budget) Check() error {
	switch {
	case b.Memory <= 0:
		return fmt.Errorf("memory: %d bytes: need more than 0", b.Memory)
	case b.Risk == 0 && (b.Margin <= 0 || b.Margin > 1 || math.IsNaN(b.Margin)):
		return fmt.Errorf("margin %v: need a share of the memory above 0 and up to 1", b.Margin)
	case b.Risk != 0 && (b.Risk < 0 || b.Risk >= 0.5 || math.IsNaN(b.Risk)):
		return fmt.Errorf("risk %v: need a probability above 0 and below 0.5", b.Risk)
	}
	return nil
}

// SplitBatch divides an effective batch into micro-batches of at most largest samples. It returns the largest batch
// that divides the effective batch; it must be divisible by multiple, unless largest is smaller. If only a batch of one
// divides it, SplitBatch returns the smallest product that is not below it. A multiple of zero or one allows any batch.
func SplitBatch(effective, largest, multiple int) (batch, accumulate int) {
	if multiple < 1 || largest < multiple {
		multiple = 1
	}
	most := min(largest, ceil.Div(effective, multiple)*multiple)
	most -= most % multiple
	best := math.MaxInt
	for b := most; b > 0; b -= multiple {
		n := ceil.Div(effective, b)
		if b == 1 && batch > 0 {
			break
		}
		if b*n < best {
			best, batch, accumulate = b*n, b, n
		}
		if best == effective {
			break
		}
	}
	return batch, accumulate
}
