package trace

// The functions that models call by name. All others are called by [Tensor.Function].

// Exp is torch.exp.
func (x *Tensor) Exp() *Tensor { return x.Function("exp") }

// Log is torch.log.
func (x *Tensor) Log() *Tensor { return x.Function("log") }

// Sqrt is torch.sqrt.
func (x *Tensor) Sqrt() *Tensor { return x.Function("sqrt") }

// Rsqrt is torch.rsqrt.
func (x *Tensor) Rsqrt() *Tensor { return x.Function("rsqrt") }

// Reciprocal is torch.reciprocal.
func (x *Tensor) Reciprocal() *Tensor { return x.Function("reciprocal") }

// Abs is torch.abs; that of a complex tensor is real.
func (x *Tensor) Abs() *Tensor { return x.Function("abs") }

// Sin is torch.sin.
func (x *Tensor) Sin() *Tensor { return x.Function("sin") }

// Cos is torch.cos.
func (x *Tensor) Cos() *Tensor { return x.Function("cos") }

// Sgn is torch.sgn.
func (x *Tensor) Sgn() *Tensor { return x.Function("sgn") }

// Tanh is torch.tanh.
func (x *Tensor) Tanh() *Tensor { return x.Function("tanh") }

// Sigmoid is torch.sigmoid.
func (x *Tensor) Sigmoid() *Tensor { return x.Function("sigmoid") }

// ReLU is torch.relu.
func (x *Tensor) ReLU() *Tensor { return x.Function("relu") }

// GELU is torch.nn.functional.gelu.
func (x *Tensor) GELU() *Tensor { return x.Function("gelu") }

// SiLU is torch.nn.functional.silu.
func (x *Tensor) SiLU() *Tensor { return x.Function("silu") }

// Softplus is torch.nn.functional.softplus.
func (x *Tensor) Softplus() *Tensor { return x.Function("softplus") }

// LogSigmoid is torch.nn.functional.logsigmoid.
func (x *Tensor) LogSigmoid() *Tensor { return x.Function("log_sigmoid") }

// Round is torch.round; floor, ceil, trunc and sign allocate the same.
func (x *Tensor) Round() *Tensor { return x.Function("round") }

// ExpInPlace is x.exp_().
func (x *Tensor) ExpInPlace() *Tensor { return operatorIndex["exp"].CallInPlace(x) }

// ReLUInPlace is x.relu_().
func (x *Tensor) ReLUInPlace() *Tensor { return operatorIndex["relu"].CallInPlace(x) }

// SiLUInPlace is x.silu_().
func (x *Tensor) SiLUInPlace() *Tensor { return operatorIndex["silu"].CallInPlace(x) }

// LeakyReLU is torch.nn.functional.leaky_relu.
func (x *Tensor) LeakyReLU() *Tensor { return x.Function("leaky_relu") }

// LeakyReLUInPlace is x.leaky_relu_().
func (x *Tensor) LeakyReLUInPlace() *Tensor { return operatorIndex["leaky_relu_"].CallInPlace(x) }
