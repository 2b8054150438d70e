package unet

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/profiler/trace"
)

// Two 3x3 convolutions without bias and their norms at each level, a 2x2
// transposed convolution with bias between levels, a 1x1 one at the end.
func TestParameterCount(t *testing.T) {
	m := Models()[0]
	c, err := m.Complete(models.Case{})
	require.NoError(t, err)
	trainer, err := m.Build(c)
	require.NoError(t, err)
	want, in := int64(0), int64(3)
	double := func(in, out int64) int64 { return 9*in*out + 9*out*out + 4*out }
	for w := int64(64); w <= 1024; w *= 2 {
		want += double(in, w)
		in = w
		if w < 1024 {
			want += double(2*w, w) + 4*2*w*w + w
		}
	}
	require.Equal(t, want+64*2+2, trainer.Counts().Total)
}

func TestImagesMustHalve(t *testing.T) {
	_, err := Models()[0].Complete(models.Case{Settings: models.Settings{"image-size": 100}})
	require.EqualError(t, err, "unet: image-size: it must be a multiple of 16: the image is halved four times")
}

// Twice the side is four times the activations.
func TestActivationsGrowWithTheImage(t *testing.T) {
	peak := func(size int64) (sum int64) {
		r, err := Models()[0].Record(models.Case{Batch: 1, Settings: models.Settings{"image-size": size, "width": 8}},
			trace.GPU{Capability: 86, SMs: 82, ThreadsPerSM: 1536}, models.Options{})
		require.NoError(t, err)
		for _, b := range r.Program.Buffers {
			if b.Class.String() == "activations" {
				sum += b.Bytes
			}
		}
		return sum
	}
	require.InEpsilon(t, 4*peak(256), peak(512), 0.01)
}
