package peft

// Methods that scale the layer's input or output by a vector.

func (s *AdaptedLayer) addIA3() error {
	if s.scalesInput() {
		s.addWeight("ia3_l", 1, s.in)
	} else {
		s.addWeight("ia3_l", s.out, 1)
	}
	return nil
}

func (s *AdaptedLayer) ia3(f *frame, x *tensor) *tensor {
	l := s.w("ia3_l")
	scaling := f.Bind(l.Flatten(0, -1).MulScalar())
	if s.scalesInput() {
		dtype := x.DType()
		f.Set(&x, x.To(l.DType()))
		return f.Bind(f.Call(s.BaseLayer, f.Bind(x.Mul(scaling).To(dtype))))
	}
	result := f.Bind(f.Call(s.BaseLayer, x))
	return f.Set(&result, result.Mul(scaling).To(result.DType()))
}

// scalesInput reports whether (IA)^3 scales the layer's input instead of its output.
func (s *AdaptedLayer) scalesInput() bool { return s.isNamedIn("feedforward_modules") }
