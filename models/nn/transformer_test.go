package nn_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/stack"
	"github.com/vprof/vprof/profiler/trace"
)

var h200 = trace.GPU{Name: "h200", Capability: 90, SMs: 132, ThreadsPerSM: 2048, Memory: 141 << 30}

func TestLayersHavePyTorchsParameters(t *testing.T) {
	require.Equal(t, []string{
		"self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight", "self_attn.out_proj.bias",
		"linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias",
		"norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias",
	}, nn.NewTree(nn.NewTransformerEncoderLayer(8, 2, 16, nn.TransformerOptions{})).Names())
	require.Equal(t, []string{
		"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0",
		"weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse",
	}, nn.NewTree(nn.NewGRU(8, 16, nn.RNNOptions{Bidirectional: true})).Names())
}

// A step of an encoder and a decoder layer, with masks of any kind: parameters and gradients stay, nothing else.
func TestTransformerStepLeavesNothingBehind(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := nn.TransformerOptions{
			Dropout: 0.1, NormFirst: rapid.Bool().Draw(rt, "norm first"),
			BatchFirst: rapid.Bool().Draw(rt, "batch first"),
		}
		encoder, decoder := nn.NewTransformerEncoderLayer(24, 4, 48, o), nn.NewTransformerDecoderLayer(24, 4, 48, o)
		tape := trace.New(h200, stack.Default().Rules(), trace.Options{Warm: true})
		tree := nn.NewTree([]any{encoder, decoder})
		tree.MoveToDevice(tape)
		batch, length := rapid.Int64Range(1, 5).Draw(rt, "batch"), rapid.Int64Range(2, 40).Draw(rt, "length")
		shape := []int64{length, batch, 24}
		if o.BatchFirst {
			shape = []int64{batch, length, 24}
		}
		outer := tape.Frame()
		x := outer.Bind(tape.New("input", program.Batch, trace.F32, shape...))
		masks := drawMasks(rt, outer, batch, length)
		before := tape.Program().LeftBytes()

		step := func() {
			f := outer.FunctionFrame(x)
			memory := f.Bind(callMasked(f, encoder, x, masks))
			g := f.CallFrame(x, memory)
			y := decoder.Decode(g, x, memory, masks, nn.TransformerMasks{KeyPadding: masks.KeyPadding})
			g.End(y)
			f.Bind(y).Sum(false).Backward()
			f.End()
		}
		if rapid.Bool().Draw(rt, "autocast") {
			tape.Autocast(trace.BF16, step)
		} else {
			step()
		}
		for _, p := range tree.Parameters {
			require.Equal(rt, p.Shape(), p.Grad().Shape())
			p.ZeroGrad()
		}
		require.NoError(rt, tape.Program().Validate())
		require.Equal(rt, before, tape.Program().LeftBytes())
	})
}

func callMasked(f *trace.Frame, l *nn.TransformerEncoderLayer, x *tensor, m nn.TransformerMasks) *tensor {
	g := f.CallFrame(x)
	y := l.ForwardMasked(g, x, m)
	return g.Return(y)
}

func drawMasks(rt *rapid.T, f *trace.Frame, batch, length int64) nn.TransformerMasks {
	draw := func(what string, shape ...int64) *tensor {
		switch rapid.SampledFrom([]string{"none", "bool", "float"}).Draw(rt, what) {
		case "bool":
			return f.Bind(f.Tape().New("mask", program.Batch, trace.Bool, shape...))
		case "float":
			return f.Bind(f.Tape().New("mask", program.Batch, trace.F32, shape...))
		}
		return nil
	}
	return nn.TransformerMasks{Mask: draw("mask", length, length), KeyPadding: draw("padding", batch, length)}
}

// Evaluation without gradients runs fused operators in place of the usual ones, and needs less.
func TestEvaluationTakesTheFastPath(t *testing.T) {
	peak := func(noGrad bool) int64 {
		l := nn.NewTransformerEncoderLayer(64, 4, 256, nn.TransformerOptions{BatchFirst: true})
		tape := trace.New(h200, stack.Default().Rules(), trace.Options{Warm: true})
		tree := nn.NewTree(l)
		tree.MoveToDevice(tape)
		tree.SetTraining(false)
		f := tape.Frame()
		x := f.Bind(tape.New("input", program.Batch, trace.F32, 8, 100, 64))
		run := func() { f.Bind(f.Call(l, x)) }
		before := len(tape.Program().Buffers)
		if noGrad {
			tape.NoGrad(run)
		} else {
			run()
		}
		return int64(len(tape.Program().Buffers) - before)
	}
	require.Less(t, peak(true), peak(false))
}

// On the way to the device the weights of a recurrent layer are packed.
func TestRecurrentWeightsArePackedOnTheDevice(t *testing.T) {
	l := nn.NewLSTM(8, 16, nn.RNNOptions{Layers: 2})
	tree := nn.NewTree(l)
	tape := trace.New(h200, stack.Default().Rules(), trace.Options{Warm: true})
	tree.MoveToDevice(tape)
	total, _ := tree.Numel()
	require.Equal(t, 4*total, tape.Program().LeftBytes())
	for _, w := range tree.Parameters {
		require.True(t, w.SharesStorage(tree.Parameters[0].Tensor))
	}
}

// BenchmarkTransformerStep records forward and backward of a twelve-layer encoder.
func BenchmarkTransformerStep(b *testing.B) {
	layers := make([]nn.Layer, 12)
	for i := range layers {
		layers[i] = nn.NewTransformerEncoderLayer(768, 12, 3072, nn.TransformerOptions{Dropout: 0.1, BatchFirst: true})
	}
	model := nn.NewSequential(layers...)
	tree := nn.NewTree(model)
	b.ReportAllocs()
	ops := 0
	for b.Loop() {
		tape := trace.New(h200, stack.Default().Rules(), trace.Options{})
		tree.MoveToDevice(tape)
		f := tape.Frame()
		x := f.Bind(tape.New("input", program.Batch, trace.F32, 8, 128, 768))
		tape.Autocast(trace.BF16, func() { f.Call(model, x).Sum(false).Backward() })
		f.End()
		ops = len(tape.Program().Ops)
	}
	b.ReportMetric(float64(ops), "ops")
}
