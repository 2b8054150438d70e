package steptime

import (
	_ "embed" // the table
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/program"
)

// kernelsCSV has the parameters of kernel times. A row has a parameter, the GPUs and precisions to which it applies,
// its value and its source. tools/steptimes fits them to measured kernels and steps.
//
//go:embed kernels.csv
var kernelsCSV string

// kernelRow is a row of the table of kernel parameters.
type kernelRow struct {
	// gpus are GPU names, an architecture, a kind of memory ("gddr") or "*"; arithmetic: a precision, "tensor", "*".
	gpus, arithmetic string
	value            float64
	source           string
}

// Kernels estimates the time of kernels by a table of parameters: the share of the GPU's peak rates that each class of
// kernel reaches, and the time that tiles, layouts and launches add.
type Kernels map[string][]kernelRow

// DefaultKernels returns the parameters that are part of vprof.
var DefaultKernels = sync.OnceValue(func() Kernels {
	k, err := ReadKernels(kernelsCSV)
	if err != nil {
		panic(err) // it is embedded
	}
	return k
})

// ReadKernels reads a table of parameters.
func ReadKernels(text string) (Kernels, error) {
	k := Kernels{}
	for i, line := range strings.Split(strings.TrimSpace(text), "\n")[1:] {
		cells := strings.SplitN(line, ",", 5)
		if len(cells) < 5 {
			return nil, fmt.Errorf("line %d: need five cells, found %d", i+2, len(cells))
		}
		v, err := strconv.ParseFloat(cells[3], 64)
		if err != nil || !(v > 0) {
			return nil, fmt.Errorf("line %d: invalid value %q: need a positive number", i+2, cells[3])
		}
		k[cells[0]] = append(k[cells[0]], kernelRow{cells[1], cells[2], v, cells[4]})
	}
	for _, name := range Parameters {
		if len(k[name]) == 0 {
			return nil, fmt.Errorf("the row of kernel %q is missing", name)
		}
	}
	return k, nil
}

// Parameters are the names in the table. docs/lab/internals.md describes each.
var Parameters = []string{
	"stream", "reduction", "softmax", "index", "row-norm", "row", "channel-norm", "depthwise", "depthwise-rate",
	"depthwise-last", "unaligned", "grouped", "matmul", "convolution", "attention", "feed", "fill", "transposes",
	"link", "collective", "launch", "operator", "module", "spread", "compiled-spread",
}

// parameter returns the value of a parameter from the most specific row for the GPU and the precision.
func (k Kernels) parameter(name string, gpu *device.GPU, p program.Precision) (value float64) {
	best := -1
	for _, r := range k[name] {
		rank := 0
		switch {
		case r.gpus == "*":
		case r.gpus == "gddr" && !hasHBM(gpu):
			rank = 10
		case r.gpus == gpu.Generation:
			rank = 20
		case strings.Contains("|"+r.gpus+"|", "|"+gpu.Name+"|"):
			rank = 30
		default:
			continue
		}
		switch {
		case r.arithmetic == "*":
		case r.arithmetic == "tensor" && p != program.FP32 && p != program.FP64:
			rank++
		case r.arithmetic == p.String():
			rank += 2
		default:
			continue
		}
		if rank > best {
			best, value = rank, r.value
		}
	}
	return value
}

// hasHBM reports whether the memory of a GPU is HBM, by its chip: compute capability 6.0, 7.0, 8.0, 9.0, 10.0 or 10.3.
func hasHBM(gpu *device.GPU) bool {
	return slices.Contains([]device.Capability{60, 70, 80, 90, 100, 103}, gpu.Capability)
}

// kernelLimits are the parameters for one GPU.
type kernelLimits struct {
	gpu   *device.GPU
	class [NumWorks]float64 // share of the memory's bandwidth
	// depthwiseLast is the share of depthwise convolutions with channels last, depthwise and depthwiseRate are the
	// shares of bandwidth and of the FP32 rate of those with channels first.
	// row is the time in which the GPU takes one row of a norm, however short it is.
	channelNorm, row, depthwise, depthwiseRate, depthwiseLast float64
	unaligned, grouped, link, collective, spread              float64
	share                                                     [3][numPrecisions]float64
	feed, fill, transposes                                    [numPrecisions]float64
	products                                                  map[productKey]float64
}

const numPrecisions = int(program.FP64) + 1

type productKey struct {
	number uint32
	work   program.Work
	p      program.Precision
}

func (k Kernels) limitsFor(gpu *device.GPU) *kernelLimits {
	plain := func(name string) float64 { return k.parameter(name, gpu, program.FP32) }
	b := &kernelLimits{gpu: gpu, products: map[productKey]float64{}}
	stream := plain("stream")
	for w := range b.class {
		b.class[w] = stream
	}
	for w, name := range map[program.Work]string{
		program.Reduction: "reduction", program.Softmax: "softmax", program.Index: "index",
		program.Normalization: "row-norm",
	} {
		b.class[w] = stream * plain(name)
	}
	b.channelNorm, b.depthwise = stream*plain("channel-norm"), stream*plain("depthwise")
	b.row = plain("row") / float64(max(1, gpu.SMs))
	b.depthwiseLast, b.depthwiseRate = stream*plain("depthwise-last"), plain("depthwise-rate")*gpu.Peak.FP32
	b.unaligned, b.grouped, b.spread = plain("unaligned"), plain("grouped"), plain("spread")
	b.link, b.collective = plain("link"), plain("collective")
	for p := range numPrecisions {
		q := program.Precision(p)
		for i, name := range [...]string{"matmul", "convolution", "attention"} {
			b.share[i][p] = k.parameter(name, gpu, q)
		}
		b.feed[p], b.fill[p] = k.parameter("feed", gpu, q), k.parameter("fill", gpu, q)
		b.transposes[p] = k.parameter("transposes", gpu, q)
	}
	return b
}

// seconds returns the expected time of an op that moves bytes, excluding its launch.
func (b *kernelLimits) seconds(p *program.Program, op *program.Op, bytes int64) float64 {
	moved := float64(bytes) / b.gpu.Bandwidth
	stream := moved / b.class[op.Work]
	rate := b.gpu.Peak.ForPrecision(op.Precision)
	switch x := p.ProductOf(op); {
	case op.Work == program.Matmul && x.M > 0:
		return max(b.productSeconds(op, x), stream)
	case op.Work == program.Convolution && x.M > 0:
		return b.convolutionSeconds(op, x, moved)
	case op.Work == program.Attention:
		return max(float64(op.FLOPs)/rate/b.share[2][op.Precision], stream)
	case op.Work == program.Normalization && x.Batch > 1:
		return moved / b.channelNorm
	case op.Work == program.Normalization:
		return max(stream, float64(x.M)*b.row)
	}
	return max(stream, float64(op.FLOPs)/rate)
}

// narrowColumns is the largest number of filters of a group whose convolution runs as a depthwise kernel, which does
// not use tiles.
const narrowColumns = 2

// perLoad is the number of channels in the 16 bytes that tensor cores load at once; one without tensor cores.
var perLoad = [numPrecisions]int64{program.FP32: 1, program.TF32: 4, program.FP16: 8, program.BF16: 8, program.FP64: 1}

// convolutionSeconds returns the time of a convolution whose memory traffic takes moved seconds. Channels first takes
// longer: PyTorch's own depthwise kernels compute on CUDA cores, grouped kernels are slower, and tensor-core kernels
// transpose their operands. Channels last takes longer if the channels of a pixel do not fill whole loads.
func (b *kernelLimits) convolutionSeconds(op *program.Op, x program.Product, moved float64) float64 {
	stream := moved / b.class[op.Work]
	t := moved / b.depthwiseLast
	switch depthwise := x.Batch > 1 && min(x.M, x.N, x.K) <= narrowColumns; {
	case depthwise && !op.ChannelsLast:
		return moved/b.depthwise + float64(op.FLOPs)/b.depthwiseRate
	case !depthwise:
		t = max(b.productSeconds(op, x), stream)
	}
	switch {
	case op.ChannelsLast && x.Window.Groups%perLoad[op.Precision] != 0:
		return t / b.unaligned
	case op.ChannelsLast:
		return t
	case x.Batch > 1:
		t /= b.grouped
	}
	if op.Precision != program.FP32 {
		t += b.transposes[op.Precision] * stream
	}
	return t
}

// matmulTiles are the sizes of the output that a thread block of a product computes, as cuBLAS and CUTLASS name them.
var matmulTiles = [...][2]int64{
	{256, 128}, {128, 256}, {128, 128}, {128, 64}, {64, 128}, {64, 64}, {64, 32}, {32, 64}, {32, 32},
}

// productSeconds returns the time of a matrix product with the best tile. A wave of tiles, one for each multiprocessor,
// takes equally long however few tiles it has. A small tile needs more operand bytes per operation (feed), and each
// tile first waits for its operands (fill, in steps of the inner dimension). The inner dimension may be split among
// tiles, whose sums are then added in memory.
func (b *kernelLimits) productSeconds(op *program.Op, x program.Product) float64 {
	key := productKey{op.ProductIndex, op.Work, op.Precision}
	if t, ok := b.products[key]; ok {
		return t
	}
	share := b.share[0][op.Precision]
	if op.Work == program.Convolution {
		share = b.share[1][op.Precision]
	}
	feed, fill, sms := b.feed[op.Precision], b.fill[op.Precision], max(1, b.gpu.SMs)
	rate := b.gpu.Peak.ForPrecision(op.Precision) / float64(sms)
	best := math.Inf(1)
	for _, t := range matmulTiles {
		grid := x.Batch * ceil.Div(x.M, t[0]) * ceil.Div(x.N, t[1])
		pace := 2 * float64(t[0]*t[1]) * (1/share + feed*(1/float64(t[0])+1/float64(t[1]))) / rate
		for split := int64(1); split <= maxSplitK; split *= 2 {
			depth, sums := float64(x.K)/float64(split), 0.0
			if split > 1 {
				if depth < fill {
					break
				}
				sums = 2 * 4 * float64(split*x.Batch*x.M*x.N) / b.gpu.Bandwidth // fp32, written and read
			}
			best = min(best, float64(ceil.Div(grid*split, int64(sms)))*pace*(depth+fill)+sums)
		}
	}
	b.products[key] = best
	return best
}

// maxSplitK is the largest number of parts into which the inner dimension of a product is split.
const maxSplitK = 32

// Seconds returns the expected time of every op of a program on a GPU, excluding its launch.
func (k Kernels) Seconds(p *program.Program, gpu device.GPU) []float64 {
	b := k.limitsFor(&gpu)
	return lists.Make(len(p.Ops), func(i int) float64 { return b.seconds(p, &p.Ops[i], p.MovedBytes(&p.Ops[i])) })
}

// Set replaces the value in the row with a parameter, GPUs and arithmetic, and reports whether there is such a row.
func (k Kernels) Set(parameter, gpus, arithmetic string, value float64) bool {
	for i, r := range k[parameter] {
		if r.gpus == gpus && r.arithmetic == arithmetic {
			k[parameter][i].value = value
			return true
		}
	}
	return false
}
