//go:build cuda && linux && cgo

package cuda

import (
	"github.com/vprof/vprof/kernels"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// launches are the kernels that do the work of an op: that read every byte it
// reads, write every byte it writes, and do about its arithmetic. They are
// appended to those given.
func launches(to []kernels.Launch, k device.Kernel) []kernels.Launch {
	if len(k.Reads)+len(k.Writes) == 0 {
		return to
	}
	return elementwise(to, k)
}

// typeOf is the format of elements in which an op computes.
func typeOf(p program.Precision) kernels.Type {
	switch p {
	case program.FP16:
		return kernels.F16
	case program.BF16:
		return kernels.BF16
	}
	return kernels.F32
}

// elementwise does an op's arithmetic spread evenly over its elements. Where
// an op has more operands than a kernel takes, as those of an optimizer over
// all weights, each kernel takes a share of both sides.
func elementwise(to []kernels.Launch, k device.Kernel) []kernels.Launch {
	t := typeOf(k.Precision)
	parts := max(parts(k.Reads), parts(k.Writes), 1)
	var elements int64
	for i := range parts {
		elements += max(longest(share(k.Reads, i, parts)), longest(share(k.Writes, i, parts))) / t.Size()
	}
	var rounds int64
	if elements > 0 {
		rounds = k.FLOPs / (2 * elements)
	}
	for i := range parts {
		to = append(to, kernels.Elementwise{
			Type:  t,
			Reads: ranges(share(k.Reads, i, parts)), Writes: ranges(share(k.Writes, i, parts)),
			Rounds: rounds, Scale: 1, Shift: 0,
		}.Launch())
	}
	return to
}

func parts(r []device.Range) int {
	return (len(r) + kernels.MaxOperands - 1) / kernels.MaxOperands
}

// share is the ith of n parts of a list, as even as can be.
func share(r []device.Range, i, n int) []device.Range {
	return r[len(r)*i/n : len(r)*(i+1)/n]
}

func longest(list []device.Range) int64 {
	var n int64
	for _, r := range list {
		n = max(n, r.Bytes)
	}
	return n
}

func ranges(list []device.Range) []kernels.Range {
	out := make([]kernels.Range, len(list))
	for i, r := range list {
		out[i] = kernels.Range(r)
	}
	return out
}
