package peft

// Methods that scale the layer's input or output by a vector.

func (s *Site) addIA3() error {
	if s.feedsForward() {
		s.weight("ia3_l", 1, s.in)
	} else {
		s.weight("ia3_l", s.out, 1)
	}
	return nil
}

func (s *Site) ia3(f *frame, x *tensor) *tensor {
	l := s.w("ia3_l")
	scaling := f.Bind(l.Flatten(0, -1).MulScalar())
	if s.feedsForward() {
		dtype := x.DType()
		f.Set(&x, x.To(l.DType()))
		return f.Bind(f.Call(s.BaseLayer, f.Bind(x.Mul(scaling).To(dtype))))
	}
	result := f.Bind(f.Call(s.BaseLayer, x))
	return f.Set(&result, result.Mul(scaling).To(result.DType()))
}

// scalesInput reports whether (IA)^3 scales the layer's input instead of its output.
func (s *Site) feedsForward() bool { return s.named("feedforward_modules") }
