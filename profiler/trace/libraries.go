package trace

import (
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace/cudnn"
)

// libraries is the part of a tape with the state of CUDA libraries between calls: workspaces of cuBLAS, and engines and
// workspaces of cuDNN.
type libraries struct {
	// blas and lt report for each thread whether its cuBLAS and cuBLASLt handles have workspaces.
	blas, lt [2]bool
	held     []*Tensor // those workspaces
	// convs caches the sizes of cuDNN's convolution workspaces on each GPU.
	convs map[convCall][][]int64
	// answers returns cuDNN's recorded answers for a GPU; nil if there are none.
	answers func(GPU) cudnn.Answer
	// dropoutState is the random state of cuDNN's recurrent layers; nil before the first layer with dropout.
	dropoutState *Tensor
	// attentionKernels are the kernel families that attention may use; nil for all.
	attentionKernels []string
}

func (l *libraries) init(warm bool) {
	if warm {
		l.blas, l.lt = [2]bool{true, true}, [2]bool{true, true}
	}
}

// UseBLAS allocates cuBLAS's workspace for a product, after the product's result. If handles keep workspaces, only the
// first product of a thread allocates one; otherwise each allocates one while it runs.
func (t *Tape) UseBLAS() {
	t.libraries.use(t, &t.libraries.blas, t.rules.Products.BLAS.ForGPU)
}

// useLt allocates cuBLASLt's workspace, for linear layers with a bias. If handles keep workspaces, it is the workspace
// of a cuBLAS handle.
func (t *Tape) useLt() {
	p := &t.rules.Products
	if !p.PerCall {
		t.UseBLAS()
	}
	if p.Epilogue > 0 {
		t.libraries.use(t, &t.libraries.lt, func(GPU) int64 { return p.Epilogue })
	}
}

// dropoutStateBytes is the state of one resident thread in cuDNN's random number generator
// (cudnnDropoutGetStatesSize; measured on an RTX 3090).
const dropoutStateBytes = 24

// InitDropout allocates the random state of cuDNN's recurrent layers before the first one with dropout. It is kept for
// the others (get_dropout_state).
func (t *Tape) InitDropout() {
	if t.libraries.dropoutState == nil {
		t.libraries.dropoutState = t.AllocWorkspace(GPUProperty(t, func(gpu GPU) int64 {
			return int64(gpu.SMs*gpu.ThreadsPerSM) * dropoutStateBytes
		})).Retain()
	}
}

// use allocates the workspace of a handle that has none yet.
func (l *libraries) use(t *Tape, have *[2]bool, bytes func(GPU) int64) {
	on := func(gpu int) int64 { return bytes(t.gpus.all[gpu]) }
	if t.rules.Products.PerCall {
		c := t.Begin("addmm_out_cuda_impl")
		t.sizedByGPU(on, func(n int64) *Tensor { return c.Bind(t.AllocWorkspace(n)) })
		c.Finish()
		return
	}
	if have[t.autograd.thread] || t.autograd.hooks.unwinding || !t.ranks.isRecordedDevice() {
		return
	}
	have[t.autograd.thread] = true
	t.withOp(t.op, "addmm_out_cuda_impl", program.Workspace, func() {
		t.sizedByGPU(on, func(n int64) *Tensor {
			w := t.Alloc(U8, n).Retain()
			l.held = append(l.held, w)
			return w
		})
	})
}
