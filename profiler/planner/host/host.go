// Package host estimates the host memory that training needs: resident bytes that the kernel cannot reclaim. Pages of
// mapped files, such as safetensors, do not count.
package host

import "github.com/vprof/vprof/internal/ceil"

// Interval is a number of bytes with its expected range.
type Interval struct{ Value, Low, High int64 }

func (i Interval) plusTimes(o Interval, n int64) Interval {
	return Interval{i.Value + n*o.Value, i.Low + n*o.Low, i.High + n*o.High}
}

const mib = 1 << 20

// ProcessMemory and Worker are the host memory of a training process and of one DataLoader worker without its data,
// with PyTorch 2.15, transformers 5 and Linux without a GPU: 545 MiB after import torch, 879 with Trainer; the driver's
// part is an assumption. A worker has 14 to 37 MiB of its own after a fork, 151 to 198 with its share of the common
// pages, 619 to 658 MiB if it imports everything again (forkserver).
var (
	ProcessMemory = Interval{Value: 1300 * mib, Low: 550 * mib, High: 2560 * mib}
	WorkerMemory  = Interval{Value: 150 * mib, Low: 14 * mib, High: 660 * mib}
)

// PrefetchedBatches is the number of batches that each worker prefetches (DataLoader's prefetch_factor).
const PrefetchedBatches = 2

// MaxGPUsPerMachine is the assumed largest number of GPUs in one machine, as in clouds and clusters.
const MaxGPUsPerMachine = 8

// MachinesFor returns the number of machines for a number of GPUs, and the GPUs in each.
func MachinesFor(gpus int) (machines, each int) {
	gpus = max(1, gpus)
	machines = ceil.Div(gpus, MaxGPUsPerMachine)
	return machines, ceil.Div(gpus, machines)
}

// Need is the memory that training needs on one machine, in bytes. All fields except Loading count one process.
type Need struct {
	// Processes is the number of training processes on the machine, one for each GPU. Workers is the number of
	// DataLoader workers of each.
	Processes, WorkersPerProcess int
	// Loading is the memory of all processes' copies of the weights while these are loaded.
	Loading Interval
	// Saving is the copy of the trained weights that one process makes to write a checkpoint.
	Saving int64
	// Weights, Gradients and State are offloaded throughout training. Rounding is the excess of page-locked memory.
	Weights, Gradients, State, Rounding int64
	// Activations are offloaded until backward; Pinned is their size in page-locked memory.
	Activations, Pinned int64
	// Managed is optimizer state that the driver moves between the GPU and the host.
	Managed int64
	// Batch is the size of one batch.
	Batch int64
	// Memory is the machine's memory; zero if unknown.
	Memory int64
	// Unified reports whether the GPU uses the machine's memory as its own.
	Unified bool
}

// MemoryPart is a named part of an estimate of host memory.
type MemoryPart struct {
	Name string
	Interval
}

// Estimate is the host memory that training needs on one machine, at its peak. Parts sum to it.
type Estimate struct {
	Interval
	Processes int
	// Peak is "loading" or "training", whichever needs more.
	Peak  string
	Parts []MemoryPart
	// Memory is the machine's memory, less the GPU's part if both share one memory (Unified).
	Memory  int64
	Unified bool
}

// Exceeds reports whether the machine may have too little memory.
func (e Estimate) Exceeds() bool { return e.Memory > 0 && e.High > e.Memory }

// ExceedsCertainly reports whether the machine certainly has too little memory.
func (e Estimate) ExceedsCertainly() bool { return e.Memory > 0 && e.Low > e.Memory }

// Estimate returns the need at its peak, if onGPU bytes of the managed memory are on the GPU. A GPU with unified memory
// uses loaded bytes of the machine's memory while the weights load, and trained bytes in training.
func (n Need) Estimate(onGPU, loaded, trained int64) Estimate {
	all := int64(max(1, n.Processes))
	loading := []MemoryPart{
		{"processes", Interval{}.plusTimes(ProcessMemory, all)},
		{"weights while they load", n.Loading},
	}
	training := []MemoryPart{
		loading[0],
		{"offloaded weights", exactInterval(all * n.Weights)},
		{"offloaded gradients", exactInterval(all * n.Gradients)},
		{"offloaded optimizer state", exactInterval(all * n.State)},
		{"rounding of pinned memory", Interval{all * n.Rounding, 0, all * n.Rounding}},
		{"activations", Interval{all * n.Activations, all * n.Activations, all * n.Pinned}},
		{"paged optimizer state", Interval{}.plusTimes(Interval{max(0, n.Managed-onGPU), 0, n.Managed}, all)},
		{"workers", n.workers()},
		{"copy for a checkpoint", Interval{n.Saving, 0, n.Saving}},
	}
	load, train := n.estimateAt("loading", loading), n.estimateAt("training", training)
	if n.Unified {
		load.Memory, train.Memory = max(1, n.Memory-loaded), max(1, n.Memory-trained)
	}
	if load.High-load.Memory > train.High-train.Memory {
		return load
	}
	return train
}

// workers returns the memory of the DataLoader workers of all processes, with their prefetched batches.
func (n Need) workers() Interval {
	each := Interval{}.plusTimes(WorkerMemory, 1).plusTimes(exactInterval(n.Batch), PrefetchedBatches)
	return Interval{}.plusTimes(each, int64(n.WorkersPerProcess*max(1, n.Processes)))
}

func exactInterval(bytes int64) Interval { return Interval{bytes, bytes, bytes} }

// estimateAt returns the sum of the parts at a point of training, without empty parts.
func (n Need) estimateAt(moment string, parts []MemoryPart) Estimate {
	e := Estimate{Processes: max(1, n.Processes), Peak: moment, Memory: n.Memory, Unified: n.Unified}
	for _, p := range parts {
		if p.High > 0 {
			e.Interval = e.plusTimes(p.Interval, 1)
			e.Parts = append(e.Parts, p)
		}
	}
	return e
}
