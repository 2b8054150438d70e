package trace_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

var (
	turing    = trace.GPU{Name: "t4", Capability: 75, SMs: 40, ThreadsPerSM: 1024, Memory: 16 << 30}
	ada       = trace.GPU{Name: "rtx-4090", Capability: 89, SMs: 128, ThreadsPerSM: 1536, Memory: 24 << 30}
	blackwell = trace.GPU{Name: "rtx-5060-ti", Capability: 120, SMs: 36, ThreadsPerSM: 1536, Memory: 16 << 30}
)

// heads makes a leaf of shape [batch, heads, length, size].
func heads(t *trace.Tape, d trace.DType, shape ...int64) *tensor {
	return t.Frame().Bind(t.New("input", program.Batch, d, shape...).Leaf())
}

// attentionNode records attention forward and backward and names the kernel.
func attentionNode(t *trace.Tape, q, k, v *tensor, a trace.AttentionArgs) string {
	f := t.Frame()
	defer f.End()
	f.Bind(q.ScaledDotProductAttention(k, v, a)).Sum(false).Backward()
	for _, s := range t.Program().Sites {
		if name, ok := strings.CutPrefix(s.Node, "ScaledDotProduct"); ok {
			return strings.TrimSuffix(name, "AttentionBackward0")
		}
	}
	return "Math"
}

func TestAttentionKernelFollowsGPUTypeAndMask(t *testing.T) {
	for _, c := range []struct {
		gpu   trace.GPU
		dtype trace.DType
		size  int64
		mask  bool
		keys  int64 // heads of key and value, of 4
		a     trace.AttentionArgs
		want  string
	}{
		{hopper, trace.F16, 64, false, 4, trace.AttentionArgs{}, "Cudnn"},
		{hopper, trace.BF16, 64, true, 4, trace.AttentionArgs{Dropout: 0.1}, "Cudnn"},
		{hopper, trace.F16, 192, false, 4, trace.AttentionArgs{}, "Flash"},
		{hopper, trace.F16, 192, true, 4, trace.AttentionArgs{}, "Efficient"},
		{hopper, trace.F32, 64, false, 4, trace.AttentionArgs{}, "Efficient"},
		{hopper, trace.F16, 12, false, 4, trace.AttentionArgs{}, "Flash"}, // padded to 16
		{hopper, trace.F16, 12, true, 4, trace.AttentionArgs{}, "Math"},   // no padding there
		{hopper, trace.F16, 320, false, 4, trace.AttentionArgs{}, "Efficient"},
		{blackwell, trace.F16, 64, false, 4, trace.AttentionArgs{}, "Flash"},
		{blackwell, trace.BF16, 64, true, 4, trace.AttentionArgs{}, "Efficient"},
		{blackwell, trace.F16, 256, false, 4, trace.AttentionArgs{}, "Flash"},
		{blackwell, trace.F16, 256, false, 4, trace.AttentionArgs{Dropout: 0.1}, "Efficient"},
		{ada, trace.F16, 200, false, 4, trace.AttentionArgs{}, "Efficient"}, // backward of 193 to 224
		{turing, trace.F16, 64, false, 4, trace.AttentionArgs{}, "Efficient"},
		{turing, trace.BF16, 64, false, 4, trace.AttentionArgs{}, "Math"},
		{turing, trace.F32, 5, false, 4, trace.AttentionArgs{}, "Efficient"},
		{blackwell, trace.F32, 5, false, 4, trace.AttentionArgs{}, "Math"},
		{blackwell, trace.F16, 64, false, 2, trace.AttentionArgs{EnableGQA: true}, "Flash"},
		{blackwell, trace.F32, 64, false, 2, trace.AttentionArgs{EnableGQA: true}, "Math"},
	} {
		tape := trace.New(c.gpu, rules, trace.Options{Warm: true})
		q := heads(tape, c.dtype, 2, 4, 33, c.size)
		k, v := heads(tape, c.dtype, 2, c.keys, 33, c.size), heads(tape, c.dtype, 2, c.keys, 33, c.size)
		if c.mask {
			c.a.Mask = tape.Frame().Bind(tape.New("mask", program.Batch, trace.Bool, 2, 1, 33, 33))
		}
		require.Equal(t, c.want, attentionNode(tape, q, k, v, c.a), "%+v", c)

		// The recording says so, too, and why nothing faster served it.
		facts := tape.Facts().Attention
		require.Len(t, facts, 1)
		require.Equal(t, map[string]string{
			"Math": "math", "Flash": "flash", "Efficient": "memory-efficient",
			"Cudnn": "cuDNN",
		}[c.want], facts[0].Backend)
		require.Equal(t, c.want == "Math" || c.want == "Efficient", facts[0].Why != "", "%+v: %s", c, facts[0].Why)
		require.Equal(t, trace.Attention{
			Backend: facts[0].Backend, DType: c.dtype, HeadWidth: c.size, Masked: c.mask, Why: facts[0].Why,
		}, facts[0])
	}
}

// From 2.15 on one head of key and value serves all of the query without enable_gqa, as torch._fused_sdp_choice says
// there for heads of 64 on an A100; several do not, nor does one batch for all.
func TestOneHeadOfKeysIsTakenForAll(t *testing.T) {
	later := rules
	later.Attention.OneHead, later.Attention.EfficientGrouped = true, true
	for _, c := range []struct {
		dtype       trace.DType
		mask        bool
		batch, keys int64 // of 2 and 4
		gqa         bool
		want        string
	}{
		{trace.F32, false, 2, 1, false, "Efficient"},
		{trace.F32, true, 2, 1, false, "Efficient"},
		{trace.BF16, false, 2, 1, false, "Flash"},
		{trace.BF16, true, 2, 1, false, "Efficient"},
		{trace.BF16, true, 2, 1, true, "Efficient"},
		{trace.BF16, true, 2, 2, false, "Math"},
		{trace.BF16, false, 2, 2, false, "Math"},
		{trace.BF16, false, 2, 2, true, "Flash"},
		{trace.BF16, false, 1, 4, false, "Math"},
		{trace.F32, true, 1, 1, false, "Math"},
	} {
		tape := trace.New(trace.GPU{Capability: 80, SMs: 108}, later, trace.Options{Warm: true})
		q := heads(tape, c.dtype, 2, 4, 64, 64)
		k, v := heads(tape, c.dtype, c.batch, c.keys, 64, 64), heads(tape, c.dtype, c.batch, c.keys, 64, 64)
		a := trace.AttentionArgs{EnableGQA: c.gqa}
		if c.mask {
			a.Mask = tape.Frame().Bind(tape.New("mask", program.Batch, trace.Bool, 2, 1, 64, 64))
		}
		require.Equal(t, c.want, attentionNode(tape, q, k, v, a), "%+v", c)
	}
}

// sdpa_kernel leaves the next best of the kernels that it allows; where none of these takes the tensors, PyTorch
// raises.
func TestAttentionGoesByTheKernelsAllowed(t *testing.T) {
	for _, c := range []struct {
		dtype   trace.DType
		allowed []string
		want    string
	}{
		{trace.BF16, []string{"memory-efficient", "cuDNN", "math"}, "Efficient"},
		{trace.BF16, []string{"flash", "math"}, "Flash"},
		{trace.BF16, []string{"math"}, "Math"},
		{trace.F32, []string{"flash", "cuDNN", "math"}, "Math"},
	} {
		tape := trace.New(ada, rules, trace.Options{Warm: true})
		q := heads(tape, c.dtype, 2, 4, 64, 64)
		k, v := heads(tape, c.dtype, 2, 4, 64, 64), heads(tape, c.dtype, 2, 4, 64, 64)
		tape.AttentionKernels(c.allowed, func() {
			require.Equal(t, c.want, attentionNode(tape, q, k, v, trace.AttentionArgs{}), "%+v", c)
		})
	}
	tape := trace.New(ada, rules, trace.Options{})
	x := heads(tape, trace.F32, 2, 4, 64, 64)
	err := tape.Try(func() {
		tape.AttentionKernels([]string{"flash"}, func() { x.ScaledDotProductAttention(x, x, trace.AttentionArgs{}) })
	})
	require.ErrorContains(t, err, "PyTorch refuses the attention: none of the kernels that sdpa_kernel allows (flash) supports these tensors: the memory-efficient kernels are turned off; flash takes half precision alone; allow others")
}

// drawAttention records a step of attention over random shapes.
func drawAttention(rt *rapid.T) *trace.Tape {
	gpu := rapid.SampledFrom([]trace.GPU{turing, ada, blackwell, hopper}).Draw(rt, "board")
	d := rapid.SampledFrom([]trace.DType{trace.F32, trace.F16, trace.BF16}).Draw(rt, "dtype")
	size := rapid.Int64Range(1, 300).Draw(rt, "head size")
	length, keys := rapid.Int64Range(1, 700).Draw(rt, "queries"), rapid.Int64Range(1, 700).Draw(rt, "keys")
	tape := trace.New(gpu, rules, trace.Options{Warm: true})
	a := trace.AttentionArgs{IsCausal: rapid.Bool().Draw(rt, "causal")}
	if rapid.Bool().Draw(rt, "dropout") {
		a.Dropout = 0.1
	}
	groups := int64(1)
	if rapid.Bool().Draw(rt, "grouped") {
		a.EnableGQA, groups = true, 2
	}
	if !a.IsCausal && rapid.Bool().Draw(rt, "mask") {
		mask := rapid.SampledFrom([]trace.DType{trace.Bool, d}).Draw(rt, "mask type")
		a.Mask = tape.Frame().Bind(tape.New("mask", program.Batch, mask, 2, 1, length, keys))
		if mask == d && rapid.Bool().Draw(rt, "mask grad") {
			a.Mask.Leaf()
		}
	}
	attentionNode(tape, heads(tape, d, 2, 4, length, size), heads(tape, d, 2, 4/groups, keys, size),
		heads(tape, d, 2, 4/groups, keys, size), a)
	return tape
}

// Every kernel frees what it takes; leaves, masks and gradients alone stay.
func TestAttentionLeavesNothingBehind(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := drawAttention(rt).Program()
		require.NoError(rt, p.Validate())
		dead := map[uint32]bool{}
		for _, i := range p.Instructions {
			if i.Kind == program.Free {
				dead[i.Arg] = true
			}
		}
		for i, b := range p.Buffers {
			if !dead[uint32(i)] {
				require.Contains(rt, []program.Class{program.Batch, program.Gradients}, b.Class, "%+v", p.Sites[b.Site])
			}
		}
	})
}

// Fused kernels never hold the matrix of all scores: what they allocate grows with the length, not with its square.
func TestFusedAttentionGrowsWithTheLength(t *testing.T) {
	for _, c := range []struct {
		gpu   trace.GPU
		dtype trace.DType
		fused bool
	}{{hopper, trace.F16, true}, {blackwell, trace.F16, true}, {hopper, trace.F32, true}, {turing, trace.BF16, false}} {
		total := func(length int64) int64 {
			tape := trace.New(c.gpu, rules, trace.Options{Warm: true})
			x := heads(tape, c.dtype, 8, 32, length, 64)
			attentionNode(tape, x, x, x, trace.AttentionArgs{})
			n := int64(0)
			for _, b := range tape.Program().Buffers {
				n += b.Bytes
			}
			return n
		}
		growth := float64(total(8192)) / float64(total(4096))
		require.Equal(t, c.fused, growth < 2.1, "%s %s: %.2f times the bytes for twice the length", c.gpu.Name,
			c.dtype, growth)
	}
}
