package cudnn

import (
	"fmt"
	"strings"
)

// DType is the element type of input, weight and output; cuDNN computes all of them with fp32 accumulation.
type DType uint8

// The element types of convolutions. F32 means TF32 on GPUs that have it.
const (
	F32 DType = iota
	F16
	BF16
)

// Size returns the number of bytes of one element.
func (d DType) Size() int64 {
	if d == F32 {
		return 4
	}
	return 2
}

var dtypeNames = [...]string{"fp32", "fp16", "bf16"}

func (d DType) String() string { return dtypeNames[d] }

// Layout is the memory format of the tensors that PyTorch passes to the convolution.
type Layout uint8

// The layouts. InputChannelsLast is a channels-last input with a contiguous weight, which PyTorch copies first.
const (
	Contiguous Layout = iota
	ChannelsLast
	InputChannelsLast
)

// Direction is the pass of a convolution: forward, or one of the two gradients.
type Direction uint8

// The three directions, in the order in which they run. One backward call computes both gradients. Each has its own
// workspace, freed before the next.
const (
	Forward Direction = iota
	GradInput
	GradWeight
)

var directionNames = [...]string{"forward", "grad input", "grad weight"}

func (d Direction) String() string { return directionNames[d] }

// Config describes one convolution as PyTorch calls it.
type Config struct {
	// Dim is the number of spatial dimensions, 1 to 3.
	Dim int
	// Transposed reports whether it is a transposed convolution (nn.ConvTranspose).
	Transposed bool
	// N is the batch size, Ci and Co are the numbers of input and output channels.
	N, Ci, Co int64
	// In is the spatial size of the input, K of the kernel; the first Dim elements of each are used. Out is computed if
	// it is zero; for Transposed it must be set, since it depends on output_padding.
	In, K, Stride, Pad, Dilation, Out [3]int64
	// Groups is the number of groups, which divides Ci and Co.
	Groups int64
	// DType is the type in which the convolution computes (after autocast).
	DType DType
	// Layout is the memory format of input and weight.
	Layout Layout
}

// GPU holds the properties of a GPU that determine cuDNN's choice of engines. The number of multiprocessors is not one
// of them (see the package comment).
type GPU struct {
	// Name is only used in messages.
	Name string
	// Capability is the compute capability times ten: 75, 80, 86, 89, 90, 120.
	Capability int
	// Memory is the device memory in bytes. Engines whose workspace exceeds it are skipped.
	Memory int64
}

// MaxExcess returns the largest difference, in bytes, between the workspace of a convolution on a real GPU of a compute
// capability and cuDNN's answer without a GPU. It was measured for 2,487 convolutions on an H100
// (bench/reference/data/h100/convolutions.txt.gz): Hopper's kernels keep a tile of partial sums for each concurrent
// thread block, of which there are 132 there and 18 without a GPU.
func MaxExcess(capability int) int64 {
	if capability == 90 {
		return 17_302_512
	}
	return 0
}

// operationKind is the operation that cuDNN computes, see [Canonical].
type operationKind uint8

const (
	fprop operationKind = iota
	dgrad
	wgrad
)

// problem is one direction of a convolution in cuDNN's terms: x is the image (c channels), y the result of the forward
// pass (k channels), w the filter.
type problem struct {
	Config
	kind   operationKind
	gpu    *GPU
	c, k   int64 // channels of x and y, all groups
	cg, kg int64 // the same per group
	xs, ys int64 // spatial points of x and y
	taps   int64 // points of the kernel
	es     int64 // bytes per element
}

// Canonical returns the cuDNN call for direction d of convolution c. PyTorch runs 1-D convolutions as 2-D ones with one
// row. It runs the forward pass of a transposed convolution as the data gradient of the ordinary convolution from its
// output to its input, and its input gradient as the forward pass of that convolution. Missing sizes are computed.
func Canonical(c Config, d Direction) (Config, Direction) {
	for i := range c.Dim {
		if c.Out[i] == 0 {
			c.Out[i] = outSize(c, i)
		}
	}
	if c.Transposed {
		c.Transposed, c.Ci, c.Co, c.In, c.Out = false, c.Co, c.Ci, c.Out, c.In
		switch d {
		case Forward:
			d = GradInput
		case GradInput:
			d = Forward
		}
	}
	if c.Dim == 1 {
		c.Dim = 2
		c.In[1], c.Out[1], c.K[1] = c.In[0], c.Out[0], c.K[0]
		c.Stride[1], c.Pad[1], c.Dilation[1] = c.Stride[0], c.Pad[0], c.Dilation[0]
		c.In[0], c.Out[0], c.K[0], c.Stride[0], c.Pad[0], c.Dilation[0] = 1, 1, 1, 1, 0, 1
	}
	for i := c.Dim; i < 3; i++ {
		c.In[i], c.Out[i], c.K[i], c.Stride[i], c.Pad[i], c.Dilation[i] = 1, 1, 1, 1, 0, 1
	}
	return c, d
}

func newProblem(cfg Config, d Direction, b *GPU) problem {
	cfg, d = Canonical(cfg, d)
	p := problem{
		Config: cfg, gpu: b,
		c: cfg.Ci, k: cfg.Co, cg: cfg.Ci / cfg.Groups, kg: cfg.Co / cfg.Groups,
		xs:   cfg.In[0] * cfg.In[1] * cfg.In[2],
		ys:   cfg.Out[0] * cfg.Out[1] * cfg.Out[2],
		taps: cfg.K[0] * cfg.K[1] * cfg.K[2],
		es:   cfg.DType.Size(),
	}
	switch d {
	case GradInput:
		p.kind = dgrad
	case GradWeight:
		p.kind = wgrad
	}
	return p
}

// flat reports whether the images have one row, as in 1-D convolutions.
func (p *problem) flat() bool { return p.Dim == 2 && p.In[0] == 1 && p.Out[0] == 1 && p.K[0] == 1 }

// outSize returns the spatial output size along axis i, without output_padding.
func outSize(c Config, i int) int64 {
	reach := c.Dilation[i]*(c.K[i]-1) + 1
	if c.Transposed {
		return (c.In[i]-1)*c.Stride[i] - 2*c.Pad[i] + reach
	}
	return (c.In[i]+2*c.Pad[i]-reach)/c.Stride[i] + 1
}

// Choice is the engine that cuDNN chooses, with its tuning parameters (knobs).
type Choice struct {
	// Engine is the engine's class.
	Engine Engine
	// TileM and TileN are the sides of the kernel's tile if the workspace depends on them, else zero.
	TileM, TileN int64
	// Splits is the number of parts into which the reduction is split; zero without splits.
	Splits int64
}

// String formats a choice as in the rules: "copies", "copies*12" with twelve fp32 results, "copies/64x128*3" with three
// partial sums of each tile.
func (c Choice) String() string {
	s := c.Engine.String()
	if c.TileM > 0 {
		s += fmt.Sprintf("/%dx%d", c.TileM, c.TileN)
	}
	if c.Splits > 0 {
		s += fmt.Sprintf("*%d", c.Splits)
	}
	return s
}

// parseChoice parses the text that String returns.
func parseChoice(s string) (Choice, error) {
	var c Choice
	name, knobs := s, ""
	if i := strings.IndexAny(s, "/*"); i >= 0 {
		name, knobs = s[:i], s[i:]
	}
	e, err := engineNamed(name)
	if err != nil {
		return c, err
	}
	c.Engine = e
	switch {
	case knobs == "":
	case knobs[0] == '*':
		_, err = fmt.Sscanf(knobs, "*%d", &c.Splits)
	case strings.Contains(knobs, "*"):
		_, err = fmt.Sscanf(knobs, "/%dx%d*%d", &c.TileM, &c.TileN, &c.Splits)
	default:
		_, err = fmt.Sscanf(knobs, "/%dx%d", &c.TileM, &c.TileN)
	}
	if err == nil && (c.String() != s || min(c.TileM, c.TileN, c.Splits) < 0 || c.TileN == 0 && c.TileM > 0) {
		err = fmt.Errorf("need ENGINE/MxN*SPLITS")
	}
	if err != nil {
		return c, fmt.Errorf("choice %q: %w", s, err)
	}
	return c, nil
}
