"""Counts elements as transformers and peft do: of models made from configurations, with and without adapters of rank 4
for all linear layers.

    python counts.py configs/*/config.json > counts.json

Needs torch, transformers and peft. Models are built on the meta device without data, so this takes seconds and little
memory.
"""
import json
import os
import sys

import peft
import torch
import transformers

CLASSES = {
    "bert": ["BertForMaskedLM", "BertForSequenceClassification"],
    "roberta": ["RobertaForMaskedLM", "RobertaForSequenceClassification"],
    "distilbert": ["DistilBertForMaskedLM", "DistilBertForSequenceClassification"],
    "gpt2": ["GPT2LMHeadModel", "GPT2ForSequenceClassification"],
    "llama": ["LlamaForCausalLM", "LlamaForSequenceClassification"],
    "mistral": ["MistralForCausalLM", "MistralForSequenceClassification"],
    "qwen2": ["Qwen2ForCausalLM", "Qwen2ForSequenceClassification"],
    "vit": ["ViTForImageClassification"],
    "whisper": ["WhisperForConditionalGeneration"],
    "wav2vec2": ["Wav2Vec2ForCTC"],
    "gemma3": ["Gemma3ForConditionalGeneration"],
    "mllama": ["MllamaForConditionalGeneration"],
    "gemma4": ["Gemma4ForConditionalGeneration"],
    "gemma4_unified": ["Gemma4UnifiedForConditionalGeneration"],
    "qwen3_5": ["Qwen3_5ForConditionalGeneration"],
    "qwen3_5_moe": ["Qwen3_5MoeForConditionalGeneration"],
    "qwen3_5_text": ["Qwen3_5ForCausalLM"],
    "llama4": ["Llama4ForConditionalGeneration"],
    "llama4_text": ["Llama4ForCausalLM"],
}
AUTO = (transformers.AutoModelForCausalLM, transformers.AutoModelForSequenceClassification, transformers.AutoModelForImageTextToText)


def classes(path):
    """Returns the class names for a configuration's model type."""
    with open(path) as f:
        kind = json.load(f)["model_type"]
    if kind in CLASSES:
        return CLASSES[kind]
    config = type(transformers.AutoConfig.from_pretrained(path))
    return [a._model_mapping[config].__name__ for a in AUTO if config in a._model_mapping]


def count(path, name):
    config = transformers.AutoConfig.from_pretrained(path)
    with torch.device("meta"):
        model = getattr(transformers, name)(config)
    model.tie_weights()
    parameters = list(model.parameters())
    return {
        "config": os.path.basename(os.path.dirname(path)),
        "class": name,
        "total": sum(p.numel() for p in parameters),
        "trainable": sum(p.numel() for p in parameters if p.requires_grad),
        "buffers": sum(b.numel() for b in model.buffers()),
        "lora": adapted(model, "SEQ_CLS" if "SequenceClassification" in name else None),
    }


def adapted(model, kind):
    """Returns the counts with adapters; None if all-linear fails in peft: it would adapt a layer that is saved as a
    whole, adapt more than linear layers, or replace a layer with two outputs, so that no step runs.
    """
    if any(type(m).__name__ == "Llama4Router" for m in model.modules()):
        return None
    try:
        with torch.device("meta"):
            model = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules="all-linear", task_type=kind))
    except (TypeError, ValueError):
        return None
    if model.peft_config["default"].target_parameters:
        return None  # also next to experts' parameters
    parameters = list(model.parameters())
    return {
        "total": sum(p.numel() for p in parameters),
        "trainable": sum(p.numel() for p in parameters if p.requires_grad),
    }


def main():
    models = []
    for path in sys.argv[1:]:
        models += [count(path, name) for name in classes(path)]
    head = {"transformers": transformers.__version__, "torch": torch.__version__, "peft": peft.__version__}
    rows = ",\n".join("    " + json.dumps(m) for m in models)
    print(json.dumps(head)[:-1] + ', "models": [\n' + rows + "\n]}")


main()
