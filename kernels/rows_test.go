package kernels_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/vprof/vprof/kernels"
)

// drawMatrix draws matrices with rows short enough for a warp and rows too long for one.
func drawMatrix(t *rapid.T) (rows, columns int64) {
	if rapid.Bool().Draw(t, "long rows") {
		return rapid.Int64Range(0, 3).Draw(t, "rows"), rapid.Int64Range(1000, 5000).Draw(t, "columns")
	}
	return rapid.Int64Range(0, 30).Draw(t, "rows"), rapid.Int64Range(1, 300).Draw(t, "columns")
}

// rowsOf calls do with each row of matrices.
func rowsOf(rows, columns int64, do func(row int64, cut func([]float64) []float64)) {
	for r := range rows {
		do(r, func(x []float64) []float64 { return x[r*columns : (r+1)*columns] })
	}
}

func TestSoftmaxAndItsGradient(t *testing.T) {
	forAll(t, func(t *rapid.T, c *cpu) {
		typ := rapid.SampledFrom(types).Draw(t, "type")
		rows, columns := drawMatrix(t)
		x, g := c.tensorOf(typ, rows*columns, 1), c.tensorOf(typ, rows*columns, 2)
		y := c.alloc(rows*columns*typ.Size(), offsets.Draw(t, "offset")&^3) // rows need not begin alike
		c.run(kernels.Softmax{Type: typ, Input: x.addr(), Output: y.addr(), Rows: rows, Columns: columns}.Launch())
		xs, gs, want := x.get(typ), g.get(typ), make([]float64, rows*columns)
		rowsOf(rows, columns, func(_ int64, cut func([]float64) []float64) {
			sum := 0.0
			for _, v := range cut(xs) {
				sum += math.Exp(v)
			}
			for i, v := range cut(xs) {
				cut(want)[i] = round(typ, math.Exp(v)/sum)
			}
		})
		near(t, typ, want, y.get(typ), "softmax")

		ys := y.get(typ)
		rowsOf(rows, columns, func(_ int64, cut func([]float64) []float64) {
			sum := 0.0
			for i, v := range cut(ys) {
				sum += v * cut(gs)[i]
			}
			for i, v := range cut(ys) {
				cut(want)[i] = v * (cut(gs)[i] - sum)
			}
		})
		// In place: the gradient is overwritten.
		c.run(kernels.SoftmaxBackward{
			Type: typ, Output: y.addr(), Gradient: g.addr(), Result: g.addr(), Rows: rows,
			Columns: columns,
		}.Launch())
		near(t, typ, want, g.get(typ), "gradient")
	})
}

func TestNormalizeAndItsGradient(t *testing.T) {
	forAll(t, func(t *rapid.T, c *cpu) {
		typ := rapid.SampledFrom(types).Draw(t, "type")
		rows, columns := drawMatrix(t)
		x, g, y := c.tensorOf(typ, rows*columns, 1), c.tensorOf(typ, rows*columns, 2), c.tensorOf(typ, rows*columns, 3)
		w, b := c.tensorOf(typ, columns, 4), c.tensorOf(typ, columns, 5)
		mean, deviation := c.alloc(4*rows, 0), c.alloc(4*rows, 0)
		k := kernels.Normalize{
			Type: typ, Input: x.addr(), Output: y.addr(), Mean: mean.addr(),
			Deviation: deviation.addr(), Rows: rows, Columns: columns, Epsilon: 0.5,
		}
		ws, bs := make([]float64, columns), make([]float64, columns)
		for i := range ws {
			ws[i] = 1
		}
		if rapid.Bool().Draw(t, "affine") {
			k.Weight, k.Bias = w.addr(), b.addr()
			ws, bs = w.get(typ), b.get(typ)
		}
		c.run(k.Launch())
		xs, gs := x.get(typ), g.get(typ)
		want, gradient := make([]float64, len(xs)), make([]float64, len(xs))
		var means, deviations []float64
		n := float64(columns)
		rowsOf(rows, columns, func(_ int64, cut func([]float64) []float64) {
			m, v, sum, product := 0.0, 0.0, 0.0, 0.0
			for _, x := range cut(xs) {
				m += x / n
			}
			for _, x := range cut(xs) {
				v += (x - m) * (x - m) / n
			}
			d := 1 / math.Sqrt(v+0.5)
			means, deviations = append(means, m), append(deviations, d)
			for i, x := range cut(xs) {
				cut(want)[i] = (x-m)*d*ws[i] + bs[i]
				sum += cut(gs)[i] * ws[i] / n
				product += cut(gs)[i] * ws[i] * (x - m) * d / n
			}
			for i, x := range cut(xs) {
				cut(gradient)[i] = d * (cut(gs)[i]*ws[i] - sum - (x-m)*d*product)
			}
		})
		near(t, typ, want, y.get(typ), "output")
		near(t, kernels.F16, means, mean.get(kernels.F32), "mean")
		near(t, kernels.F16, deviations, deviation.get(kernels.F32), "reciprocal of the deviation")

		c.run(kernels.NormalizeBackward{
			Type: typ, Input: x.addr(), Gradient: g.addr(), Result: y.addr(), Weight: k.Weight,
			Mean: mean.addr(), Deviation: deviation.addr(), Rows: rows, Columns: columns,
		}.Launch())
		near(t, typ, gradient, y.get(typ), "gradient")
	})
}
