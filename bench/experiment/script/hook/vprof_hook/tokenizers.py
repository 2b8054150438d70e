"""Placeholders for absent tokenizers: files of a word-level tokenizer with the vocabulary size of the model."""

import json

from .placeholders import replaced

# Special tokens by model type. Bidirectional encoders have a padding token, most decoders have none.
ENCODERS = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
TWO_SIDED = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}
ENCODER_DECODERS = {"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "</s>"}
PADDED_DECODERS = {"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
DECODERS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
BY_TYPE = {
    "bert": ENCODERS, "distilbert": ENCODERS, "electra": ENCODERS, "mpnet": TWO_SIDED, "roberta": TWO_SIDED, "xlm-roberta": TWO_SIDED, "bart": TWO_SIDED,
    "mbart": TWO_SIDED, "deberta": ENCODERS, "deberta-v2": ENCODERS, "albert": ENCODERS, "modernbert": ENCODERS, "longformer": TWO_SIDED,
    "camembert": TWO_SIDED, "t5": ENCODER_DECODERS, "mt5": ENCODER_DECODERS, "umt5": ENCODER_DECODERS, "pegasus": ENCODER_DECODERS,
    "clip": PADDED_DECODERS, "clip_text_model": PADDED_DECODERS, "qwen2": PADDED_DECODERS, "qwen3": PADDED_DECODERS, "qwen2_moe": PADDED_DECODERS, "qwen3_moe": PADDED_DECODERS,
    "gemma": PADDED_DECODERS, "gemma2": PADDED_DECODERS, "gemma3": PADDED_DECODERS, "gemma3_text": PADDED_DECODERS, "opt": PADDED_DECODERS,
    "phi3": PADDED_DECODERS, "whisper": PADDED_DECODERS,
}

# A chat template with ChatML's marks, which most recent models use in some form.
TEMPLATE = (
    "{% for m in messages %}<|im_start|> {{ m['role'] }} {% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }} {% endgeneration %}"
    "{% else %}{{ m['content'] }} {% endif %}<|im_end|> {% endfor %}{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)


def file(repository, name):
    """Returns the contents of tokenizer.json or tokenizer_config.json; None for other files, or if the vocabulary size is
    unknown.
    """
    folder, _, name = name.rpartition("/")
    config = repository.file(f"{folder}/config.json".lstrip("/"))
    if config is None or name not in ("tokenizer.json", "tokenizer_config.json"):
        return None
    with open(config, encoding="utf-8") as opened:
        config = json.load(opened)
    inner = next((config[key] for key in ("text_config", "llm_config", "language_config") if isinstance(config.get(key), dict)), config)
    size = inner.get("vocab_size") or config.get("vocab_size")
    if not size:
        return None
    special = BY_TYPE.get(config.get("model_type"), DECODERS)
    replaced("tokenizer", repository.name, "a token for each word, and %d in its vocabulary%s" % (size, repository.origin))
    if name == "tokenizer_config.json":
        longest = inner.get("max_position_embeddings") or inner.get("n_positions")
        return json.dumps({
            **special, "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": longest or int(1e30), "chat_template": TEMPLATE,
            "clean_up_tokenization_spaces": False,
        }).encode()
    marks = list(dict.fromkeys(special.values()))
    vocabulary = {token: i for i, token in enumerate(marks + ["the", "<|im_start|>", "<|im_end|>"])}
    vocabulary.update(("w%d" % i, i) for i in range(len(vocabulary), size))
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "added_tokens": [
            {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for i, token in enumerate(marks)
        ],
        "post_processor": ends(special, vocabulary), "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": special["unk_token"]},
    }).encode()


def ends(special, vocabulary):
    """Returns the post-processor that adds special tokens around each text: [CLS] and [SEP], </s>, or <s>."""
    first, last = special.get("cls_token"), special.get("sep_token")
    if not first:
        first, last = (None, special["eos_token"]) if special is ENCODER_DECODERS else (special.get("bos_token"), None)
    mark = lambda token, kind: [{"SpecialToken": {"id": token, "type_id": kind}}] if token else []  # noqa: E731
    part = lambda name, kind: [{"Sequence": {"id": name, "type_id": kind}}]  # noqa: E731
    return {
        "type": "TemplateProcessing", "single": mark(first, 0) + part("A", 0) + mark(last, 0),
        "pair": mark(first, 0) + part("A", 0) + mark(last, 0) + part("B", 1) + mark(last, 1),
        "special_tokens": {token: {"id": token, "ids": [vocabulary[token]], "tokens": [token]} for token in (first, last) if token},
    }
