package cudnn

import (
	"github.com/vprof/vprof/internal/ceil"
	"github.com/vprof/vprof/profiler/trace/cudnn/forest"
)

// numFeatures is the number of lines in features.txt.
const numFeatures = forest.Features

// features are the quantities that decision trees compare, in the order of features.txt: sizes of the implicit matrix
// product, its tiles, alignments, and proportions of the shape. They describe any shape, including unseen ones.
type features [numFeatures]float32

// features computes the values of all features of a problem.
func (p *problem) features() (f features) {
	h, w := p.Dim-2, p.Dim-1
	kh, sh, ph, xh, yh := p.K[h], p.Stride[h], p.Pad[h], p.In[h], p.Out[h]
	xd, kd := int64(1), int64(1)
	if p.Dim == 3 {
		xd, kd = p.In[0], p.K[0]
	}
	rows, columns, reduction := p.product()
	t64 := p.tiles(rows, columns, 64, 64)
	t128 := p.tiles(rows, columns, 128, 128)
	t256 := p.tiles(rows, columns, 256, 128)
	xb, yb := float32(p.N*p.c*p.xs*p.es), float32(p.N*p.k*p.ys*p.es)
	wb := float32(p.c * p.kg * p.taps * p.es)
	return features{
		float32(p.Layout), boolFeature(p.DType == BF16),
		float32(p.Dim), boolFeature(p.Groups > 1 && p.cg == 1),
		float32(p.Groups), float32(p.N), float32(p.cg), float32(p.kg),
		alignment(p.cg), alignment(p.kg), float32(min(p.cg, p.kg)), float32(max(p.cg, p.kg)),
		float32(p.kg) / float32(p.cg), float32(p.taps), float32(kh), float32(p.K[w]),
		float32(sh), float32(p.Stride[w]),
		float32(max(p.Stride[0], p.Stride[1], p.Stride[2])),
		float32(max(p.Dilation[0], p.Dilation[1], p.Dilation[2])),
		float32(ph), float32(p.Pad[w]), boolFeature(p.xs == p.ys),
		float32(p.xs), float32(p.ys), float32(xh), float32(p.In[w]), float32(yh), float32(p.Out[w]),
		float32(rows), float32(columns), float32(reduction),
		t64, t128, t256, float32(reduction) / t128,
		float32(rows) * float32(columns) * float32(reduction) * float32(p.Groups),
		xb, yb, wb, float32(rows) * float32(columns) * float32(p.Groups),
		(xb + yb) / wb, boolFeature(p.hasUnitSteps()), p.winogradSide(),
		float32(p.c), float32(p.k), float32(xd), float32(kd),
		float32(p.N * p.xs), float32(p.N * p.ys), float32(p.cg * p.taps), float32(p.kg * p.taps),
		float32(rows) / float32(columns), float32(reduction) / (float32(rows) * float32(columns)),
		alignment(rows), alignment(reduction),
		float32(rows % 64), float32(rows % 128),
		float32(columns % 32), float32(columns % 64), float32(columns % 128),
		float32(reduction % 32), float32(reduction % 64),
		float32(rows+columns) * float32(reduction), (xb + yb + wb) / float32(p.es),
	}
}

// product returns the implicit matrix product of one group: rows x columns, with sums over reduction elements.
func (p *problem) product() (rows, columns, reduction int64) {
	switch p.kind {
	case dgrad:
		return p.N * p.xs, p.cg, p.kg * p.taps
	case wgrad:
		return p.kg, p.cg * p.taps, p.N * p.ys
	}
	return p.N * p.ys, p.kg, p.cg * p.taps
}

func (p *problem) tiles(rows, columns, m, n int64) float32 {
	return float32(ceil.Div(rows, m) * ceil.Div(columns, n) * p.Groups)
}

// alignment returns the largest power of two up to 64 that divides n.
func alignment(n int64) float32 { return float32(min(n&-n, 64)) }

func boolFeature(b bool) float32 {
	if b {
		return 1
	}
	return 0
}

// generation returns the compute capability whose rules apply to a GPU of a compute capability. B200 (100, 103) uses
// Hopper's rules, assuming that it resembles Hopper more than 120.
func generation(capability int) int {
	switch {
	case capability < 80:
		return 75
	case capability < 86:
		return 80
	case capability < 89:
		return 86
	case capability < 90:
		return 89
	case capability < 120:
		return 90
	}
	return 120
}

// winogradSide returns the side of the kernel if Winograd engines support it; else 0.
func (p *problem) winogradSide() float32 {
	if p.supportsEngine(Winograd4) || p.supportsEngine(Winograd9) {
		return float32(p.K[0])
	}
	return 0
}
