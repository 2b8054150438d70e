package trace

// AddScalar is x + number (also x - number) where the number does not lift the type of x.
func (x *Tensor) AddScalar() *Tensor { return opAddNumber.Call(x) }

// MulScalar is x * number.
func (x *Tensor) MulScalar() *Tensor { return opMulNumber.Call(x) }

// DivScalar is x / number.
func (x *Tensor) DivScalar() *Tensor { return opDivNumber.Call(x) }

// RSubScalar is number - x.
func (x *Tensor) RSubScalar() *Tensor { return opSubtractFrom.Call(x) }

// RDivScalar is number / x: Tensor.__rdiv__ multiplies the reciprocal.
func (x *Tensor) RDivScalar() *Tensor {
	f := x.tape.funcFrame(x)
	y := x.Reciprocal().MulScalar()
	f.End(y)
	return y
}

// AddScalarInPlace is x += number (also x -= number).
func (x *Tensor) AddScalarInPlace() *Tensor { return opAddNumber.CallInPlace(x) }

// MulScalarInPlace is x *= number.
func (x *Tensor) MulScalarInPlace() *Tensor { return opMulNumber.CallInPlace(x) }

// DivScalarInPlace is x /= number.
func (x *Tensor) DivScalarInPlace() *Tensor { return opDivNumber.CallInPlace(x) }

// scalarTensor is at::scalar_tensor: a number on the device.
func (t *Tape) scalarTensor(d DType) *Tensor {
	c := t.begin("scalar_tensor")
	s := t.empty(d)
	t.launchFill(s)
	return c.end(s)
}
