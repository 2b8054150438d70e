package calibrate

import (
	"math"
	"slices"

	"github.com/vprof/vprof/internal/lists"
)

// matrix holds the columns of a matrix.
type matrix []vector

type vector []float64

func newMatrix(rows, columns int) matrix {
	a := make(matrix, columns)
	for j := range a {
		a[j] = make(vector, rows)
	}
	return a
}

func (v vector) dot(w vector) (sum float64) {
	for i, x := range v {
		sum += x * w[i]
	}
	return sum
}

// length returns the Euclidean norm of v.
func (v vector) length() float64 { return math.Sqrt(v.dot(v)) }

// normalize scales the columns of a, except zeros, to length 1 and returns the lengths.
func (a matrix) normalize() []float64 {
	lengths := make([]float64, len(a))
	for j, column := range a {
		if lengths[j] = column.length(); lengths[j] > 0 {
			for i := range column {
				column[i] /= lengths[j]
			}
		}
	}
	return lengths
}

func (a matrix) residual(x, b vector) vector {
	r := slices.Clone(b)
	for j, column := range a {
		for i, v := range column {
			r[i] -= v * x[j]
		}
	}
	return r
}

// singularValues is the singular value decomposition of a matrix: its product with the columns of v, which are
// orthogonal and of length 1, is the columns of u, which are orthogonal and as long as the singular values.
type singularValues struct {
	u, v   matrix
	values vector
}

// decompose rotates pairs of columns of a until all are orthogonal (one-sided Jacobi: Hestenes, Inversion of matrices
// by biorthogonalization, 1958).
func (a matrix) decompose() singularValues {
	d := singularValues{u: make(matrix, len(a)), v: newMatrix(len(a), len(a)), values: make(vector, len(a))}
	for j, column := range a {
		d.u[j], d.v[j][j] = slices.Clone(column), 1
	}
	for sweeps, rotated := 0, true; rotated && sweeps < 60; sweeps++ {
		rotated = false
		for q := range a {
			for p := range q {
				rotated = d.rotate(p, q) || rotated
			}
		}
	}
	for j, column := range d.u {
		d.values[j] = column.length()
	}
	return d
}

// rotate makes columns p and q of u orthogonal, and reports whether they were not.
func (d *singularValues) rotate(p, q int) bool {
	x, y := d.u[p], d.u[q]
	xx, yy, xy := x.dot(x), y.dot(y), x.dot(y)
	if math.Abs(xy) <= 0x1p-52*math.Sqrt(xx*yy) {
		return false
	}
	zeta := (yy - xx) / (2 * xy)
	tangent := math.Copysign(1/(math.Abs(zeta)+math.Hypot(1, zeta)), zeta)
	cosine := 1 / math.Hypot(1, tangent)
	for _, m := range []matrix{d.u, d.v} {
		for i, v := range m[p] {
			m[p][i], m[q][i] = cosine*(v-tangent*m[q][i]), cosine*(tangent*v+m[q][i])
		}
	}
	return true
}

// isDetermined reports whether all singular values exceed part times the largest one.
func (d singularValues) isDetermined(part float64) bool {
	return slices.Min(d.values) > part*slices.Max(d.values)
}

// solve returns the x with the smallest |a·x - b|, for a matrix a of independent columns.
func (d singularValues) solve(b vector) vector {
	x := make(vector, len(d.v))
	for k, value := range d.values {
		part := d.u[k].dot(b) / (value * value)
		for i := range x {
			x[i] += part * d.v[k][i]
		}
	}
	return x
}

// condition returns the condition number of a with columns of unit length, infinite where columns depend on others.
func (a matrix) condition() float64 {
	unit := matrix(lists.Map(a, slices.Clone[vector]))
	unit.normalize()
	if d := unit.decompose(); d.isDetermined(1e-12) {
		return slices.Max(d.values) / slices.Min(d.values)
	}
	return math.Inf(1)
}
