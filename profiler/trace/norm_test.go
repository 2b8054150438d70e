package trace_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// parameterScratch returns the largest buffer that backward of y = f(x, weight, bias)
// allocates beside the gradient of x.
func parameterScratch(rows, columns int64, f func(x, weight, bias *tensor) *tensor) int64 {
	tape := trace.New(hopper, rules, trace.Options{Warm: true})
	frame := tape.Frame()
	x := frame.Bind(tape.New("x", program.Batch, trace.F32, rows, columns))
	weight := frame.Bind(tape.New("weight", program.Weights, trace.F32, columns).Leaf())
	bias := frame.Bind(tape.New("bias", program.Weights, trace.F32, columns).Leaf())
	y := frame.Bind(f(x, weight, bias))
	g := y.NewGradient()
	from := len(tape.Program().Buffers)
	trace.Backward([]*tensor{y}, []*tensor{g})
	var most int64
	for _, b := range tape.Program().Buffers[from:] {
		most = max(most, b.Bytes)
	}
	return most
}

// Above 65,536 rows of few columns, the parameters' gradients are summed in
// parts of 32 rows: 65,568/32 = 2049 parts of 64 floats.
func TestLayerNormSumsManyRowsInParts(t *testing.T) {
	layerNorm := func(x, w, b *tensor) *tensor { return x.LayerNorm(1, w, b) }
	rmsNorm := func(x, w, _ *tensor) *tensor { return x.RMSNorm(1, w) }
	for _, norm := range []func(x, w, b *tensor) *tensor{layerNorm, rmsNorm} {
		require.EqualValues(t, 64*4, parameterScratch(65536, 64, norm))
		require.EqualValues(t, 2049*64*4, parameterScratch(65568, 64, norm))
		require.EqualValues(t, 4096*4, parameterScratch(65568, 4096, norm), "wide rows fill the GPU as they are")
	}
}

// Which kernels run a batch norm, after _select_batch_norm_backend of ATen/native/Normalization.cpp.
func TestBatchNormGoesWhereATenSendsIt(t *testing.T) {
	const native, cudnn = "batch_norm_cuda", "cudnn_batch_norm"
	for _, c := range []struct {
		why      string
		x, param trace.DType
		shape    []int64
		training bool
		want     string
	}{
		{"fp32 images", trace.F32, trace.F32, []int64{4, 16, 8, 8}, true, cudnn},
		{"autocast", trace.F16, trace.F32, []int64{4, 16, 8, 8}, true, cudnn},
		{"bf16", trace.BF16, trace.F32, []int64{4, 16, 8, 8}, true, native},
		{"half parameters", trace.F16, trace.F16, []int64{4, 16, 8, 8}, true, native},
		{"rows", trace.F32, trace.F32, []int64{4, 16}, true, native},
		{"large batch in training", trace.F32, trace.F32, []int64{880801, 1, 1}, true, cudnn},
		{"larger", trace.F32, trace.F32, []int64{880802, 1, 1}, true, native},
		{"large batch in evaluation", trace.F32, trace.F32, []int64{65536, 1, 1}, false, native},
	} {
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		f := tape.Frame()
		vector := func() *tensor { return f.Bind(tape.New("p", program.Weights, c.param, c.shape[1])) }
		s := trace.BatchNormState{Weight: vector(), Bias: vector(), Mean: vector(), Var: vector(), Training: c.training}
		x := f.Bind(tape.New("x", program.Batch, c.x, c.shape...))
		from := len(tape.Program().Buffers)
		f.Bind(x.BatchNorm(s))
		p := tape.Program()
		require.Equal(t, c.want, p.Sites[p.Buffers[from].Site].Native, c.why)
	}
}

// A normalized tensor and its gradients keep the shape.
func TestNormsKeepTheShape(t *testing.T) {
	norms := map[string]func(x, w, b *tensor) *tensor{
		"batch": func(x, w, b *tensor) *tensor {
			return x.BatchNorm(trace.BatchNormState{Weight: w, Bias: b, Training: true})
		},
		"group": func(x, w, b *tensor) *tensor { return x.GroupNorm(1, w, b) },
		"instance": func(x, w, b *tensor) *tensor {
			return x.InstanceNorm(trace.BatchNormState{Weight: w, Bias: b, Training: true})
		},
	}
	rapid.Check(t, func(rt *rapid.T) {
		shape := rapid.SliceOfN(rapid.Int64Range(1, 9), 3, 5).Draw(rt, "shape")
		d := rapid.SampledFrom([]trace.DType{trace.F32, trace.F16, trace.BF16}).Draw(rt, "dtype")
		norm := norms[rapid.SampledFrom(names(norms)).Draw(rt, "norm")]
		tape := trace.New(hopper, rules, trace.Options{Warm: true})
		f := tape.Frame()
		x := f.Bind(tape.New("x", program.Batch, d, shape...).Leaf())
		w, b := f.Bind(tape.New("w", program.Weights, d, shape[1]).Leaf()),
			f.Bind(tape.New("b", program.Weights, d, shape[1]).Leaf())
		y := f.Bind(norm(x, w, b))
		require.Equal(t, shape, y.Shape())
		trace.Backward([]*tensor{y}, []*tensor{y.NewGradient()})
		for _, leaf := range []*tensor{x, w, b} {
			require.Equal(t, leaf.Shape(), leaf.Grad().Shape())
		}
	})
}
