package trace

// ScatterInPlace is x.scatter_(dim, index, number).
func (x *Tensor) ScatterInPlace(index *Tensor) *Tensor {
	t := x.tape
	c := t.begin("scatter__value", x, index)
	t.launch(indexWork(index.numel), []*Tensor{x}, []*Tensor{index})
	return c.end(x)
}
