package optim

import (
	"slices"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// The optimizers of bitsandbytes 0.50 keep their state in 8 or 32 bits and update one
// parameter after the other, in place.

// The smallest parameters, in elements, whose state is in 8 bits, and whose state is paged.
const (
	min8bit  = 4096
	minPaged = 100_000
)

// block is the number of elements of 8-bit state with a common scale.
const block = 256

// The state tensors of bitsandbytes' optimizers, besides their scales.
const (
	bnbState1 = iota
	bnbState2
	bnbScale1
	bnbScale2
	bnbStates
)

// initBits8 allocates the state of bitsandbytes' Optimizer2State and Optimizer1State.
func initBits8(o *Optimizer, s *slot) { o.initBits8Of(s, s.param) }

// initBits8Of allocates the state of a slot for tensor p instead of the slot's parameter.
func (o *Optimizer) initBits8Of(s *slot, p *trace.Tensor) {
	a := o.config.Algorithm
	states := 2
	if a == Lion8bit || a == Lion32bit {
		states = 1
	}
	bits8 := p.Numel() >= min8bit && !slices.Contains(o.FP32States, s.param) && a != AdamW32bit && a != Lion32bit
	d := trace.F32
	if bits8 {
		d = trace.U8
		for ; o.maps < states; o.maps++ { // name2qmap, of the values that a byte stands for
			o.keep(func() *trace.Tensor {
				return o.tape.New("to_dtype_layout", program.OptimizerState, trace.F32, 256)
			})
		}
	}
	for k := range states {
		s.state[bnbState1+k] = o.stateBuffer(p, d)
	}
	if bits8 {
		for k := range states {
			s.state[bnbScale1+k] = o.keep(func() *trace.Tensor {
				return o.tape.Zeros(trace.F32, ceil.Div(p.Numel(), block))
			})
		}
	}
}

// stateBuffer records get_state_buffer of bitsandbytes. Large buffers of paged optimizers are managed memory.
func (o *Optimizer) stateBuffer(p *trace.Tensor, d trace.DType) *trace.Tensor {
	if o.config.Paged && p.Numel() >= minPaged {
		o.tape.Managed(p.Numel() * d.Size())
		return nil
	}
	return o.keep(func() *trace.Tensor { return p.FilledLike("zeros_like", d) })
}

// stepBits8 updates each parameter by one kernel of bitsandbytes.
func stepBits8(o *Optimizer, _ *trace.Frame, l *batch) {
	for i, p := range l.params {
		o.updateBits8(l.slots[i], p, l.grads[i])
	}
}

func (o *Optimizer) updateBits8(s *slot, p, grad *trace.Tensor) {
	const flops = 16
	written := []*trace.Tensor{p}
	for _, x := range s.state[:bnbStates] {
		if x != nil {
			written = append(written, x)
		}
	}
	o.tape.Kernel("optimizer_update_8bit_blockwise", flops*p.Numel(), written,
		append([]*trace.Tensor{grad}, written...))
}

// The optimizers of torchao: the number of elements that share a scale, and of values that a code may have.
const (
	blockAO4bit = 128
	values4bit  = 16
	values8bit  = 256
)

// initTorchao allocates the state of torchao's low-bit AdamW: for each tensor codes, scales and a table of the codes'
// values. Small and odd tensors have states in their own dtype.
func initTorchao(o *Optimizer, s *slot) {
	n, a := s.param.Numel(), o.config.Algorithm
	elements, bytes, values := int64(block), n, int64(values8bit)
	switch a {
	case AdamW4bit:
		elements, bytes, values = blockAO4bit, n/2, values4bit
	case AdamWFp8:
		values = 0
	}
	for k := range 2 {
		if n < min8bit || n%elements != 0 {
			s.state[bnbState1+k] = o.keep(func() *trace.Tensor {
				return s.param.FilledLike("zeros_like", s.param.DType())
			})
			continue
		}
		s.state[bnbState1+k] = o.keep(func() *trace.Tensor { return o.tape.Zeros(trace.U8, bytes) })
		s.state[bnbScale1+k] = o.keep(func() *trace.Tensor { return o.tape.Zeros(trace.F32, n/elements) })
		if values > 0 {
			o.keep(func() *trace.Tensor {
				return o.tape.New("to_device", program.OptimizerState, trace.F32, values)
			})
		}
	}
}
