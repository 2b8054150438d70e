"""A placeholder for flash-attention: see vprof_hook/kernels.py."""

from vprof_hook.kernels import attention as flash_attn_func  # noqa: F401
from vprof_hook.kernels import packed_attention as flash_attn_varlen_func  # noqa: F401
from vprof_hook.kernels import refuse

__version__ = "2.8.3"
flash_attn_with_kvcache = refuse("flash_attn_with_kvcache")


def flash_attn_qkvpacked_func(qkv, *args, **kwargs):
    return flash_attn_func(*qkv.unbind(2), *args, **kwargs)


def flash_attn_kvpacked_func(q, kv, *args, **kwargs):
    return flash_attn_func(q, *kv.unbind(2), *args, **kwargs)


def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, *args, **kwargs):
    return flash_attn_varlen_func(*qkv.unbind(1), cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *args, **kwargs)


def flash_attn_varlen_kvpacked_func(q, kv, *args, **kwargs):
    return flash_attn_varlen_func(q, *kv.unbind(1), *args, **kwargs)


from . import flash_attn_interface  # noqa: E402, F401
