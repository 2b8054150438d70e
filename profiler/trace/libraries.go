package trace

import "github.com/vprof/vprof/profiler/program"

// libraries is the state that CUDA libraries keep between calls: handles and their
// workspaces.
type libraries struct {
	blas [2]bool // by thread: the cuBLAS handle has its workspace
	lt   [2]bool
	held []*Tensor
}

func (l *libraries) init(warm bool) {
	if warm {
		l.blas, l.lt = [2]bool{true, true}, [2]bool{true, true}
	}
}

// useBLAS is a product by cuBLAS asking for its workspace, after its result: the
// first of a thread where handles keep it, else each, for as long as it runs.
func (t *Tape) useBLAS() {
	t.library.use(t, &t.library.blas, t.rules.Products.BLAS.On)
}

// useLt is the same for cuBLASLt, which adds the bias of linear layers. Where
// handles keep workspaces, its handle is a cuBLAS handle.
func (t *Tape) useLt() {
	p := &t.rules.Products
	if !p.PerCall {
		t.useBLAS()
	}
	if p.Epilogue > 0 {
		t.library.use(t, &t.library.lt, func(GPU) int64 { return p.Epilogue })
	}
}

func (l *libraries) use(t *Tape, have *[2]bool, bytes func(GPU) int64) {
	on := func(gpu int) int64 { return bytes(t.gpus.all[gpu]) }
	if t.rules.Products.PerCall {
		c := t.begin("addmm_out_cuda_impl")
		t.sizedByGPU(on, func(n int64) *Tensor { return c.let(t.workspace(n)) })
		c.finish()
		return
	}
	if have[t.thread] || t.hooks.muted || t.pipeline.part != OwnStage {
		return
	}
	have[t.thread] = true
	class, was := t.class, t.native
	t.class, t.native = program.Workspace, "addmm_out_cuda_impl"
	t.sizedByGPU(on, func(n int64) *Tensor {
		w := t.empty(U8, n).retain()
		l.held = append(l.held, w)
		return w
	})
	t.class, t.native = class, was
}
