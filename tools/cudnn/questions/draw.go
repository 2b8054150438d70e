package main

import (
	"math"
	"math/rand/v2"

	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

// drawer draws random convolution calls for questions to cuDNN.
type drawer struct {
	*rand.Rand
	// small limits shapes to small experiments: few samples, channels and elements.
	small bool
}

// most returns the largest number of elements of a drawn tensor.
func (d drawer) most() int64 {
	if d.small {
		return 1 << 23
	}
	return 1 << 30
}

// chance returns true with probability p.
func (d drawer) chance(p float64) bool { return d.Float64() < p }

// spread draws an integer between low and high from a log-uniform distribution.
func (d drawer) spread(low, high float64) int64 {
	return int64(math.Exp(math.Log(low) + d.Float64()*math.Log(high/low)))
}

// among draws one of the values.
func (d drawer) among(values ...int64) int64 { return values[d.IntN(len(values))] }

// question draws configurations until one has a valid size, and returns its question.
func (d drawer) question() query.Question {
	d.small = d.chance(0.5)
	for {
		q := query.Question{
			Operation: cudnn.Direction(d.IntN(3)),
			Config:    cudnn.Config{DType: cudnn.DType(d.among(0, 0, 0, 1, 1, 2)), Dim: 2, N: d.batch()},
		}
		c := &q.Config
		last := d.chance(0.2)
		d.channels(c)
		d.image(c)
		if last && c.Ci > 1 {
			c.Layout = cudnn.ChannelsLast
		}
		if outputs(c) && elements(c) <= d.most() {
			return q
		}
	}
}

// elements returns the number of elements of the largest tensor.
func elements(c *cudnn.Config) int64 {
	x, y, w := c.N*c.Ci, c.N*c.Co, c.Ci/c.Groups*c.Co
	for i := range c.Dim {
		x, y, w = x*c.In[i], y*c.Out[i], w*c.K[i]
	}
	return max(x, y, w)
}

// outputs sets the output's size and reports whether it is positive.
func outputs(c *cudnn.Config) bool {
	for i := range c.Dim {
		room := c.In[i] + 2*c.Pad[i] - c.Dilation[i]*(c.K[i]-1) - 1
		if room < 0 {
			return false
		}
		c.Out[i] = room/c.Stride[i] + 1
	}
	return true
}

// batch draws a batch size: mostly a power of two.
func (d drawer) batch() int64 {
	if d.small {
		return d.among(1, 2, 4, 4, 8, 8, 16, 16, 32, d.spread(1, 33))
	}
	if d.chance(0.7) {
		return 1 << d.IntN(10)
	}
	return d.spread(1, 500)
}

// width draws a number of channels: a round one for three in four networks.
func (d drawer) width() int64 {
	switch p := d.Float64(); {
	case d.small && p < 0.4:
		return d.spread(1, 700)
	case d.small:
		return 8 * d.spread(1, 80)
	case p < 0.30:
		return 1 << (3 + d.IntN(9))
	case p < 0.70:
		return 8 * d.spread(1, 260)
	case p < 0.80:
		return 4 * d.spread(1, 300)
	}
	return d.spread(1, 1600)
}

// channels draws input channels, output channels and groups.
func (d drawer) channels(c *cudnn.Config) {
	c.Ci, c.Groups = d.width(), 1
	switch p := d.Float64(); {
	case p < 0.10: // the first layer of a network
		c.Ci = d.among(1, 1, 2, 3, 3, 3, 3, 4, 6)
		c.Co = d.width()
	case p < 0.40:
		c.Co = c.Ci
	case p < 0.60:
		c.Co = c.Ci * d.among(2, 2, 4, 3, 6)
	case p < 0.75:
		c.Co = max(1, c.Ci/d.among(2, 2, 4, 3, 6))
	case p < 0.82: // depthwise, also with several outputs per channel
		c.Groups = c.Ci
		c.Co = c.Ci * d.among(1, 1, 1, 1, 2)
	case p < 0.92: // grouped
		c.Groups = d.among(2, 2, 3, 4, 4, 8, 8, 16, 32, 64)
		c.Ci = c.Groups * max(1, d.width()/c.Groups)
		c.Co = c.Groups * max(1, d.width()/c.Groups)
		if d.chance(0.7) {
			c.Co = c.Ci
		}
	default:
		c.Co = d.width()
	}
}

// side draws the size of an image along one axis: half of them are a common size halved by several layers of stride
// two.
func (d drawer) side() int64 {
	if d.small {
		return d.spread(1, 240)
	}
	if d.chance(0.5) {
		full := d.among(224, 224, 224, 256, 256, 512, 128, 64, 32, 28, 299, 192, 160, 384, 320, 416, 640, 96, 72, 80)
		return max(1, (full+1)>>d.IntN(6))
	}
	return d.spread(1, 600)
}

// image draws the spatial sizes of a signal, image or volume.
func (d drawer) image(c *cudnn.Config) {
	c.Dilation = [3]int64{1, 1, 1}
	c.Stride = c.Dilation
	switch p := d.Float64(); {
	case p < 0.20:
		d.signal(c)
		return
	case p < 0.25:
		c.Dim = 3
		c.In[0] = d.spread(1, 65)
		c.In[1] = d.spread(3, 130)
		c.In[2] = c.In[1]
	case p < 0.65:
		c.In[0] = d.side()
		c.In[1] = c.In[0]
	default:
		c.In[0], c.In[1] = d.side(), d.side()
	}
	d.kernels(c)
}

// signal draws a 1-D convolution.
func (d drawer) signal(c *cudnn.Config) {
	c.In[0], c.K[0] = 1, 1
	c.In[1] = d.spread(8, 2000)
	if c.Ci <= 2 && d.chance(0.5) {
		c.In[1] = d.spread(1000, 200_000)
	}
	switch p := d.Float64(); {
	case p < 0.40:
		c.K[1] = 1
	case p < 0.75:
		c.K[1] = d.among(2, 3, 3, 3, 4, 5, 5, 7)
	default:
		c.K[1] = d.spread(2, 129)
	}
	d.reach(c, 1)
	if d.chance(0.15) {
		c.Stride[1] = d.among(2, 2, 2, 3, 4, 5, 8, 10)
	}
}

// kernels draws kernel, stride, padding and dilation of images and volumes.
func (d drawer) kernels(c *cudnn.Config) {
	side := d.among(1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 5, 5, 7, 7, 2, 4, 4)
	if d.chance(0.03) {
		side = d.spread(1, 33)
	}
	for i := range c.Dim {
		c.K[i] = side
	}
	if d.chance(0.06) { // along one axis, as for spectrograms
		d.band(c)
		return
	}
	if d.chance(0.15) { // different sizes along the axes
		for i := range c.Dim {
			c.K[i] = d.among(1, 1, 2, 3, 3, 5, 7)
		}
	}
	s := int64(1)
	switch p := d.Float64(); {
	case p < 0.20:
		s = 2
	case p < 0.24:
		s = d.among(3, 4)
	case p < 0.32:
		s = 0 // patch embedding: stride equals kernel
	}
	for i := range c.Dim {
		c.Stride[i] = s
		if s == 0 {
			c.Stride[i] = c.K[i]
		}
		if s > 0 && s < 5 && d.chance(0.06) {
			c.Stride[i] = d.among(1, 2)
		}
	}
	if s == 0 {
		return
	}
	for i := range c.Dim {
		d.reach(c, i)
	}
}

// band draws a kernel along one axis; its stride is the kernel's size or one.
func (d drawer) band(c *cudnn.Config) {
	axis := d.IntN(c.Dim)
	for i := range c.Dim {
		c.K[i] = 1
	}
	c.K[axis] = d.among(2, 2, 2, 3, 3, 4, 5)
	if d.chance(0.6) {
		c.Stride[axis] = c.K[axis]
		return
	}
	d.reach(c, axis)
}

// reach draws dilation and padding along axis i.
func (d drawer) reach(c *cudnn.Config, i int) {
	if c.K[i] > 1 && d.chance(0.06) {
		c.Dilation[i] = d.among(2, 2, 2, 3, 4, 6)
	}
	same := c.Dilation[i] * (c.K[i] - 1) / 2
	switch p := d.Float64(); {
	case p < 0.78:
		c.Pad[i] = same
	case p < 0.95:
	default:
		c.Pad[i] = d.Int64N(same + 1)
	}
}
