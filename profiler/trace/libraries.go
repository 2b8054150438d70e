package trace

import "github.com/vprof/vprof/profiler/program"

// Sizes of the workspaces that cuBLAS handles keep, measured with PyTorch
// 2.11.0: one per thread (handle) and stream, for ever.
const (
	cublasWorkspace       = 8_519_680 // 2 x 4 MiB + 8 x 16 KiB
	cublasWorkspaceHopper = 33_554_432
	cublasLtWorkspace     = 1_048_576
)

// libraries is what the CUDA libraries keep for themselves.
type libraries struct {
	workspace int64
	blas      [2]bool // by thread: the cuBLAS handle has its workspace
	lt        [2]bool
	held      []*Tensor
}

func (l *libraries) init(b Board, warm bool) {
	l.workspace = cublasWorkspace
	if b.Capability == 90 {
		l.workspace = cublasWorkspaceHopper
	}
	if warm {
		l.blas, l.lt = [2]bool{true, true}, [2]bool{true, true}
	}
}

// useBLAS brings the workspace of this thread's cuBLAS handle to life; the
// first product allocates its result before.
func (t *Tape) useBLAS() {
	t.library.use(t, &t.library.blas, t.library.workspace, "addmm_out_cuda_impl")
}

// useLt is the same for cuBLASLt, which linear layers with bias use: its handle
// is the cuBLAS handle.
func (t *Tape) useLt() {
	t.useBLAS()
	t.library.use(t, &t.library.lt, cublasLtWorkspace, "addmm_out_cuda_impl")
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
