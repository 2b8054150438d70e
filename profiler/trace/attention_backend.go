package trace

// attentionBackend is the kernel family that scaled_dot_product_attention
// runs on.
type attentionBackend int

const (
	mathAttention attentionBackend = iota
	flashAttention
	efficientAttention
	cudnnAttention
)

// attentionBackend is select_sdp_backend of
// ATen/native/transformers/cuda/sdp_utils.cpp with all backends enabled, as
// built into PyTorch 2.11 with CUDA 13 and cuDNN 9.19: cuDNN comes first on
// boards of capability 9 and 10 alone.
func (t *Tape) attentionBackend(q, k, v *Tensor, a AttentionArgs) attentionBackend {
	if len(q.shape) != 4 || len(k.shape) != 4 || len(v.shape) != 4 ||
		q.shape[0] != k.shape[0] || q.shape[0] != v.shape[0] || // no broadcasting
		q.Size(-2) == 0 || k.Size(-2) == 0 ||
		k.shape[1] != v.shape[1] ||
		!rowsDense(q) || !rowsDense(k) || !rowsDense(v) {
		return mathAttention
	}
	heads := q.shape[1] == k.shape[1]
	grouped := heads || (a.EnableGQA && q.shape[1]%k.shape[1] == 0)
	major := t.board.Capability / 10
	switch {
	case (major == 9 || major == 10) && grouped && canUseCuDNN(q, k, v, a):
		return cudnnAttention
	case grouped && t.canUseFlash(q, k, v, a):
		return flashAttention
	case heads && t.canUseEfficient(q, k, v, a):
		return efficientAttention
	}
	return mathAttention
}

// rowsDense is check_last_dim_stride_equals_1.
func rowsDense(x *Tensor) bool { return x.strides[len(x.strides)-1] == 1 || x.Size(-1) == 1 }

func canUseCuDNN(q, k, v *Tensor, a AttentionArgs) bool {
	const maxHeadDim = 128
	d, dv := q.Size(-1), v.Size(-1)
	return q.dtype.IsHalf() &&
		d <= maxHeadDim && dv <= maxHeadDim && d%8 == 0 && dv%8 == 0 &&
		k.Size(-2) != 1 && (a.Dropout == 0 || q.Size(-2) != 1)
}

func (t *Tape) canUseFlash(q, k, v *Tensor, a AttentionArgs) bool {
	d := q.Size(-1)
	if a.Mask != nil || !q.dtype.IsHalf() || t.board.Capability < 80 ||
		d != k.Size(-1) || d != v.Size(-1) || d > 256 {
		return false
	}
	if a.IsCausal && q.Size(-2) != k.Size(-2) {
		return false
	}
	if t.smallSharedMemory() && t.tracked(q, k, v) {
		// Backward of wide heads does not fit.
		return d <= 192 || (a.Dropout == 0 && d > 224)
	}
	return true
}

func (t *Tape) canUseEfficient(q, k, v *Tensor, a AttentionArgs) bool {
	// minimum_gemm_alignment
	alignment := int64(1)
	major := t.board.Capability / 10
	if major >= 8 {
		alignment = 4
	}
	if half := q.dtype.IsHalf(); major >= 8 || (major == 7 && half) {
		alignment = max(alignment, 16/q.dtype.Size())
	}
	d, dv := q.Size(-1), v.Size(-1)
	if d != k.Size(-1) || d%alignment != 0 || dv%alignment != 0 {
		return false
	}
	if a.Mask != nil && a.Mask.strides[len(a.Mask.strides)-1] != 1 {
		return false
	}
	switch q.dtype {
	case F32, F16:
		return true
	case BF16:
		return major >= 8
	}
	return false
}

// smallSharedMemory reports the boards of the newer architectures whose
// blocks get 99 KiB of shared memory only (compute capability 8.6, 8.9 and
// 12.x, against 163 KiB on 8.0 and 227 KiB on 9.0 and 10.x).
func (t *Tape) smallSharedMemory() bool {
	switch c := t.board.Capability; {
	case c == 86, c == 89, c >= 120:
		return true
	}
	return false
}
