package script

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/trace/cudnn"
)

func TestQuestionsAboutConvolutions(t *testing.T) {
	q, err := parseQuestion("conv dgrad dtype=half compute=float x=8,4,64,32;s=8192,1,128,4 w=16,2,3,3;s=18,9,3,1 y=8,16,64,32;s=1,1,1,1 pad=1,1 stride=1,1 dilation=1,1")
	require.NoError(t, err)
	require.Equal(t, cudnn.GradInput, q.Operation)
	c := q.Config
	require.Equal(t, []int64{8, 4, 16, 2}, []int64{c.N, c.Ci, c.Co, c.Groups})
	require.Equal(t, cudnn.F16, c.DType)
	require.Equal(t, cudnn.ChannelsLast, c.Layout)
	require.Equal(t, [3]int64{3, 3, 1}, c.K)
	for _, line := range []string{
		"", "graph op=1", "conv fprop", "conv up dtype=half", "conv fprop dtype=other x=1,1,1,1 w=1,1,1,1 y=1,1,1,1 pad=0,0 stride=1,1 dilation=1,1",
		"conv fprop dtype=half x=1,3,8,8 w=4,2,3,3 y=1,4,8,8 pad=1,1 stride=1,1 dilation=1,1",
		"conv fprop dtype=half x=1,2,8,8 w=4,0,3,3 y=1,4,8,8 pad=1,1 stride=1,1 dilation=1,1",
		"conv fprop dtype=half x=1,2,8,8 w=4,2,3,3 y=1,4,8,8 pad=1 stride=1,1 dilation=1,1",
	} {
		_, err := parseQuestion(line)
		require.Error(t, err, line)
	}
}
