"""Writes models/hfconfig/hub.json: configurations of models on the Hugging Face hub by name.

Shapes of language models are from litgpt's table (the Apache-2.0 package litgpt, litgpt/config.py), which loads
the hub's weights as they are, so that its sizes are the hub's. The type of the weights and shared embeddings are
not in that table: FAMILIES has them for each family, with their source. Other models are in others.json, each with
the public file that shows its configuration. Copies under other names are from unsloth's table of its 16-bit models
(the Apache-2.0 package unsloth, unsloth/models/mapper.py), without Phi, whose layers unsloth splits.

Fine-tuned copies of GPT-2 are from a table of the hub's configurations of 2023
(RahulSChand/gpu_poor, public/all_configs.json), which leaves some keys out: only models with the sizes of a release are
taken, since what that table lacks is then the release's, too.

    pip download --no-deps litgpt==0.5.13 unsloth==2026.10.9
    unzip litgpt-*.whl litgpt/config.py && unzip unsloth-*.whl unsloth/models/mapper.py
    python tools/hubnames/hubnames.py litgpt/config.py unsloth/models/mapper.py all_configs.json 2026-11-29
"""

import importlib.util
import json
import pathlib
import re
import sys

LITGPT = "litgpt 0.5.13, litgpt/config.py"
UNSLOTH = "unsloth 2026.10.9, unsloth/models/mapper.py"
POOR = "RahulSChand/gpu_poor ad2fc0ef, public/all_configs.json"
MLC = "mlc-ai/mlc-llm 79d603f0, python/mlc_llm/model/model_preset.py"

# Rows: name pattern, model_type, architecture, dtype of the weights, tied embeddings, source of dtype and tying.
FAMILIES = [
    (r"EleutherAI/pythia-", "gpt_neox", "GPTNeoXForCausalLM", "float16", False, "Pythia's configurations of 6.9b, 12b"),
    (r"meta-llama/Llama-2-", "llama", "LlamaForCausalLM", "float16", False, MLC),
    (r"meta-llama/Llama-3.2-(1B|3B)", "llama", "LlamaForCausalLM", "bfloat16", True, MLC),
    (r"meta-llama/(Meta-)?Llama-3", "llama", "LlamaForCausalLM", "bfloat16", False, MLC),
    (r"deepseek-ai/DeepSeek-R1-Distill-Llama-", "llama", "LlamaForCausalLM", "bfloat16", False, MLC),
    (r"codellama/CodeLlama-", "llama", "LlamaForCausalLM", "bfloat16", False, MLC),
    (r"TinyLlama/TinyLlama-1.1B-Chat-v1.0", "llama", "LlamaForCausalLM", "bfloat16", False, MLC),
    (r"HuggingFaceTB/SmolLM2-", "llama", "LlamaForCausalLM", "bfloat16", True, MLC),
    (r"mistralai/Mi(stral-7B|stral-Large)", "mistral", "MistralForCausalLM", "bfloat16", False, MLC),
    (r"mistralai/Mixtral-", "mixtral", "MixtralForCausalLM", "bfloat16", False, MLC),
    (r"microsoft/Phi-(3|3.5)-mini", "phi3", "Phi3ForCausalLM", "bfloat16", False, MLC),
    (r"microsoft/Phi-4-mini", "phi3", "Phi3ForCausalLM", "bfloat16", True, MLC),
    (r"google/(code)?gemma-(2b|7b)", "gemma", "GemmaForCausalLM", "bfloat16", True, MLC),
    (r"google/gemma-2-", "gemma2", "Gemma2ForCausalLM", "bfloat16", True, MLC),
    (r"google/gemma-3-1b", "gemma3_text", "Gemma3ForCausalLM", "bfloat16", True, MLC),
    (r"Qwen/Qwen2.5-(Coder-|Math-)?(0.5B|1.5B|3B)", "qwen2", "Qwen2ForCausalLM", "bfloat16", True,
     "Qwen2.5's table of models"),
    (r"Qwen/(Qwen2.5-|QwQ-)", "qwen2", "Qwen2ForCausalLM", "bfloat16", False, "Qwen2.5's table of models"),
    (r"Qwen/Qwen3-(0.6B|1.7B|4B)", "qwen3", "Qwen3ForCausalLM", "bfloat16", True, "Qwen3's table of models"),
    (r"Qwen/Qwen3-\d+B-A\d+B", "qwen3_moe", "Qwen3MoeForCausalLM", "bfloat16", False, "Qwen3's table of models"),
    (r"Qwen/Qwen3-", "qwen3", "Qwen3ForCausalLM", "bfloat16", False, "Qwen3's table of models"),
]


# Sizes of GPT-2's releases: n_embd, n_head and n_layer.
GPT2 = {(768, 12, 12), (1024, 16, 24), (1280, 20, 36), (1600, 25, 48), (768, 12, 6), (2, 2, 2)}
# Vocabulary sizes of GPT-2 with tokens that users add. Models with other sizes were trained from scratch, maybe with
# other settings.
WORDS = range(50257, 50300)
# Fine-tuned copies of GPT-2 that public scripts name. The table has hundreds of other chat bots.
GPT2_NAMES = re.compile(r"^(microsoft/|af1tang/personaGPT$|aisquared/dlite|(edbeeching|lvwerra)/gpt2-imdb$|succinctly/|"
                        r"Gustavosta/MagicPrompt|AUTOMATIC/promptgen|FredZhang7/|sshleifer/tiny-gpt2$|(distil)?gpt2)")
# Parts of the names of models that differ from GPT-2 in settings or weight dtype.
UNLIKE = re.compile(r"efficient|-(el|nl|dl|ff|dm)\d|fp16|bf16|half|bit|gptq|ggml|awq|onnx|random|-chinese|spanish",
                    re.IGNORECASE)

# max_position_embeddings of the hub's configurations, for models whose longest sequence litgpt shortens.
POSITIONS = [(r"google/(code)?gemma-(2b|7b)", 8192), (r"microsoft/Phi-3(.5-mini|-mini-128k)", 131072),
             (r"mistralai/Mistral-7B-(Instruct-)?v0.1", 32768)]

# Names without an organization that the hub redirects.
SHORT = {"google-bert/": "bert-", "openai-community/": "gpt2", "FacebookAI/": ("roberta-", "xlm-roberta-"),
         "distilbert/": "distil"}


def configuration(c, model_type, architecture, dtype, tied):
    """Returns transformers' configuration for a row of litgpt's table."""
    keys = {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": c.n_embd,
        "intermediate_size": c.intermediate_size,
        "num_hidden_layers": c.n_layer,
        "num_attention_heads": c.n_head,
        "max_position_embeddings": c.block_size,
        "vocab_size": c.padded_vocab_size,
        "tie_word_embeddings": tied,
        "torch_dtype": dtype,
    }
    if model_type == "gpt_neox":
        return keys | {"rotary_pct": c.rotary_percentage, "use_parallel_residual": c.parallel_residual}
    keys["num_key_value_heads"] = c.n_query_groups
    keys["rope_theta"] = float(c.rope_base)
    if c.head_size * c.n_head != c.n_embd or model_type.startswith(("gemma", "qwen3")):
        keys["head_dim"] = c.head_size
    if c.rotary_percentage != 1.0:
        keys["partial_rotary_factor"] = c.rotary_percentage
    if c.sliding_window_size and model_type in ("mistral", "phi3", "gemma2", "gemma3_text"):
        keys["sliding_window"] = c.sliding_window_size
    if model_type.startswith("gemma"):
        keys["hidden_activation"] = "gelu_pytorch_tanh"
    if c.attention_scores_scalar and model_type in ("gemma2", "gemma3_text"):
        keys["query_pre_attn_scalar"] = c.attention_scores_scalar
    if c.attention_logit_softcapping:
        keys["attn_logit_softcapping"] = c.attention_logit_softcapping
        keys["final_logit_softcapping"] = c.final_logit_softcapping
    if model_type == "mixtral":
        keys |= {"num_local_experts": c.n_expert, "num_experts_per_tok": c.n_expert_per_token}
    if model_type == "qwen3_moe":
        keys |= {"num_experts": c.n_expert, "num_experts_per_tok": c.n_expert_per_token,
                 "moe_intermediate_size": c.moe_intermediate_size, "norm_topk_prob": True,
                 "decoder_sparse_step": 1, "mlp_only_layers": []}
    return keys


def language(path, read):
    """Yields (name, row) of litgpt's models whose family is in FAMILIES."""
    spec = importlib.util.spec_from_file_location("config", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for row in module.configs:
        name = f"{row['hf_config'].get('org')}/{row['hf_config']['name']}"
        for pattern, model_type, architecture, dtype, tied, source in FAMILIES:
            if re.match(pattern, name):
                config = configuration(module.Config(**row), model_type, architecture, dtype, tied)
                for shortened, positions in POSITIONS:
                    if re.match(shortened, name):
                        config["max_position_embeddings"] = positions
                yield name, {"source": f"{LITGPT}; torch_dtype and tie_word_embeddings: {source}", "read": read,
                             "config": config}
                break


def finetuned(path, read):
    """Yields (name, row) of fine-tuned copies of GPT-2."""
    for name, c in json.loads(pathlib.Path(path).read_text()).items():
        kind, keys = (c.get("architectures") or [""])[0], ("n_embd", "n_head", "n_layer")
        if kind != "GPT2LMHeadModel" or UNLIKE.search(name) or not GPT2_NAMES.search(name):
            continue
        if tuple(c[k] for k in keys) in GPT2 and c["vocab_size"] in WORDS and not c.get("n_inner"):
            config = {"architectures": [kind], "model_type": "gpt2"} | {k: c[k] for k in (*keys, "vocab_size")}
            yield name, {"source": POOR, "read": read, "config": config}


def copies(path):
    """Yields (name, original name) of unsloth's copies."""
    for copy, original in re.findall(r'"(unsloth/[^"]+)"\s*,\s*"([^"]+/[^"]+)"', pathlib.Path(path).read_text()):
        if not re.search(r"phi|bnb-4bit|FP8", copy, re.IGNORECASE):
            yield copy, original


def main():
    """Writes the table sorted by name. A configuration that occurs again is replaced by the first name that has it."""
    path, mapper, poor, read = sys.argv[1:]
    here = pathlib.Path(__file__).parent
    rows = dict(finetuned(poor, read)) | dict(language(path, read)) | json.loads((here / "others.json").read_text())
    # The hub redirects the old names of Llama 3.1.
    rows |= {n.replace("Meta-Llama-3.1", "Llama-3.1"): r for n, r in rows.items() if "Meta-Llama-3.1" in n
             and n.replace("Meta-Llama-3.1", "Llama-3.1") not in rows}
    rows = {org + n: r for org, short in SHORT.items() for n, r in rows.items()
            if "/" not in n and n.startswith(short)} | rows
    rows |= {n.removeprefix(org): r for org, short in SHORT.items() for n, r in rows.items()
             if n.startswith(org) and n.removeprefix(org).startswith(short)}
    first, lines = {}, []
    for name in sorted(rows):
        row = rows[name]
        config = json.dumps(row["config"], sort_keys=True)
        same = first.setdefault((config, row["source"], row["read"]), name)
        lines.append(f"  {json.dumps(name)}: {json.dumps(row if same == name else {'same': same})}")
    for copy, original in sorted(copies(mapper)):
        if original in rows:
            row = rows[original]
            same = first[json.dumps(row["config"], sort_keys=True), row["source"], row["read"]]
            lines.append(f"  {json.dumps(copy)}: {json.dumps({'same': same, 'source': UNSLOTH})}")
    (here.parent.parent / "models/hfconfig/hub.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
