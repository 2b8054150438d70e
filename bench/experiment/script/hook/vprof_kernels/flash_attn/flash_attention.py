"""Module of flash-attention 1, whose class FlashAttention release 2 removed."""

import torch

from . import flash_attn_qkvpacked_func


class FlashAttention(torch.nn.Module):
    """Attention of packed queries, keys and values; padding is not removed."""

    def __init__(self, softmax_scale=None, attention_dropout=0.0, **_):
        super().__init__()
        self.softmax_scale, self.dropout_p = softmax_scale, attention_dropout

    def forward(self, qkv, key_padding_mask=None, causal=False, cu_seqlens=None, max_s=None, need_weights=False):
        dropout = self.dropout_p if self.training else 0.0
        return flash_attn_qkvpacked_func(qkv, dropout, self.softmax_scale, causal), None
