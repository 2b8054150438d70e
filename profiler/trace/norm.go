package trace

import "github.com/vprof/vprof/profiler/program"

func (t *Tape) launchNorm(y *Tensor, flops int64, ins ...*Tensor) {
	t.launch(program.Normalization, flops*y.numel, []*Tensor{y}, ins)
}

// keepIf retains x as a result that is wanted.
func keepIf(x *Tensor, wanted bool) *Tensor {
	if !wanted {
		return nil
	}
	return x.retain()
}
