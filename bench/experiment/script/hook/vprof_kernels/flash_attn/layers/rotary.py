"""Rotary embeddings of flash-attention 2.8 (layers/rotary.py): a kernel writes to one output, or in place."""

import torch


class Rotated(torch.autograd.Function):
    """Saves the cosines and sines; allocates the output and its gradient unless it works in place."""

    @staticmethod
    def forward(ctx, x, cos, sin, inplace):
        ctx.save_for_backward(cos, sin)
        ctx.inplace = inplace
        return x if inplace else torch.empty_like(x)

    @staticmethod
    def backward(ctx, grad):
        return grad if ctx.inplace else torch.empty_like(grad), None, None, None


def apply_rotary_emb(x, cos, sin, interleaved=False, inplace=False, seqlen_offsets=0, cu_seqlens=None, max_seqlen=None):
    return Rotated.apply(x, cos, sin, inplace)


apply_rotary_emb_func = apply_rotary_emb


def apply_rotary_emb_qkv_(qkv, cos, sin, *_, **__):
    return Rotated.apply(qkv, cos, sin, True)


def apply_rotary_emb_kv_(kv, cos, sin, *_, **__):
    return Rotated.apply(kv, cos, sin, True)


class RotaryEmbedding(torch.nn.Module):
    """Rotates queries and keys in place with tables of cosines and sines, which grow with the longest sequence."""

    def __init__(self, dim, base=10000.0, interleaved=False, scale_base=None, pos_idx_in_fp32=True, device=None):
        super().__init__()
        self.register_buffer("inv_freq", torch.empty(dim // 2, device=device, dtype=torch.float32), persistent=False)
        self._seq_len_cached, self._cos_cached, self._sin_cached = 0, None, None

    def _update_cos_sin_cache(self, seqlen, device=None, dtype=None):
        if seqlen > self._seq_len_cached or self._cos_cached.dtype != dtype:
            self._seq_len_cached = seqlen
            angles = torch.outer(torch.arange(seqlen, device=device, dtype=torch.float32), self.inv_freq.to(device))
            self._cos_cached, self._sin_cached = torch.cos(angles).to(dtype), torch.sin(angles).to(dtype)

    def forward(self, qkv, kv=None, seqlen_offset=0, max_seqlen=None, **_):
        offset = seqlen_offset if isinstance(seqlen_offset, int) else 0
        self._update_cos_sin_cache(max_seqlen or qkv.shape[1] + offset, device=qkv.device, dtype=qkv.dtype)
        rotated = apply_rotary_emb_qkv_(qkv, self._cos_cached, self._sin_cached)
        return rotated if kv is None else (rotated, apply_rotary_emb_kv_(kv, self._cos_cached, self._sin_cached))
