package query

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// drawCall draws a direction of a convolution as PyTorch calls it.
func drawCall(t *rapid.T) (cudnn.Config, cudnn.Direction) {
	size := func(name string, low, high int64) int64 { return rapid.Int64Range(low, high).Draw(t, name) }
	groups := size("groups", 1, 8)
	c := cudnn.Config{
		Dim: int(size("dims", 1, 3)), Transposed: rapid.Bool().Draw(t, "transposed"),
		N: size("samples", 1, 1<<20), Ci: groups * size("c", 1, 999), Co: groups * size("k", 1, 999), Groups: groups,
		DType:  rapid.SampledFrom([]cudnn.DType{cudnn.F32, cudnn.F16, cudnn.BF16}).Draw(t, "type"),
		Layout: rapid.SampledFrom([]cudnn.Layout{cudnn.Contiguous, cudnn.ChannelsLast}).Draw(t, "layout"),
	}
	for i := range c.Dim {
		c.K[i], c.Stride[i], c.Dilation[i] = size("kernel", 1, 9), size("stride", 1, 4), size("dilation", 1, 3)
		c.Pad[i] = size("pad", 0, c.K[i]/2)
		c.In[i] = size("in", c.Dilation[i]*c.K[i], 1<<20)
	}
	d := rapid.SampledFrom([]cudnn.Direction{cudnn.Forward, cudnn.GradInput, cudnn.GradWeight}).Draw(t, "direction")
	return c, d
}

func TestQuestionsAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := NewQuestion(drawCall(t))
		have, err := ParseQuestion(want.String())
		require.NoError(t, err)
		require.Equal(t, want.String(), have.String())
		// Axes that a question lacks are not written; they are of size one.
		require.Equal(t, want, NewQuestion(have.Config, have.Operation))
	})
}

func TestQuestionsAboutTheSameCallOfCUDNNAreEqual(t *testing.T) {
	signal := cudnn.Config{
		Dim: 1, N: 4, Ci: 8, Co: 6, In: [3]int64{100}, Out: [3]int64{49}, K: [3]int64{4}, Stride: [3]int64{2},
		Dilation: [3]int64{1}, Groups: 2, DType: cudnn.F16,
	}
	up := signal
	up.Transposed, up.Ci, up.Co, up.In, up.Out = true, 6, 8, signal.Out, signal.In
	line := "1 1 0 2 4 8 6 2 1 100 1 4 1 49 1 2 0 0 1 1"
	require.Equal(t, line, NewQuestion(signal, cudnn.GradInput).String())
	require.Equal(t, line, NewQuestion(up, cudnn.Forward).String())
}

// stem is a question in one line: a 7x7 convolution at stride 2.
const stem = "0 1 0 2 32 3 64 1 224 224 7 7 112 112 2 2 3 3 1 1"

func FuzzParseQuestion(f *testing.F) {
	f.Add(stem)
	f.Add("2 0 1 3 1 1 1 1 8 8 8 3 3 3 6 6 6 1 1 1 0 0 0 1 1 1")
	f.Add("256 0 0 2 1 1 1 1 8 8 3 3 6 6 1 1 0 0 1 1")
	f.Add("0 0 0 9223372036854775807")
	f.Fuzz(func(t *testing.T, line string) {
		q, err := ParseQuestion(line)
		if err != nil {
			return
		}
		require.LessOrEqual(t, q.Operation, cudnn.GradWeight)
		again, err := ParseQuestion(q.String())
		require.NoError(t, err)
		require.Equal(t, q, again)
	})
}
