"""Placeholders for packages with compiled CUDA kernels, and of MPI, that are not installed. Kernels allocate like the
libraries' sources.

Only a script whose source or command names a package gets its placeholder: other libraries use such a package whenever
it is importable, and must not. Sources: flash_api.cpp and flash_attn_interface.py of flash-attention 2.8,
causal_conv1d.cpp of causal-conv1d 1.5. xformers calls flash-attention's kernels in half precision.
"""

import importlib.machinery
import sys

from . import events, memory, placeholders

PACKAGES = {"flash_attn": ("flash_attn", "flash-attn", "flash_attention_2"), "xformers": ("xformers",), "causal_conv1d": ("causal_conv1d", "causal-conv1d"),
            "mpi4py": ("mpi4py",)}

# Packages with compiled kernels that have no placeholder.
REFUSED = set(
    """mamba_ssm apex transformer_engine natten torch_scatter torch_sparse torch_cluster pytorch3d detectron2 spconv MinkowskiEngine tinycudann
    nvdiffrast flash_attn_interface flash_attn_3 sageattention gsplat diff_gaussian_rasterization mmcv vllm fla deep_ep torchsparse
    selective_scan_cuda dcnv3 dcnv4 pointnet2_ops kaolin cupy bitsandbytes deepspeed warp_rnnt""".split()
)


class Finder:
    """Imports a placeholder if no installed package has the name."""

    def find_spec(self, name, path=None, target=None):
        if path is not None or name not in PACKAGES or not asked(name):
            return None
        folder = events.folder("hook", "vprof_kernels")
        by = "a placeholder that allocates as version %s documents" % VERSIONS[name] if name in VERSIONS else "a placeholder with one rank"
        placeholders.replaced("kernel" if name in VERSIONS else "package", name, by)
        if folder not in sys.path:
            sys.path.append(folder)  # importlib.metadata finds the placeholder's version there
        utils = sys.modules.get("transformers.utils.import_utils")  # it has listed the installed packages at its import
        getattr(utils, "PACKAGE_DISTRIBUTION_MAPPING", {}).setdefault(name, [name.replace("_", "-")])
        return importlib.machinery.PathFinder.find_spec(name, [folder])


VERSIONS = {"flash_attn": "2.8.3", "xformers": "0.0.33", "causal_conv1d": "1.5.3"}


def asked(name):
    """Reports whether the user's source or command mentions a package."""
    from . import data

    frame = placeholders.importer(sys._getframe(1))
    if frame is not None and memory.of_user(frame.f_code.co_filename, memory.LIBRARIES):
        return True
    words = PACKAGES[name]
    return any(word in argument for argument in sys.orig_argv for word in words) or any(word in text for text in map(data.source, data.sources()) for word in words)


def start():
    sys.meta_path.append(Finder())


# flash-attention.


def splits(torch, q, batch, heads, length_q, length_k, head_size):
    """Returns the number of splits along the keys in forward (num_splits_heuristic of flash_api.cpp). It exceeds 1 for
    small batches.
    """
    sms = torch.cuda.get_device_properties(q.device).multi_processor_count * 2
    blocks = -(-length_k // (256 if head_size <= 64 else 128 if head_size <= 128 else 64))
    work = batch * heads * -(-length_q // 64)
    if work >= 0.8 * sms:
        return 1
    most = min(128, sms, blocks)
    eligible = [n for n in range(1, most + 1) if n == 1 or -(-blocks // n) != -(-blocks // (n - 1))]
    efficiency = {n: work * n / sms / -(-work * n // sms) for n in eligible}
    best = max(efficiency.values())
    return next(n for n in eligible if efficiency[n] >= 0.85 * best)


def rounded(head_size):
    """Returns the head size to which the kernels pad."""
    return -(-head_size // 32) * 32 if head_size <= 192 else 256


def make(torch):
    """Returns the autograd functions of flash-attention and causal-conv1d. They are defined at the first call."""

    class Flash(torch.autograd.Function):
        """Backs flash_attn_func, and flash_attn_varlen_func with packed sequences."""

        @staticmethod
        def forward(ctx, q, k, v, dropout, most_q, most_k, batch, deterministic):
            head_size = q.size(-1)
            if head_size % 8:
                q, k, v = (torch.nn.functional.pad(x, [0, 8 - head_size % 8]) for x in (q, k, v))
            q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
            out, heads = torch.empty_like(q), q.size(-2)
            packed = q.dim() == 3
            lse = torch.empty((heads, q.size(0)) if packed else (batch, heads, most_q), dtype=torch.float32, device=q.device)
            parts = 1 if dropout or packed else splits(torch, q, batch, heads, most_q, most_k, q.size(-1))
            scratch = []
            if parts > 1:
                scratch = [torch.empty(parts, batch, heads, most_q, *size, dtype=torch.float32, device=q.device) for size in ((), (rounded(q.size(-1)),))]
            state = torch.empty(2, dtype=torch.int64, device=q.device)
            del scratch
            ctx.save_for_backward(q, k, v, out, lse, state)
            ctx.facts = most_q, batch, deterministic, head_size
            ctx.mark_non_differentiable(lse)
            return out[..., :head_size], lse

        @staticmethod
        def backward(ctx, gradient, *_):
            q, k, v, out, lse, _ = ctx.saved_tensors
            most_q, batch, deterministic, head_size = ctx.facts
            dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
            if head_size % 8:
                gradient = torch.nn.functional.pad(gradient, [0, 8 - head_size % 8])
            gradient = gradient if gradient.stride(-1) == 1 else gradient.contiguous()
            heads, packed = q.size(-2), q.dim() == 3
            length = q.size(0) + 128 * batch if packed else -(-most_q // 128) * 128
            sums = torch.empty((heads, length) if packed else (batch, heads, length), dtype=torch.float32, device=q.device)
            copies = 1
            if deterministic:
                sms = torch.cuda.get_device_properties(q.device).multi_processor_count
                copies = -(-sms // (batch * heads))
            size = (length, heads, rounded(q.size(-1))) if packed else (batch, length, heads, rounded(q.size(-1)))
            accumulated = torch.empty((copies, *size) if deterministic else size, dtype=torch.float32, device=q.device)
            if k.size(-2) != heads:  # grouped-query attention
                expanded = [torch.empty((*x.shape[:-2], heads, x.size(-1)), dtype=x.dtype, device=x.device) for x in (k, v)]
                for to, whole in zip((dk, dv), expanded):
                    torch.sum(whole.view(*to.shape[:-1], heads // k.size(-2), to.size(-1)), -2, out=to)
                del expanded, whole
            del sums, accumulated
            return (*(x[..., :head_size] for x in (dq, dk, dv)), None, None, None, None, None)

    class Convolution(torch.autograd.Function):
        """Backs causal_conv1d_fn."""

        @staticmethod
        def forward(ctx, x, weight, bias, seq_idx, initial, final, activation):
            x = x if x.stride(2) == 1 or x.stride(1) == 1 else x.contiguous()
            out = torch.empty_like(x)
            last = torch.empty(x.size(0), x.size(1), weight.size(1) - 1, dtype=x.dtype, device=x.device) if final else None
            ctx.save_for_backward(x, weight, bias, seq_idx, initial)
            return (out, last) if final else out

        @staticmethod
        def backward(ctx, gradient, *_):
            x, weight, bias, _, initial = ctx.saved_tensors
            gradient = gradient if gradient.stride(2) == 1 or gradient.stride(1) == 1 else gradient.contiguous()
            dx, dw = torch.empty_like(x), torch.zeros_like(weight, dtype=torch.float32)
            db = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
            di = None if initial is None else torch.empty_like(initial)
            return dx, dw.type_as(weight), None if db is None else db.type_as(bias), None, di, None, None

    return Flash, Convolution


classes = []


def functions():
    if not classes:
        classes.extend(make(sys.modules["torch"]))
    return classes


def refuse(what):
    """Returns a function in place of one without a placeholder: its call reports this and raises NotImplementedError.
    """

    def call(*_, **__):
        placeholders.wanted("%s, of which vprof has no placeholder" % what, "install the package")
        raise NotImplementedError("vprof has no placeholder of " + what)

    return call


def attention(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
              deterministic=False, return_attn_probs=False):
    out, lse = functions()[0].apply(q, k, v, dropout_p, q.size(1), k.size(1), q.size(0), deterministic)
    return (out, lse, None) if return_attn_probs else out


def packed_attention(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
                     window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False, block_table=None):
    out, lse = functions()[0].apply(q, k, v, dropout_p, int(max_seqlen_q), int(max_seqlen_k), cu_seqlens_q.numel() - 1, deterministic)
    return (out, lse, None) if return_attn_probs else out


def efficient_attention(query, key, value, attn_bias=None, p=0.0, scale=None, **_):
    """Replaces xformers.ops.memory_efficient_attention."""
    torch = sys.modules["torch"]
    grouped = query.dim() == 5
    q, k, v = (x.flatten(2, 3) if grouped else x.unsqueeze(2) if x.dim() == 3 else x for x in (query, key, value))
    bias = attn_bias if isinstance(attn_bias, torch.Tensor) else None
    if bias is None and q.dtype in (torch.float16, torch.bfloat16) and q.size(-1) <= 256:
        out = attention(q, k, v, p)
    else:
        parts = (x.transpose(1, 2) for x in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(*parts, attn_mask=bias, dropout_p=p, scale=scale).transpose(1, 2)
    return out.reshape(query.shape)


def causal_conv1d_fn(x, weight, bias=None, seq_idx=None, initial_states=None, return_final_states=False, final_states_out=None, activation=None):
    return functions()[1].apply(x, weight, bias, seq_idx, initial_states, return_final_states, activation)


# Functions of flash_attn.bert_padding. The package builds them from PyTorch's operators, too.


def unpad_input(hidden, mask, unused_mask=None):
    torch = sys.modules["torch"]
    lengths = mask.sum(-1, dtype=torch.int32)
    used = lengths if unused_mask is None else (mask + unused_mask).sum(-1, dtype=torch.int32)
    indices = torch.nonzero(mask.flatten(), as_tuple=False).flatten()
    ends = torch.nn.functional.pad(torch.cumsum(used, 0, dtype=torch.int32), (1, 0))
    return index_first_axis(hidden.flatten(0, 1), indices), indices, ends, int(lengths.max().item()), used


def index_first_axis(x, indices):
    return x[indices]


def pad_input(hidden, indices, batch, length):
    torch = sys.modules["torch"]
    out = torch.zeros(batch * length, *hidden.shape[1:], dtype=hidden.dtype, device=hidden.device)
    return out.index_put((indices,), hidden).view(batch, length, *hidden.shape[1:])
