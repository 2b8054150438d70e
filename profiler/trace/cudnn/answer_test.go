package cudnn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/trace/cudnn"
)

func TestAnswersGoBeforeTheRules(t *testing.T) {
	gpu := cudnn.GPU{Capability: 86, Memory: 24 << 30}
	c := cudnn.Config{
		Dim: 2, N: 8, Ci: 64, Co: 64, Groups: 1, In: [3]int64{56, 56}, K: [3]int64{3, 3}, Stride: [3]int64{1, 1},
		Pad: [3]int64{1, 1}, Dilation: [3]int64{1, 1}, Layout: cudnn.ChannelsLast,
	}
	answer := func(n int64, known bool) cudnn.Answer {
		return func(cudnn.Config, cudnn.Direction) (int64, bool) { return n, known }
	}
	modeled := rules.Workspaces(c, cudnn.GradWeight, gpu)
	for _, tt := range []struct {
		name   string
		change func(*cudnn.Config, *cudnn.GPU)
		answer cudnn.Answer
		want   []int64 // nil for the rules'
		asked  bool
	}{
		{"an answer", nil, answer(123, true), []int64{123}, true},
		{"no workspace", nil, answer(0, true), nil, true},
		{"nobody asked", nil, answer(0, false), modeled, false},
		{"more than the GPU has", nil, answer(25<<30, true), modeled, false},
	} {
		got, asked := rules.AnsweredWorkspaces(c, cudnn.GradWeight, gpu, tt.answer)
		require.Equal(t, tt.asked, asked, tt.name)
		require.Equal(t, tt.want, got, tt.name)
	}
	// PyTorch calls no cuDNN for bfloat16 on GPUs before Ampere.
	old := cudnn.GPU{Capability: 75, Memory: 16 << 30}
	c.DType = cudnn.BF16
	require.False(t, old.Runs(c))
	got, asked := rules.AnsweredWorkspaces(c, cudnn.GradWeight, old, answer(123, true))
	require.False(t, asked)
	require.Equal(t, rules.Workspaces(c, cudnn.GradWeight, old), got)
}

// Where the kernel that sums for each sample can run, no recorded call pads the channels of the image, whatever cuDNN
// proposes without a GPU; an answer of less holds.
func TestDepthwiseGradientsCopyNoImages(t *testing.T) {
	vs, err := recorded()
	require.NoError(t, err)
	calls := 0
	for _, v := range vs {
		padded := 4 * v.Config.N * v.Config.Ci * v.Config.In[0] * max(v.Config.In[1], 1) * 2
		answer := func(n int64) cudnn.Answer {
			return func(cudnn.Config, cudnn.Direction) (int64, bool) { return n, true }
		}
		if v.Config.Layout == cudnn.Contiguous || v.Config.Groups == 1 || v.Config.Transposed ||
			len(v.Kernels[cudnn.GradWeight]) == 0 {
			continue
		}
		sums, asked := rules.AnsweredWorkspaces(v.Config, cudnn.GradWeight, v.GPU, answer(padded+1))
		if asked || v.Config.DType == cudnn.F32 {
			continue
		}
		calls++
		require.LessOrEqual(t, largest(v.Workspaces[cudnn.GradWeight]), max(largest(sums), padded), v)
		if v.Config.K[0] < 7 {
			_, asked = rules.AnsweredWorkspaces(v.Config, cudnn.GradWeight, v.GPU, answer(padded))
			require.True(t, asked, v)
		}
	}
	require.Greater(t, calls, 50)
}

func TestAnswersAreAskedInCuDNNsTerms(t *testing.T) {
	transposed := cudnn.Config{
		Dim: 1, Transposed: true, N: 2, Ci: 8, Co: 4, Groups: 1, In: [3]int64{50}, K: [3]int64{4}, Stride: [3]int64{2},
		Pad: [3]int64{1}, Dilation: [3]int64{1},
	}
	rules.AnsweredWorkspaces(transposed, cudnn.Forward, cudnn.GPU{Capability: 86, Memory: 24 << 30},
		func(c cudnn.Config, d cudnn.Direction) (int64, bool) {
			require.Equal(t, cudnn.GradInput, d)
			require.False(t, c.Transposed)
			require.Equal(t, [2]int64{4, 8}, [2]int64{c.Ci, c.Co})
			require.Equal(t, 2, c.Dim)
			return 0, false
		})
}
