package trace

import "github.com/vprof/vprof/profiler/program"

// libraries is what the CUDA libraries keep for themselves.
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

// useBLAS brings the workspace of this thread's cuBLAS handle to life; the
// first product allocates its result before.
func (t *Tape) useBLAS() {
	t.library.use(t, &t.library.blas, t.rules.Products.BLAS.At(t.board.Capability), "addmm_out_cuda_impl")
}

// useLt is the same for cuBLASLt, which linear layers with bias use: its handle
// is the cuBLAS handle.
func (t *Tape) useLt() {
	t.useBLAS()
	t.library.use(t, &t.library.lt, t.rules.Products.Epilogue, "addmm_out_cuda_impl")
}

func (l *libraries) use(t *Tape, have *[2]bool, bytes int64, native string) {
	if have[t.thread] || t.hooks.muted {
		return
	}
	have[t.thread] = true
	class, was := t.class, t.native
	t.class, t.native = program.Workspace, native
	l.held = append(l.held, t.empty(U8, bytes).retain())
	t.class, t.native = class, was
}
