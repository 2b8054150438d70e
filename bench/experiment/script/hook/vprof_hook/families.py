"""Configurations of pretrained encoders that training scripts load beside the model they train, derived from the sizes
in the repository names.

The sizes are from the config.json files on the hub. All other settings are the defaults of transformers' configuration
classes.
"""

import re

T5 = {  # d_model, d_ff, layers, heads
    "t5": {"small": (512, 2048, 6, 8), "base": (768, 3072, 12, 12), "large": (1024, 4096, 24, 16), "3b": (1024, 16384, 24, 32), "11b": (1024, 65536, 24, 128)},
    "gated": {"small": (512, 1024, 8, 6), "base": (768, 2048, 12, 12), "large": (1024, 2816, 24, 16), "xl": (2048, 5120, 24, 32), "xxl": (4096, 10240, 24, 64)},
}
ENCODERS = {  # hidden, intermediate, layers, heads
    "xsmall": (384, 1536, 12, 6), "small": (384, 1536, 12, 6), "base": (768, 3072, 12, 12), "large": (1024, 4096, 24, 16), "huge": (1280, 5120, 32, 16),
    "giant": (1536, 6144, 40, 24), "so400m": (1152, 4304, 27, 16), "bigg": (1664, 8192, 48, 16),
}
MIT = {"b0": (32, 2, 2, 2, 2), "b1": (64, 2, 2, 2, 2), "b2": (64, 3, 4, 6, 3), "b3": (64, 3, 4, 18, 3), "b4": (64, 3, 8, 27, 3), "b5": (64, 3, 6, 40, 3)}
ALBERT = {"base": (768, 3072, 12, 12), "large": (1024, 4096, 24, 16), "xlarge": (2048, 8192, 24, 16), "xxlarge": (4096, 16384, 12, 64)}


def transformer(size, of=ENCODERS, **others):
    hidden, intermediate, layers, heads = of[size]
    return {"hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers, "num_attention_heads": heads, **others}


def t5(kind, size):
    """Returns the configuration of a T5 variant: kind is "t5", "gated" (T5 1.1 and FLAN), "mt5" or "umt5"."""
    width, inner, layers, heads = T5["t5" if kind == "t5" else "gated"][size]
    config = {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": width, "d_ff": inner, "num_layers": layers, "num_decoder_layers": layers, "num_heads": heads,
        "d_kv": 128 if kind == "t5" and size in ("3b", "11b") else 64, "vocab_size": 32128, "decoder_start_token_id": 0,
    }
    if kind != "t5":
        config.update(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    if kind in ("mt5", "umt5"):
        config.update(model_type=kind, architectures=[kind.upper().replace("T5", "T5ForConditionalGeneration")], vocab_size={"mt5": 250112, "umt5": 256384}[kind])
    return config


def clip(size, patch, image):
    text = {"base": (512, 2048, 12, 8), "large": (768, 3072, 12, 12), "huge": (1024, 4096, 24, 16), "bigg": (1280, 5120, 32, 20)}[size]
    activation = {} if size in ("base", "large") else {"hidden_act": "gelu"}
    return {
        "model_type": "clip", "architectures": ["CLIPModel"], "projection_dim": text[0],
        "text_config": transformer(size, {size: text}, projection_dim=text[0], vocab_size=49408, max_position_embeddings=77, **activation),
        "vision_config": transformer(size, projection_dim=text[0], patch_size=int(patch), image_size=int(image or 224), **activation),
    }


def siglip(release, size, patch, image):
    text = transformer(size, vocab_size=256000 if release else 32000, projection_size=ENCODERS[size][0])
    return {"model_type": "siglip", "architectures": ["SiglipModel"], "text_config": text, "vision_config": transformer(size, patch_size=int(patch), image_size=int(image or 224))}


def dinov2(size):
    gated = {"use_swiglu_ffn": True} if size == "giant" else {}
    config = transformer(size, image_size=518, patch_size=14, **gated)
    return {"model_type": "dinov2", "architectures": ["Dinov2Model"], **{k: v for k, v in config.items() if k != "intermediate_size"}}


def deberta(size):
    sizes = {**ENCODERS, "small": (768, 3072, 6, 12)}
    return transformer(
        size, sizes, model_type="deberta-v2", architectures=["DebertaV2ForMaskedLM"], vocab_size=128100, relative_attention=True, position_buckets=256, norm_rel_ebd="layer_norm",
        share_att_key=True, pos_att_type=["p2c", "c2p"], max_relative_positions=-1, position_biased_input=False, type_vocab_size=0,
    )


def electra(size, part):
    hidden = {"small": (256, 1024, 12, 4)}.get(size, ENCODERS[size])
    kind = "ElectraForMaskedLM" if part == "generator" else "ElectraForPreTraining"
    return transformer(size, {size: hidden}, model_type="electra", architectures=[kind], embedding_size=128 if size == "small" else hidden[0])


def speech(kind, size):
    """Returns the configuration of a WavLM or HuBERT model."""
    whole = {"base": {}, "large": {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": kind == "hubert"}}[size]
    return transformer(size, model_type=kind, architectures=[{"wavlm": "WavLMModel", "hubert": "HubertModel"}[kind]], **whole)


def segformer(size):
    first, *depths = MIT[size]
    widths = [32, 64, 160, 256] if first == 32 else [64, 128, 320, 512]
    return {
        "model_type": "segformer", "architectures": ["SegformerForImageClassification"], "hidden_sizes": widths, "depths": depths,
        "decoder_hidden_size": 256 if size in ("b0", "b1") else 768,
    }


# Patterns of repository names without the owner. Each function takes the pattern's groups and returns a configuration.
NAMES = {
    r"t5-(small|base|large|3b|11b)": lambda size: t5("t5", size), r"(?:flan-t5|t5-v1_1)-(small|base|large|xl|xxl)": lambda size: t5("gated", size),
    r"(u?mt5)-(small|base|large|xl|xxl)": t5, r"clip-vit-(base|large)-patch(14|16|32)(?:-(336))?": clip,
    r"clip-vit-h-14-.*": lambda: clip("huge", 14, 224), r"clip-vit-bigg-14-.*": lambda: clip("bigg", 14, 224),
    r"siglip(2?)-(base|large|so400m)-patch(14|16)-(\d+)": siglip, r"dinov2-(small|base|large|giant)": dinov2, r"deberta-v3-(xsmall|small|base|large)": deberta,
    r"electra-(small|base|large)-(discriminator|generator)": electra, r"(wavlm|hubert)-(base|large)(?:-.*)?": speech, r"mit-(b[0-5])": segformer,
    r"albert-(base|large|xlarge|xxlarge)-v[12]": lambda size: transformer(size, ALBERT, model_type="albert", architectures=["AlbertForMaskedLM"], vocab_size=30000, embedding_size=128),
    r"bart-base": lambda: {
        "model_type": "bart", "architectures": ["BartForConditionalGeneration"], "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
        "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
    },
}


def config(name):
    """Returns the configuration of a hub repository; None if no pattern matches its name."""
    for pattern, make in NAMES.items():
        found = re.fullmatch(pattern, name.rsplit("/", 1)[-1].lower())
        if found:
            return make(*found.groups())
    return None
