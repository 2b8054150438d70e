"""Configurations of diffusers pipelines that training scripts start from, as in their repositories on the hub.

A part that is missing here uses the defaults of its class, or is downloaded with --fetch.
"""

import re

KL = {
    "_class_name": "AutoencoderKL", "block_out_channels": [128, 256, 512, 512], "down_block_types": ["DownEncoderBlock2D"] * 4,
    "up_block_types": ["UpDecoderBlock2D"] * 4, "layers_per_block": 2, "latent_channels": 4, "norm_num_groups": 32, "sample_size": 512,
    "scaling_factor": 0.18215,
}
KL_XL = {**KL, "sample_size": 1024, "scaling_factor": 0.13025, "force_upcast": True}
KL_16 = {**KL, "sample_size": 1024, "latent_channels": 16, "use_quant_conv": False, "use_post_quant_conv": False}

CLIP_L = {
    "architectures": ["CLIPTextModel"], "model_type": "clip_text_model", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 12, "projection_dim": 768, "vocab_size": 49408, "max_position_embeddings": 77, "hidden_act": "quick_gelu",
}
CLIP_H = {**CLIP_L, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 23, "num_attention_heads": 16, "projection_dim": 512, "hidden_act": "gelu"}
CLIP_G = {
    **CLIP_L, "architectures": ["CLIPTextModelWithProjection"], "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32,
    "num_attention_heads": 20, "projection_dim": 1280, "hidden_act": "gelu",
}
T5_XXL = {
    "architectures": ["T5EncoderModel"], "model_type": "t5", "d_model": 4096, "d_ff": 10240, "d_kv": 64, "num_heads": 64, "num_layers": 24,
    "vocab_size": 32128, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
}

# Values that UNET and FLUX lack are the defaults of the class.
UNET = {"_class_name": "UNet2DConditionModel", "sample_size": 64, "cross_attention_dim": 768, "attention_head_dim": 8}
UNET_XL = {
    "_class_name": "UNet2DConditionModel", "sample_size": 128, "cross_attention_dim": 2048, "attention_head_dim": [5, 10, 20],
    "block_out_channels": [320, 640, 1280], "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"], "transformer_layers_per_block": [1, 2, 10],
    "use_linear_projection": True, "addition_embed_type": "text_time", "addition_time_embed_dim": 256, "projection_class_embeddings_input_dim": 2816,
}
NOISE = {
    "_class_name": "PNDMScheduler", "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "num_train_timesteps": 1000,
    "skip_prk_steps": True, "set_alpha_to_one": False, "steps_offset": 1, "clip_sample": False,
}
FLOW = {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 3.0}
FLUX = {
    "transformer": {"_class_name": "FluxTransformer2DModel", "guidance_embeds": True},
    "vae": {**KL_16, "scaling_factor": 0.3611, "shift_factor": 0.1159},
    "text_encoder": {**CLIP_L, "dtype": "bfloat16"}, "text_encoder_2": {**T5_XXL, "dtype": "bfloat16"},
    "scheduler": {**FLOW, "use_dynamic_shifting": True, "base_shift": 0.5, "max_shift": 1.15, "base_image_seq_len": 256, "max_image_seq_len": 4096},
}
STABLE = {"unet": UNET, "vae": KL, "text_encoder": CLIP_L, "scheduler": NOISE}

# Parts by the end of the repository's name; "" is the only part of a repository that holds one model.
PIPELINES = {
    r"stable-diffusion-v1-[1-5]": STABLE,
    r"stable-diffusion-2(-1)?-base": {
        "unet": {**UNET, "cross_attention_dim": 1024, "attention_head_dim": [5, 10, 20, 20], "use_linear_projection": True}, "vae": KL,
        "text_encoder": CLIP_H, "scheduler": NOISE,
    },
    r"stable-diffusion-2(-1)?": {
        "unet": {**UNET, "sample_size": 96, "cross_attention_dim": 1024, "attention_head_dim": [5, 10, 20, 20], "use_linear_projection": True},
        "vae": {**KL, "sample_size": 768}, "text_encoder": CLIP_H, "scheduler": {**NOISE, "prediction_type": "v_prediction"},
    },
    r"stable-diffusion-xl-base-1\.0|sdxl-turbo": {
        "unet": UNET_XL, "vae": KL_XL, "text_encoder": CLIP_L, "text_encoder_2": CLIP_G, "scheduler": {**NOISE, "_class_name": "EulerDiscreteScheduler"},
    },
    r"stable-diffusion-3-medium-diffusers": {
        "transformer": {
            "_class_name": "SD3Transformer2DModel", "num_layers": 24, "num_attention_heads": 24, "caption_projection_dim": 1536, "pos_embed_max_size": 192,
        },
        "vae": {**KL_16, "scaling_factor": 1.5305, "shift_factor": 0.0609}, "text_encoder": {**CLIP_L, "architectures": ["CLIPTextModelWithProjection"]},
        "text_encoder_2": CLIP_G, "text_encoder_3": T5_XXL, "scheduler": FLOW,
    },
    r"flux\.1-dev": FLUX,
    r"flux\.1-schnell": {**FLUX, "transformer": {"_class_name": "FluxTransformer2DModel", "guidance_embeds": False}, "scheduler": {**FLOW, "shift": 1.0}},
    r"sd-vae-ft-(ema|mse)": {"": KL},
    r"sdxl-vae(-fp16-fix)?": {"": KL_XL},
}


def parts(repository):
    """Returns the configurations of a pipeline's parts by folder; empty for repositories that the table lacks."""
    name = repository.rstrip("/").split("/")[-1].lower()
    return next((found for pattern, found in PIPELINES.items() if re.fullmatch(pattern, name)), {})


def names(repository):
    """Returns the names of a repository's configuration files; empty for repositories that the table lacks."""
    return [("%s/" % folder if folder else "") + ("scheduler_config.json" if folder == "scheduler" else "config.json") for folder in parts(repository)]


def config(repository, name):
    """Returns the contents of a configuration file; None if the table lacks it."""
    folder, _, file = name.rpartition("/")
    found = parts(repository).get(folder)
    if found is not None and file == ("scheduler_config.json" if folder == "scheduler" else "config.json"):
        return found
    if found is None and folder.startswith("tokenizer") and file == "config.json":
        # a tokenizer has the vocabulary of the text encoder
        return parts(repository).get(folder.replace("tokenizer", "text_encoder"))
    return None
