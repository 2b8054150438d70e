package cudnn

import "fmt"

// DType is the element type of input, weight and output; cuDNN computes all of
// them with fp32 accumulation.
type DType uint8

// The types convolutions run in. F32 means TF32 on boards that have it.
const (
	F32 DType = iota
	F16
	BF16
)

// Size is the number of bytes of one element.
func (d DType) Size() int64 {
	if d == F32 {
		return 4
	}
	return 2
}

func (d DType) String() string {
	switch d {
	case F32:
		return "fp32"
	case F16:
		return "fp16"
	case BF16:
		return "bf16"
	}
	return fmt.Sprintf("DType(%d)", uint8(d))
}

// Layout is the memory format of the tensors PyTorch hands to the convolution.
type Layout uint8

// The layouts. InputChannelsLast is a channels-last input with a contiguous
// weight, which PyTorch first copies.
const (
	Contiguous Layout = iota
	ChannelsLast
	InputChannelsLast
)

// Direction is the part of training a convolution runs in.
type Direction uint8

// The three directions, in the order they run. Grad input and grad weight come
// from one backward call; each has its own workspace, freed before the next.
const (
	Forward Direction = iota
	GradInput
	GradWeight
)

func (d Direction) String() string {
	switch d {
	case Forward:
		return "forward"
	case GradInput:
		return "grad input"
	case GradWeight:
		return "grad weight"
	}
	return fmt.Sprintf("Direction(%d)", uint8(d))
}

// Config is one convolution as PyTorch calls it.
type Config struct {
	// Dim is the number of spatial dimensions, 1 to 3.
	Dim int
	// Transposed marks nn.ConvTranspose.
	Transposed bool
	// N is the batch size, Ci and Co the channels of input and output.
	N, Ci, Co int64
	// In is the spatial size of the input, K the kernel; both of length Dim,
	// as are the others. For Transposed, Out must be given too (it depends on
	// output_padding); otherwise it is computed when zero.
	In, K, Stride, Pad, Dilation, Out [3]int64
	// Groups divides Ci and Co.
	Groups int64
	// DType is the type the convolution computes in (after autocast).
	DType DType
	// Layout is the memory format of input and weight.
	Layout Layout
}

// Board is what decides about engines on a GPU. Its number of multiprocessors
// does not (see the package comment).
type Board struct {
	// Name appears in error texts and explanations only.
	Name string
	// Capability is the compute capability times ten: 75, 80, 86, 89, 90, 120.
	Capability int
	// Memory is the device memory in bytes; an engine whose workspace does not
	// fit is passed over.
	Memory int64
}

// kind is the operation as cuDNN sees it. PyTorch runs the forward of a
// transposed convolution as the data gradient of an ordinary one, and its
// gradient of the input as that one's forward.
type kind uint8

const (
	fprop kind = iota
	dgrad
	wgrad
)

// problem is a convolution direction brought to cuDNN's terms: x is the image
// side (c channels), y the feature side (k channels), w the filter.
type problem struct {
	Config
	kind   kind
	board  *Board
	c, k   int64 // channels of x and y, all groups
	cg, kg int64 // the same per group
	xs, ys int64 // spatial points of x and y
	taps   int64 // points of the kernel
	es     int64 // bytes per element
}

func newProblem(cfg Config, d Direction, b *Board) problem {
	for i := range 3 {
		if i >= cfg.Dim {
			cfg.In[i], cfg.K[i], cfg.Stride[i], cfg.Dilation[i], cfg.Pad[i], cfg.Out[i] = 1, 1, 1, 1, 0, 1
		} else if cfg.Out[i] == 0 {
			cfg.Out[i] = outSize(cfg, i)
		}
	}
	p := problem{
		Config: cfg, board: b,
		c: cfg.Ci, k: cfg.Co,
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
	if cfg.Transposed {
		p.c, p.k, p.xs, p.ys = p.k, p.c, p.ys, p.xs
		switch d {
		case Forward:
			p.kind = dgrad
		case GradInput:
			p.kind = fprop
		}
	}
	p.cg, p.kg = p.c/p.Groups, p.k/p.Groups
	return p
}

// x and y are the sizes of x and y along axis i.
func (p *problem) x(i int) int64 {
	if p.Transposed {
		return p.Out[i]
	}
	return p.In[i]
}

func (p *problem) y(i int) int64 {
	if p.Transposed {
		return p.In[i]
	}
	return p.Out[i]
}

// outSize is the spatial size of the output along axis i, without
// output_padding.
func outSize(c Config, i int) int64 {
	reach := c.Dilation[i]*(c.K[i]-1) + 1
	if c.Transposed {
		return (c.In[i]-1)*c.Stride[i] - 2*c.Pad[i] + reach
	}
	return (c.In[i]+2*c.Pad[i]-reach)/c.Stride[i] + 1
}
