"""Placeholders for absent processors of images and audio: the defaults of the model type's class, with the model's
sizes.
"""

import importlib
import json

from .placeholders import replaced


def file(repository):
    """Returns the contents of preprocessor_config.json; None for unknown models and those without a processor."""
    path = repository.file("config.json")
    if path is None:
        return None
    with open(path, encoding="utf-8") as opened:
        config = json.load(opened)
    name = class_of(config.get("model_type"))
    if name is None:
        return None
    facts = getattr(importlib.import_module("transformers"), name)().to_dict()
    inner = config.get("vision_config") if isinstance(config.get("vision_config"), dict) else config
    side = inner.get("image_size")
    if isinstance(side, int):
        for key in ("size", "crop_size"):
            if isinstance(facts.get(key), dict):
                facts[key] = dict.fromkeys(facts[key], side)
    if config.get("num_mel_bins") and "feature_size" in facts:
        facts["feature_size"] = config["num_mel_bins"]
    replaced("tokenizer", repository.name, "%s with the sizes of the model%s" % (name, repository.origin))
    return json.dumps(facts).encode()


def class_of(kind):
    """Returns the name of transformers' processor class for a model type; None if there is none."""
    for module, table in (("feature_extraction_auto", "FEATURE_EXTRACTOR_MAPPING_NAMES"), ("image_processing_auto", "IMAGE_PROCESSOR_MAPPING_NAMES")):
        names = getattr(importlib.import_module("transformers.models.auto." + module), table).get(kind)
        if isinstance(names, dict):  # one class per backend
            names = names.get("torchvision")
        name = names if isinstance(names, str) else next((n for n in reversed(names or ()) if n), None)
        if name:
            return name
    return None
