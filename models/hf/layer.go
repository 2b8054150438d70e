package hf

// CallLayer calls a GradientCheckpointingLayer: forward over args, where nil
// stands for an argument that is not given. With checkpointing only the
// arguments are kept, and forward runs again in backward.
func CallLayer(f *frame, m any, checkpointing bool, forward func(f *frame, args []*tensor) *tensor, args ...*tensor) *tensor {
	g := f.CallFrame(args...)
	g.In(m)
	if !checkpointing {
		y := forward(g, args)
		g.End(y)
		return y
	}
	var given []*tensor
	for _, x := range args {
		if x != nil {
			given = append(given, x)
		}
	}
	y := g.Checkpoint(func(h *frame, in []*tensor) *tensor {
		again := make([]*tensor, len(args))
		for i, x := range args {
			if x != nil {
				again[i], in = in[0], in[1:]
			}
		}
		return forward(h, again)
	}, given...)
	g.End(y)
	return y
}
