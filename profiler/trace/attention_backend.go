package trace

import (
	"fmt"
	"slices"
	"strings"
)

// attentionBackend is a family of kernels for scaled_dot_product_attention.
type attentionBackend int

const (
	mathAttention attentionBackend = iota
	flashAttention
	efficientAttention
	cudnnAttention
)

// attentionNames are the names of the kernel families in PyTorch's documentation.
var attentionNames = [...]string{
	mathAttention: "math", flashAttention: "flash", efficientAttention: "memory-efficient",
	cudnnAttention: "cuDNN",
}

// AttentionKernels runs f with attention restricted to kernels of the given names: "flash", "memory-efficient", "cuDNN"
// and "math" (torch.nn.attention.sdpa_kernel). If none of them supports an input, the recording ends with an error.
func (t *Tape) AttentionKernels(allowed []string, f func()) {
	withValue(&t.libraries.attentionKernels, allowed, f)
}

// allows reports whether attention may use a kernel family.
func (t *Tape) allows(b attentionBackend) bool {
	return t.libraries.attentionKernels == nil || slices.Contains(t.libraries.attentionKernels, attentionNames[b])
}

// attentionBackend returns the backend that PyTorch chooses among the allowed ones.
func (t *Tape) attentionBackend(q, k, v *Tensor, a AttentionArgs) (chosen attentionBackend, why string) {
	chosen, why = t.selectAttention(q, k, v, a)
	if !t.allows(chosen) {
		t.Raise(fmt.Errorf("PyTorch refuses the attention: none of the kernels that sdpa_kernel allows (%s) supports "+
			"these tensors: %s; allow others", strings.Join(t.libraries.attentionKernels, ", "), why))
	}
	return chosen, why
}

// selectAttention implements select_sdp_backend of ATen/native/transformers/cuda/sdp_utils.cpp.
//
// why is the reason that excludes faster kernels; empty for the fastest.
func (t *Tape) selectAttention(q, k, v *Tensor, a AttentionArgs) (chosen attentionBackend, why string) {
	if len(q.shape) != 4 || len(k.shape) != 4 || len(v.shape) != 4 ||
		q.shape[0] != k.shape[0] || q.shape[0] != v.shape[0] || // no broadcasting
		q.Size(-2) == 0 || k.Size(-2) == 0 ||
		k.shape[1] != v.shape[1] ||
		!rowsDense(q) || !rowsDense(k) || !rowsDense(v) {
		return mathAttention, "shapes or strides that only math takes"
	}
	heads := q.shape[1] == k.shape[1]
	grouped := heads || a.EnableGQA && q.shape[1]%k.shape[1] == 0 || t.rules.Attention.OneHead && k.shape[1] == 1
	if t.allows(cudnnAttention) && grouped && canUseCuDNN(q, k, v, a) && GPUProperty(t, func(gpu GPU) bool {
		return slices.Contains(t.rules.Attention.CuDNNFirst, gpu.Capability/10)
	}) {
		return cudnnAttention, ""
	}
	if !grouped {
		return mathAttention, "a number of query heads that the number of key heads does not divide"
	}
	noFlash := t.refusesFlash(q, k, v, a)
	if noFlash == "" {
		return flashAttention, ""
	}
	if !heads && !t.rules.Attention.EfficientGrouped {
		return mathAttention, "the memory-efficient kernels take no shared heads; " + noFlash
	}
	noEfficient := t.refusesEfficient(q, k, v, a)
	if noEfficient == "" {
		return efficientAttention, noFlash
	}
	return mathAttention, noEfficient + "; " + noFlash
}

// rowsDense implements check_last_dim_stride_equals_1.
func rowsDense(x *Tensor) bool { return x.strides[len(x.strides)-1] == 1 || x.Size(-1) == 1 }

func canUseCuDNN(q, k, v *Tensor, a AttentionArgs) bool {
	const maxHeadDim = 128
	d, dv := q.Size(-1), v.Size(-1)
	return q.dtype.IsHalf() && d <= maxHeadDim && dv <= maxHeadDim && d%8 == 0 && dv%8 == 0 &&
		k.Size(-2) != 1 && (a.Dropout == 0 || q.Size(-2) != 1)
}

// refusesFlash returns the reason why flash kernels cannot be used; empty if they can.
func (t *Tape) refusesFlash(q, k, v *Tensor, a AttentionArgs) string {
	d := q.Size(-1)
	switch {
	case !t.allows(flashAttention):
		return "flash is turned off"
	case a.Mask != nil:
		return "flash takes no mask"
	case !q.dtype.IsHalf():
		return "flash takes half precision alone"
	case !t.atLeast(80):
		return "flash needs compute capability 8.0"
	case d != k.Size(-1) || d != v.Size(-1) || d > 256:
		return "flash takes heads of one width up to 256"
	case a.IsCausal && q.Size(-2) != k.Size(-2):
		return "flash takes no causal mask that is not square"
	case d > 192 && (a.Dropout != 0 || d <= 224) && t.RequiresGrad(q, k, v) && GPUProperty(t, GPU.smallSharedMemory):
		return "flash's backward of such wide heads needs more shared memory"
	}
	return ""
}

// refusesEfficient returns the reason why memory-efficient kernels cannot be used; empty if they can.
func (t *Tape) refusesEfficient(q, k, v *Tensor, a AttentionArgs) string {
	// This is minimum_gemm_alignment.
	alignment := GPUProperty(t, func(gpu GPU) int64 {
		switch {
		case gpu.Capability >= 80:
			return max(4, 16/q.dtype.Size())
		case gpu.Capability >= 70 && q.dtype.IsHalf():
			return 16 / q.dtype.Size()
		}
		return 1
	})
	d, dv := q.Size(-1), v.Size(-1)
	switch {
	case !t.allows(efficientAttention):
		return "the memory-efficient kernels are turned off"
	case d != k.Size(-1) || d%alignment != 0 || dv%alignment != 0:
		return fmt.Sprintf("head width %d is no multiple of the %d that the memory-efficient kernels need", d,
			alignment)
	case a.Mask != nil && a.Mask.strides[len(a.Mask.strides)-1] != 1:
		return "the memory-efficient kernels take no mask with such strides"
	case q.dtype == BF16 && !t.atLeast(80):
		return "the memory-efficient kernels take bf16 from compute capability 8.0 on"
	case q.dtype != F32 && q.dtype != F16 && q.dtype != BF16:
		return "the memory-efficient kernels take no " + q.dtype.String()
	}
	return ""
}

// smallSharedMemory reports whether the GPU is a newer one whose blocks have only 99 KiB of shared memory (compute
// capability 8.6, 8.9 and 12.x; 8.0 has 163 KiB, 9.0 and 10.x have 227 KiB).
func (gpu GPU) smallSharedMemory() bool {
	c := gpu.Capability
	return c == 86 || c == 89 || c >= 120
}
