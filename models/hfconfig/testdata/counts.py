"""What transformers counts: element counts of the models of configurations.

    python counts.py configs/*/config.json > counts.json

Needs torch and transformers. Models are built on the meta device, which has no
data, so this takes seconds and little memory.
"""
import json
import os
import sys

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
}


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
    }


def main():
    models = []
    for path in sys.argv[1:]:
        with open(path) as f:
            kind = json.load(f)["model_type"]
        models += [count(path, name) for name in CLASSES[kind]]
    head = {"transformers": transformers.__version__, "torch": torch.__version__}
    rows = ",\n".join("    " + json.dumps(m) for m in models)
    print(json.dumps(head)[:-1] + ', "models": [\n' + rows + "\n]}")


main()
