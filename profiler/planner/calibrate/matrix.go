package calibrate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
)

// Matrix is a matrix as a list of its columns.
type Matrix [][]float64

func newMatrix(rows, columns int) Matrix {
	a := make(Matrix, columns)
	for j := range a {
		a[j] = make([]float64, rows)
	}
	return a
}

// residual returns b - a·x.
func (a Matrix) residual(x, b []float64) []float64 {
	r := slices.Clone(b)
	for j, column := range a {
		floats.AddScaled(r, -x[j], column)
	}
	return r
}

// unit scales all columns to unit length, except columns of zeros, and returns their lengths.
func (a Matrix) unit() []float64 {
	lengths := make([]float64, len(a))
	for j, column := range a {
		if lengths[j] = floats.Norm(column, 2); lengths[j] > 0 {
			floats.Scale(1/lengths[j], column)
		}
	}
	return lengths
}

// condition returns the condition number of a with columns of unit length; infinite for dependent columns.
func (a Matrix) condition() float64 {
	scaled := slices.Clone(a)
	for j, column := range a {
		scaled[j] = slices.Clone(column)
	}
	scaled.unit()
	return decompose(scaled).condition()
}

// sweeps is a limit that the rotations of [decompose] stay far below where columns are independent.
const sweeps = 40

// svd is the singular value decomposition of a matrix: its columns rotated by v until they are orthogonal. Their lengths
// are the singular values.
type svd struct {
	rotated, v Matrix
	values     []float64
}

// decompose returns the decomposition by one-sided Jacobi rotations (Golub and Van Loan, Matrix Computations, 2013,
// section 8.6.3), which suit few columns.
func decompose(a Matrix) svd {
	d := svd{rotated: make(Matrix, len(a)), v: newMatrix(len(a), len(a))}
	for j, column := range a {
		d.rotated[j], d.v[j][j] = slices.Clone(column), 1
	}
	for turned, n := true, 0; turned && n < sweeps; n++ {
		turned = false
		for p, x := range d.rotated {
			for q, y := range d.rotated[:p] {
				xx, yy, xy := floats.Dot(x, x), floats.Dot(y, y), floats.Dot(x, y)
				if math.Abs(xy) <= 0x1p-52*math.Sqrt(xx*yy) {
					continue
				}
				turned = true
				zeta := (yy - xx) / (2 * xy)
				t := math.Copysign(1/(math.Abs(zeta)+math.Hypot(1, zeta)), zeta)
				rotate(x, y, t)
				rotate(d.v[p], d.v[q], t)
			}
		}
	}
	for _, column := range d.rotated {
		d.values = append(d.values, floats.Norm(column, 2))
	}
	return d
}

// rotate rotates two columns by the angle with this tangent.
func rotate(x, y []float64, tangent float64) {
	c := 1 / math.Hypot(1, tangent)
	s := c * tangent
	for i := range x {
		x[i], y[i] = c*x[i]-s*y[i], s*x[i]+c*y[i]
	}
}

// condition returns the condition number; infinite for dependent columns.
func (d svd) condition() float64 {
	last, first := slices.Min(d.values), slices.Max(d.values)
	if last <= 1e-13*first {
		return math.Inf(1)
	}
	return first / last
}

// solve returns the x for which |a·x - b| is smallest.
func (d svd) solve(b []float64) []float64 {
	x := make([]float64, len(d.v))
	for k, s := range d.values {
		floats.AddScaled(x, floats.Dot(d.rotated[k], b)/(s*s), d.v[k])
	}
	return x
}

// inverse returns (aᵀa)⁻¹.
func (d svd) inverse() Matrix {
	m := newMatrix(len(d.v), len(d.v))
	for k, s := range d.values {
		for j := range m {
			floats.AddScaled(m[j], d.v[k][j]/(s*s), d.v[k])
		}
	}
	return m
}
