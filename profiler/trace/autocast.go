package trace

// autocast is the state of torch.autocast in a thread.
type autocast struct {
	autocastState
	depth int
	// cached are the fp32 leaves that require a gradient and have a cached half-precision copy. The copies live until
	// the outermost autocast region ends.
	cached []*Tensor
	// consulted reports whether autocast may affect the step: a tensor was cast, or code read whether autocast is on.
	consulted bool
}

// autocastState holds the settings that an autocast region changes.
type autocastState struct {
	enabled bool
	noCache bool
	dtype   DType
}

// Autocast runs f as under torch.autocast("cuda", dtype).
func (t *Tape) Autocast(d DType, f func()) {
	leave := t.casts.restore(autocastState{enabled: true, dtype: d})
	f()
	leave()
}

// NoAutocast runs f as under torch.autocast("cuda", enabled=False).
func (t *Tape) NoAutocast(f func()) {
	s := t.casts.autocastState
	s.enabled = false
	leave := t.casts.restore(s)
	f()
	leave()
}

// Autocasting returns the precision of autocast, and whether it is on.
func (t *Tape) Autocasting() (DType, bool) {
	t.casts.consulted = t.casts.consulted || t.casts.enabled
	return t.casts.dtype, t.casts.enabled
}

// restore enters a region with the given state and returns a function that leaves it.
func (a *autocast) restore(s autocastState) (leave func()) {
	was := a.autocastState
	a.autocastState = s
	a.depth++
	return func() {
		a.depth--
		a.autocastState = was
		if a.depth > 0 {
			return
		}
		for _, x := range a.cached {
			half := x.half
			x.half = nil
			half.Release()
			x.Release()
		}
		a.cached = a.cached[:0]
	}
}

// CastToLower casts x to the autocast precision for an operator of the lower
// precision list. Copies of leaf parameters are cached.
func (t *Tape) CastToLower(x *Tensor) *Tensor {
	a := &t.casts
	if x == nil || !a.enabled || !x.dtype.IsFloat() || x.dtype == F64 || x.dtype == a.dtype {
		return x
	}
	t.casts.consulted = true
	cacheable := x.dtype == F32 && x.requiresGrad && x.isLeaf() && x.view == nil && !a.noCache
	if !cacheable {
		return x.AsType(a.dtype)
	}
	if x.half == nil {
		// A copy made under no_grad may later be used with autograd, so it is made with autograd.
		t.EnableGrad(func() { x.half = x.AsType(a.dtype).Retain() })
		a.cached = append(a.cached, x.Retain())
	}
	return x.half
}

// CastToLower runs the rest of operator c in autocast's lower precision. It casts the arguments, which may be nil, the
// last one first, and turns autocast off for operators that c calls. The copies live as long as c.
func (c *Call) CastToLower(xs ...**Tensor) {
	if !c.t.casts.enabled {
		return
	}
	for i := len(xs) - 1; i >= 0; i-- {
		if x := c.t.CastToLower(*xs[i]); x != *xs[i] {
			*xs[i] = c.Bind(x)
		}
	}
	c.BelowAutocast()
}

// CastToFP32 runs the rest of operator c in fp32, as autocast does for operators of its fp32 list. It casts
// half-precision arguments, the last one first, and turns autocast off for operators that c calls. The copies live as
// long as c.
func (c *Call) CastToFP32(xs ...**Tensor) { c.castAll(F32, xs) }

// Promote casts the arguments of an operator of autocast's promote list to the widest of their types.
func (c *Call) Promote(xs ...**Tensor) {
	d := c.t.casts.dtype
	for _, x := range xs {
		if *x != nil && (*x).dtype == F32 {
			d = F32
		}
	}
	c.castAll(d, xs)
}

func (c *Call) castAll(d DType, xs []**Tensor) {
	a := &c.t.casts
	if !a.enabled {
		return
	}
	for i := len(xs) - 1; i >= 0; i-- {
		if x := *xs[i]; x != nil && x.dtype.IsFloat() && x.dtype != d && x.dtype != F64 {
			c.t.casts.consulted = true
			*xs[i] = c.Bind(x.AsType(d))
		}
	}
	a.enabled = false
}

// fullResult returns the result type that autocast gives an operator with a dtype argument: fp32 for half-precision
// inputs. It turns autocast off for operators that c calls.
func (c *Call) fullResult(d DType) DType {
	a := &c.t.casts
	if a.enabled && d.IsHalf() {
		c.t.casts.consulted = true
		d = F32
	}
	a.enabled = false
	return d
}
