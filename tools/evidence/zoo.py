"""Trains a model of the zoo like the records of bench/reference/data: three steps of AdamW on random data.

    vprof run --gpu rtx-3090 --steps all -- python tools/evidence/zoo.py gpt2 --batch 4 --amp fp16

A step is forward and loss (under autocast, with a gradient scaler for fp16), backward, gradient clipping, the optimizer
step, and zero_grad. The batch is on the device before the first step and stays there.

With --as-recorded, `all()` returns False for every tensor, as on the simulated device of the records, which computed
nothing: so transformers took sequences for packed or padded ones and built masks.
"""

import argparse
import contextlib

import torch
from torch.nn import functional as F

AMP = {"fp16": torch.float16, "bf16": torch.bfloat16}


def transformers_model(kind, config, **settings):
    import transformers

    return getattr(transformers, kind)(getattr(transformers, config)(**settings))


def resnet50():
    import timm

    return timm.create_model("resnet50", pretrained=False)


def whisper():
    return transformers_model(
        "WhisperForConditionalGeneration", "WhisperConfig", vocab_size=51865, d_model=384, encoder_layers=4, decoder_layers=4,
        encoder_attention_heads=6, decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536, use_cache=False,
        mask_time_prob=0.0, mask_feature_prob=0.0,
    )


def llama():
    return transformers_model(
        "LlamaForCausalLM", "LlamaConfig", vocab_size=32000, hidden_size=256, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, intermediate_size=688, max_position_embeddings=512, use_cache=False, tie_word_embeddings=False,
    )


def wav2vec2():
    return transformers_model("Wav2Vec2ForCTC", "Wav2Vec2Config", apply_spec_augment=False, mask_time_prob=0.0, layerdrop=0.0, ctc_zero_infinity=True)


def tokens(vocabulary, length):
    def batch(n, device):
        ids = torch.randint(0, vocabulary, (n, length), device=device)
        return {"input_ids": ids, "labels": ids.clone()}

    return batch


def masked_tokens(n, device):
    ids = torch.randint(0, 30522, (n, 128), device=device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def images(n, device):
    return {"x": torch.randn(n, 3, 224, 224, device=device), "labels": torch.randint(0, 1000, (n,), device=device)}


def sound(n, device):
    return {"input_values": torch.randn(n, 80000, device=device), "labels": torch.randint(1, 32, (n, 50), device=device)}


def spectrograms(n, device):
    return {"input_features": torch.randn(n, 80, 3000, device=device), "labels": torch.randint(0, 51865, (n, 128), device=device)}


def own_loss(model, batch):
    return model(**batch).loss


def classes(model, batch):
    return F.cross_entropy(model(batch["x"]), batch["labels"])


def characters(model, batch):
    """Returns the CTC loss by PyTorch's own kernels. cuDNN's implementation would read the labels back to the host."""
    logits = model(batch["input_values"]).logits
    chances = F.log_softmax(logits, dim=-1, dtype=torch.float32).transpose(0, 1)
    n, length = logits.shape[:2]
    with torch.backends.cudnn.flags(enabled=False):
        return F.ctc_loss(chances, batch["labels"], (length,) * n, (batch["labels"].shape[1],) * n, reduction="sum", zero_infinity=True)


MODELS = {
    "resnet50": (resnet50, images, classes),
    "bert-base": (lambda: transformers_model("BertForMaskedLM", "BertConfig"), masked_tokens, own_loss),
    "gpt2": (lambda: transformers_model("GPT2LMHeadModel", "GPT2Config", use_cache=False), tokens(50257, 1024), own_loss),
    "llama-tiny": (llama, tokens(32000, 512), own_loss),
    "whisper-tiny": (whisper, spectrograms, own_loss),
    "wav2vec2-base": (wav2vec2, sound, characters),
}


def freeze_all_but_head(model):
    """Freezes all parameters except the last linear layer or convolution."""
    layers = [m for m in model.modules() if isinstance(m, (torch.nn.Linear, torch.nn.Conv2d))]
    model.requires_grad_(False)
    layers[-1].requires_grad_(True)


def deny_all():
    """Makes Tensor.all() return False."""
    all_true = torch.Tensor.all
    torch.Tensor.all = lambda *args, **options: all_true(*args, **options).zero_()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--amp", choices=AMP)
    parser.add_argument("--stage", choices=["full", "head"], default="full")
    parser.add_argument("--as-recorded", action="store_true")
    options = parser.parse_args()
    if options.as_recorded:
        deny_all()
    make, data, loss_of = MODELS[options.model]
    model = make().requires_grad_(True)  # also Whisper's positional embeddings, which are frozen by default
    if options.stage == "head":
        freeze_all_but_head(model)
    model.to("cuda").train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.01)
    scaler = torch.amp.GradScaler("cuda", enabled=options.amp == "fp16")
    batch = data(options.batch, "cuda")
    for _ in range(3):
        with torch.autocast("cuda", AMP[options.amp]) if options.amp else contextlib.nullcontext():
            loss = loss_of(model, batch) / 1  # the recorder's loop divides by the number of micro-batches
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        print(loss.item())
        del loss


if __name__ == "__main__":
    main()
