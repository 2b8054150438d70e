package optim

import (
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// The optimizers of bitsandbytes 0.50 keep their state in 8 or 32 bits and update one
// parameter after the other, in place.

// Where state of a parameter is in fewer bits, and where it is paged, in elements.
const (
	min8bit  = 4096
	minPaged = 100_000
)

// block is how many elements of 8-bit state share a scale.
const block = 256

// The states of bitsandbytes' optimizers, beside their scales.
const (
	bnbState1 = iota
	bnbState2
	bnbScale1
	bnbScale2
)

// initBits8 makes the state of Optimizer2State and Optimizer1State.
func initBits8(o *Optimizer, s *slot) {
	a := o.config.Algorithm
	states := 2
	if a == Lion8bit || a == Lion32bit {
		states = 1
	}
	// The first state of AdEMAMix has two averages.
	first := int64(1)
	if a == AdEMAMix8bit || a == AdEMAMix32bit {
		first = 2
	}
	small := s.param.Numel() < min8bit
	bits8 := !small && a != AdamW32bit && a != Lion32bit && a != AdEMAMix32bit
	d := trace.F32
	if bits8 {
		d = trace.U8
		for ; o.maps < states; o.maps++ { // name2qmap, of the values that a byte stands for
			o.keep(func() *trace.Tensor {
				return o.tape.New("to_dtype_layout", program.OptimizerState, trace.F32, 256)
			})
		}
	}
	copies := [2]int64{first, 1}
	for k := range states {
		s.state[bnbState1+k] = o.stateBuffer(s.param, d, copies[k])
	}
	if bits8 {
		for k := range states {
			s.state[bnbScale1+k] = o.keep(func() *trace.Tensor { return o.tape.Zeros(trace.F32, copies[k]*ceil.Div(s.param.Numel(), block)) })
		}
	}
}

// stateBuffer is get_state_buffer: large ones of paged optimizers are in managed
// memory, of which the caching allocator knows nothing.
func (o *Optimizer) stateBuffer(p *trace.Tensor, d trace.DType, copies int64) *trace.Tensor {
	if o.config.Paged && p.Numel() >= minPaged {
		o.tape.Managed(copies * p.Numel() * d.Size())
		return nil
	}
	if copies > 1 {
		return o.keep(func() *trace.Tensor { return o.tape.Zeros(d, append([]int64{copies}, p.Shape()...)...) })
	}
	return o.keep(func() *trace.Tensor { return p.FilledLike("zeros_like", d) })
}

// stepBits8 updates every parameter in a kernel of its own.
func stepBits8(o *Optimizer, _ *trace.Frame, l *lists) {
	const flops = 16
	for i, p := range l.params {
		s := l.slots[i]
		written := []*trace.Tensor{p}
		for _, x := range s.state {
			if x != nil {
				written = append(written, x)
			}
		}
		o.tape.Kernel("optimizer_update_8bit_blockwise", flops*p.Numel(), written, append([]*trace.Tensor{l.grads[i]}, written...))
	}
}

// The optimizer of torchao in 4 bits: elements of a block that share a scale, and values
// that a code stands for.
const (
	block4bit  = 128
	values4bit = 16
)

// initBits4 makes the state of torchao's AdamW4bit: codes of two elements in a byte, scales
// and a table for each tensor. Small and odd tensors have states in their own type.
func initBits4(o *Optimizer, s *slot) {
	n := s.param.Numel()
	for k := range 2 {
		if n < min8bit || n%block4bit != 0 {
			s.state[bnbState1+k] = o.keep(func() *trace.Tensor { return s.param.FilledLike("zeros_like", s.param.DType()) })
			continue
		}
		s.state[bnbState1+k] = o.keep(func() *trace.Tensor { return o.tape.Zeros(trace.U8, n/2) })
		s.state[bnbScale1+k] = o.keep(func() *trace.Tensor { return o.tape.Zeros(trace.F32, n/block4bit) })
		o.keep(func() *trace.Tensor {
			return o.tape.New("to_device", program.OptimizerState, trace.F32, values4bit)
		})
	}
}
