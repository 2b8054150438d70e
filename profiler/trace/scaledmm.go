package trace

// ScaledMM is torch._scaled_mm of matrices in 8-bit floats, [m, k] by rows and [k, n] by
// columns, each with one scale: a result of type d, by cuBLASLt. Autograd does not look.
func ScaledMM(a, b *Tensor, d DType) *Tensor {
	c := a.tape.begin("_scaled_mm", a, b)
	m, k, n := a.shape[0], a.shape[1], b.shape[1]
	y := c.t.empty(d, m, n)
	c.t.useLt()
	c.t.launchGEMM(y, 1, m, n, k, a, b)
	return c.end(y)
}
