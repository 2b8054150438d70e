package peft

import (
	"fmt"
	"slices"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

// Methods that add several low-rank products to a layer: one for each group of outputs, or a mixture for each token.

// addAdaMSS adds a low-rank product for each group of the layer's outputs. peft finds the groups by clustering the
// weight's values; here all groups have the same size.
func (s *AdaptedLayer) addAdaMSS() error {
	if err := s.requirePositive("r", "num_subspaces", "subspace_rank"); err != nil {
		return err
	}
	in := s.in
	if s.linear().Bias != nil {
		in++ // which stands for a column of ones
	}
	r := min(s.count("r"), s.out, in)
	s.Own.AddBuffer(trace.F32, r, in) // adamss_newB
	for i, size := range s.groupSizes() {
		rank := min(size, s.count("subspace_rank"))
		s.addWeight(fmt.Sprint("adamss_A", i), rank, r)
		s.addWeight(fmt.Sprint("adamss_B", i), size, rank)
	}
	return nil
}

// groupSizes returns the number of outputs in each group.
func (s *AdaptedLayer) groupSizes() []int64 {
	n := min(s.count("num_subspaces"), s.out)
	return lists.Make(n, func(i int64) int64 { return s.out*(i+1)/n - s.out*i/n })
}

func (s *AdaptedLayer) adamss(f *frame, x *tensor) *tensor {
	dtype, lead := s.BaseType(), x.Shape()[:x.NDim()-1]
	f.Set(&x, x.To(dtype))
	input := f.Bind(x)
	if s.linear().Bias != nil {
		ones := f.Bind(f.Tape().Filled("ones", dtype, append(slices.Clone(lead), 1)...))
		f.Set(&input, trace.Cat(-1, x, ones))
	}
	result := f.Bind(f.Call(s.BaseLayer, x))
	low := f.Bind(input.Linear(s.Own.BufferTensor(0).To(dtype), nil))
	var chunks []*tensor
	var a, b, out *tensor
	for i := range s.groupSizes() {
		first, second := s.w(fmt.Sprint("adamss_A", i)), s.w(fmt.Sprint("adamss_B", i))
		if i == 0 {
			a, b = f.Bind(first.To(dtype)), f.Bind(second.To(dtype))
			out = f.Bind(low.Linear(a, nil))
		} else {
			f.Set(&a, first.To(dtype))
			f.Set(&b, second.To(dtype))
			f.Set(&out, low.Linear(a, nil))
		}
		f.Set(&out, out.Linear(b, nil))
		chunks = append(chunks, f.Bind(out))
	}
	delta := f.Bind(trace.Cat(-1, chunks...))
	places := f.Bind(f.Tape().New("to_device", program.Activations, trace.I64, s.out))
	index := f.Bind(places.View(1, 1, s.out).Expand(append(slices.Clone(lead), s.out)...))
	zeros := f.Tape().Zeros(dtype, append(slices.Clone(lead), s.out)...)
	f.Set(&delta, zeros.Scatter(index, delta))
	return f.Set(&result, result.Add(delta))
}
