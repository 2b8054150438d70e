package optim_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
	"github.com/vprof/vprof/profiler/trace/optim"
	"github.com/vprof/vprof/tools/opvectors"
)

// parameters returns n leaves of 100 elements with gradients.
func parameters(tape *trace.Tape, n int) []*trace.Tensor {
	f := tape.Frame()
	var out []*trace.Tensor
	for range n {
		p := f.Bind(tape.New("parameter", program.Weights, trace.F32, 10, 10)).Leaf()
		p.SetGrad(tape.New("grad", program.Gradients, trace.F32, 10, 10))
		out = append(out, p)
	}
	return out
}

// live sums what is allocated at the end of a recording, by class.
func live(p *program.Program) program.Breakdown {
	var b program.Breakdown
	for _, i := range p.Instructions {
		switch i.Kind {
		case program.Alloc:
			b[p.Buffers[i.Arg].Class] += p.Buffers[i.Arg].Bytes
		case program.Free:
			b[p.Buffers[i.Arg].Class] -= p.Buffers[i.Arg].Bytes
		}
	}
	return b
}

func newTape() *trace.Tape {
	return trace.New(opvectors.GPUs["rtx-5060-ti"], rules, trace.Options{Warm: true})
}

// TestStateIsAllThatAStepLeaves runs every optimizer that has a name: after a
// step nothing but state is left, and later steps add none.
func TestStateIsAllThatAStepLeaves(t *testing.T) {
	// Bytes of state per parameter of 100 elements.
	want := map[string]int64{
		"sgd": 0, "sgd-momentum": 400, "sgd-momentum-wd": 400,
		"adam": 800, "adam-wd": 800, "adamw": 800, "adamw-single": 800, "amsgrad": 1200, "adamw-fused": 804,
		"nadam": 800, "adamax": 800, "adadelta": 800, "rmsprop": 400, "adagrad": 400,
		"adafactor": 80, "adafactor-foreach": 80, // a row and a column of ten
		// below 4096 elements
		"muon": 400, "adamw8bit": 800, "paged-adamw8bit": 800, "paged-adamw32bit": 800, "lion8bit": 400,
		"adamw4bit": 800,
		"lion32bit": 400, "paged-lion8bit": 400, "paged-lion32bit": 400,
		// without layers that are projected
		"galore-adamw": 800, "galore-adafactor": 84, "galore-adamw8bit": 800,
		"adafactor-transformers": 84, "adamw8bit-torchao": 800, "adamw-fp8": 800,
		"none": 0,
	}
	require.Len(t, optim.Names(), len(want))
	for _, name := range optim.Names() {
		t.Run(name, func(t *testing.T) {
			tape := newTape()
			params := parameters(tape, 3)
			before := live(tape.Program())
			c, err := optim.Named(name)
			require.NoError(t, err)
			o, err := optim.New(tape, c, nil, params[:1], params[1:])
			require.NoError(t, err)
			for range 7 {
				o.Step()
				after := live(tape.Program())
				require.Equal(t, 3*want[name], after[program.OptimizerState])
				after[program.OptimizerState] = 0
				for _, p := range params { // some free gradients
					if p.Grad() == nil {
						after[program.Gradients] += 400
						p.SetGrad(tape.New("grad", program.Gradients, trace.F32, 10, 10))
					}
				}
				require.Equal(t, before, after)
			}
		})
	}
}

// TestParametersWithoutGradientHaveNoState counts state of one in three.
func TestParametersWithoutGradientHaveNoState(t *testing.T) {
	tape := newTape()
	params := parameters(tape, 3)
	params[0].ZeroGrad()
	params[2].ZeroGrad()
	o, err := optim.New(tape, optim.Config{Algorithm: optim.Adam}, nil, params)
	require.NoError(t, err)
	o.Step()
	require.EqualValues(t, 800, live(tape.Program())[program.OptimizerState])
}

// TestScalerKeepsScaleAndGrowthAlone steps plain and fused optimizers, with
// and without unscaling first; the flags go with Update.
func TestScalerKeepsScaleAndGrowthAlone(t *testing.T) {
	for _, name := range []string{"sgd", "adamw-fused"} {
		for _, unscale := range []bool{false, true} {
			tape := newTape()
			params := parameters(tape, 3)
			c, err := optim.Named(name)
			require.NoError(t, err)
			o, err := optim.New(tape, c, nil, params)
			require.NoError(t, err)
			o.Step()
			before := live(tape.Program())
			s := optim.NewGradScaler(tape)
			f := tape.Frame()
			loss := f.Bind(tape.Full(trace.F32))
			f.Bind(s.Scale(loss))
			f.End()
			for range 2 {
				if unscale {
					s.Unscale(o)
				}
				s.Step(o)
				s.Update()
				after := live(tape.Program())
				require.Equal(t, before.Total()+8, after.Total(), "scale and growth tracker, %s, unscaled %v",
					name, unscale)
			}
		}
	}
}

// TestUnknownOptimizersAreErrors asks for what there is not.
func TestUnknownOptimizersAreErrors(t *testing.T) {
	_, err := optim.Named("lion")
	require.ErrorContains(t, err, `there is no optimizer "lion"; use one of adamw, adamw-fused, adamw-single, amsgrad, adam, adam-wd, sgd, sgd-momentum, sgd-momentum-wd, rmsprop, adagrad, adadelta, adafactor, adafactor-foreach, adamax, nadam, muon, adamw8bit, paged-adamw8bit, paged-adamw32bit, lion8bit, lion32bit, paged-lion8bit, paged-lion32bit, galore-adamw, galore-adamw8bit, galore-adafactor, adafactor-transformers, adamw8bit-torchao, adamw-fp8, adamw4bit, none, or run your own script with "vprof run -- python train.py", which supports any`)
	for _, rare := range strings.Fields("ademamix8bit adam-mini adalomo apollo-adamw badam came grokadamw lomo " +
		"schedule-free-adamw schedule-free-sgd stable-adamw") {
		_, err = optim.Named(rare)
		require.ErrorContains(t, err, `"vprof run -- python train.py", which supports any`)
	}
	_, err = optim.New(newTape(), optim.Config{Algorithm: "Lion"}, nil)
	require.Error(t, err)
	_, err = optim.New(newTape(), optim.Config{Algorithm: optim.NAdam, Implementation: optim.Fused}, nil)
	require.ErrorContains(t, err, "PyTorch has no fused NAdam; use SGD, Adam or AdamW, or leave out fused")
}

// TestClippingNeedsGradients returns no norm where there is none.
func TestClippingNeedsGradients(t *testing.T) {
	tape := newTape()
	params := parameters(tape, 1)
	params[0].ZeroGrad()
	require.Nil(t, optim.ClipGradNorm(params, optim.Foreach))
}

// BenchmarkAdamW steps as many parameters as redimnet-b2 has.
func BenchmarkAdamW(b *testing.B) {
	for b.Loop() {
		tape := newTape()
		o, err := optim.New(tape, optim.Config{Algorithm: optim.AdamW}, nil, parameters(tape, 426))
		if err != nil {
			b.Fatal(err)
		}
		o.Step()
	}
}

// Of a matrix torchao's 4-bit AdamW holds half a byte an element twice, with a scale in fp32
// for 128 and a table of 16 values; what is small stays in its own type.
func TestAdamWIn4Bits(t *testing.T) {
	tape := newTape()
	c, err := optim.Named("adamw4bit")
	require.NoError(t, err)
	params := []*trace.Tensor{
		tape.Hold(tape.New("to", program.Weights, trace.BF16, 64, 128)).Leaf(),
		tape.Hold(tape.New("to", program.Weights, trace.BF16, 100)).Leaf(),
	}
	o, err := optim.New(tape, c, nil, params)
	require.NoError(t, err)
	for _, p := range params {
		p.SetGrad(tape.Hold(tape.New("zeros", program.Gradients, trace.BF16, p.Shape()...)))
	}
	o.Step()
	const n = 64 * 128
	require.EqualValues(t, 2*(n/2+n/128*4+16*4)+2*100*2, live(tape.Finish())[program.OptimizerState])
}
