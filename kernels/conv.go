package kernels

import "math/bits"

// Conv is a two-dimensional convolution, with kernels for its output and both gradients. Channels come last: images are
// [image][y][x][channel], weights [output channel][y][x][input channel]. F16 runs on tensor cores, and from compute
// capability 8.0 on also BF16 and TF32. Addresses, and a group's input and output channels, are multiples of 16 bytes.
type Conv struct {
	Type Type
	// TF32 is the same as in [GEMM].
	TF32                  bool
	Input, Weight, Output uint64
	// Channels and OutChannels are totals over all groups.
	Images, Height, Width, Channels, OutChannels, Groups int64
	// TapsY and TapsX are the height and width of the filters.
	TapsY, TapsX         int64
	StrideY, StrideX     int64
	PadY, PadX           int64
	DilationY, DilationX int64
	// Scale multiplies the result; zero means one.
	Scale float64
}

// OutHeight returns the height of the output.
func (k Conv) OutHeight() int64 { return outExtent(k.Height, k.TapsY, k.StrideY, k.PadY, k.DilationY) }

// OutWidth returns the width of the output.
func (k Conv) OutWidth() int64 { return outExtent(k.Width, k.TapsX, k.StrideX, k.PadX, k.DilationX) }

func outExtent(in, taps, stride, pad, dilation int64) int64 {
	return max(0, (in+2*pad-dilation*(taps-1)-1)/stride+1)
}

var (
	convForward = forProducts("conv_forward")
	convInput   = forProducts("conv_input")
	convWeight  = forProducts("conv_weight")
)

// Forward returns the launch that computes Output from Input and Weight.
func (k Conv) Forward(capability int) Launch {
	p := product{m: k.positions(), n: k.OutChannels / k.Groups, k: k.taps() * k.Channels / k.Groups, batch: k.Groups}
	l := k.launch(&convForward, p, capability)
	l.Reads, l.Writes = k.visitedInput()+k.weightBytes(), k.outputBytes()
	return l
}

// InputGradient returns the launch that computes Input, as a gradient, from Output (its gradient) and Weight.
func (k Conv) InputGradient(capability int) Launch {
	p := product{
		m: k.Images * k.Height * k.Width, n: k.Channels / k.Groups, k: k.taps() * k.OutChannels / k.Groups,
		batch: k.Groups,
	}
	l := k.launch(&convInput, p, capability)
	l.Reads, l.Writes = k.visitedOutput()+k.weightBytes(), k.inputBytes()
	return l
}

// WeightGradient returns the launch that computes Weight, as a gradient, from Output (its gradient) and Input.
func (k Conv) WeightGradient(capability int) Launch {
	p := product{m: k.OutChannels / k.Groups, n: k.taps() * k.Channels / k.Groups, k: k.positions(), batch: k.Groups}
	l := k.launch(&convWeight, p, capability)
	l.Reads, l.Writes = k.outputBytes()+k.visitedInput(), k.weightBytes()
	return l
}

func (k Conv) taps() int64      { return k.TapsY * k.TapsX }
func (k Conv) positions() int64 { return k.Images * k.OutHeight() * k.OutWidth() }

func (k Conv) inputBytes() int64  { return k.Images * k.Height * k.Width * k.Channels * k.Type.Size() }
func (k Conv) outputBytes() int64 { return k.positions() * k.OutChannels * k.Type.Size() }
func (k Conv) weightBytes() int64 {
	return k.OutChannels * k.taps() * (k.Channels / k.Groups) * k.Type.Size()
}

// visitedInput returns the number of input bytes that some window contains. Long strides skip pixels, and the last
// window may end before the image does.
func (k Conv) visitedInput() int64 {
	rows := coveredExtent(k.Height, k.TapsY, k.StrideY, k.PadY, k.DilationY)
	columns := coveredExtent(k.Width, k.TapsX, k.StrideX, k.PadX, k.DilationX)
	return k.Images * rows * columns * k.Channels * k.Type.Size()
}

// coveredExtent returns the number of pixels along one dimension that some window contains.
func coveredExtent(in, taps, stride, pad, dilation int64) int64 {
	out := outExtent(in, taps, stride, pad, dilation)
	if dilation == 1 && taps >= stride {
		return max(0, min(in, (out-1)*stride+taps-pad)) // without gaps
	}
	count := int64(0)
	for at := range in {
		for tap := range taps {
			first := at + pad - tap*dilation
			if first >= 0 && first%stride == 0 && first/stride < out {
				count++
				break
			}
		}
	}
	return count
}

// visitedOutput returns the number of output bytes whose window contains a pixel, and not only padding.
func (k Conv) visitedOutput() int64 {
	rows := insideExtent(k.Height, k.TapsY, k.StrideY, k.PadY, k.DilationY)
	columns := insideExtent(k.Width, k.TapsX, k.StrideX, k.PadX, k.DilationX)
	return k.Images * rows * columns * k.OutChannels * k.Type.Size()
}

// insideExtent returns the number of windows along one dimension that contain a pixel, and not only padding.
func insideExtent(in, taps, stride, pad, dilation int64) int64 {
	out := outExtent(in, taps, stride, pad, dilation)
	if dilation == 1 && pad < taps {
		return out
	}
	count := int64(0)
	for o := range out {
		for tap := range taps {
			if at := o*stride - pad + tap*dilation; at >= 0 && at < in {
				count++
				break
			}
		}
	}
	return count
}

func (k Conv) launch(names *productNames, p product, capability int) Launch {
	lanes := vectorBytes / k.Type.Size()
	if (k.Input|k.Weight|k.Output)%vectorBytes != 0 || k.Channels/k.Groups%lanes != 0 ||
		k.OutChannels/k.Groups%lanes != 0 {
		panic("kernels: a convolution whose operands are no multiples of 16 bytes")
	}
	name, e := names.choose(k.Type, k.TF32, capability)
	if max(k.Images*k.Height*k.Width, k.positions()) >= 1<<30 {
		panic("kernels: a convolution over 2^30 pixels or more")
	}
	p.scale = k.Scale
	p.chooseSplits()
	outHeight, outWidth := k.OutHeight(), k.OutWidth()
	channelsIn, channelsOut := k.Channels/k.Groups, k.OutChannels/k.Groups
	args := make([]uint64, 0, 33)
	args = append(args, k.Input, k.Weight, k.Output,
		uint64(k.Images), uint64(k.Height), uint64(k.Width), uint64(channelsIn),
		uint64(outHeight), uint64(outWidth), uint64(channelsOut),
		uint64(k.TapsY), uint64(k.TapsX), uint64(k.StrideY), uint64(k.StrideX),
		uint64(k.PadY), uint64(k.PadX), uint64(k.DilationY), uint64(k.DilationX),
		divisor(k.Height), divisor(k.Width), divisor(channelsIn), divisor(outHeight), divisor(outWidth),
		divisor(channelsOut), divisor(k.TapsX), divisor(k.StrideY), divisor(k.StrideX))
	return p.launch(name, e, p.appendArgs(args))
}

// divisor returns d as the argument with which kernels divide numbers below 2^31 by d: by a multiplication, an addition
// and a shift (Divisor of conv.cu; Granlund and Montgomery, "Division by Invariant Integers using Multiplication",
// figure 4.1).
func divisor(d int64) uint64 {
	if d <= 1 {
		return 1 // n*1>>32 + n
	}
	shift := uint64(bits.Len64(uint64(d - 1)))
	magic := (1<<32*(1<<shift-uint64(d)))/uint64(d) + 1
	return shift<<32 | magic
}
