#!/usr/bin/env python3
"""Records steps of torchtune's own example files with small models, run by its recipes, for `vprof run`:

  vprof run --gpu a100-40 --steps all --keep-files -- python torchtune_files.py FILES FOLDER > files.jsonl

A line of FILES, which may be gzip-compressed, has the name of an example in torchtune's repository, its recipe, the
text of the file and the configuration of a small model of the same family. In the text, {folder} is replaced by FOLDER,
to which the model is written. A line of the output has the same, the releases of the libraries, and the peak of
allocated bytes in the second and third optimizer step.
"""
import importlib
import inspect
import os
import pathlib
import re
import runpy
import sys

import torch
import torchtune.datasets

from files import record


class Lengths:
    """A tokenizer that only provides the sequence length."""

    def __init__(self, max_seq_len=None, **_):
        self.max_seq_len, self.pad_id, self.eos_id = max_seq_len, 0, 1


class Rows(torch.utils.data.Dataset):
    """A data set of sequences with the tokenizer's maximum length."""

    def __init__(self, tokenizer, **_):
        self.length = tokenizer.max_seq_len

    def __len__(self):
        return 512

    def __getitem__(self, at):
        tokens = [(at * 131 + i * 17) % 1000 for i in range(self.length)]
        return {"tokens": tokens, "labels": list(tokens)}


class Pairs(Rows):
    """A data set of pairs of a chosen and a rejected sequence."""

    def __getitem__(self, at):
        row = super().__getitem__(at)
        return {f"{kind}_{name}": values for kind in ("chosen", "rejected")
                for name, values in (("input_ids", row["tokens"]), ("labels", row["labels"]))}


def make_small(text, c):
    """Patches torchtune's model builders to use a configuration's sizes, and its data sets to return tokens without
    texts.
    """
    for family in set(re.findall(r"torchtune\.models\.(\w+)", text)):
        importlib.import_module("torchtune.models." + family)
    sizes = {
        "vocab_size": c["vocab_size"], "num_layers": c["num_hidden_layers"], "num_heads": c["num_attention_heads"],
        "num_kv_heads": c["num_key_value_heads"], "embed_dim": c["hidden_size"], "intermediate_dim": c["intermediate_size"]}

    def small(build):
        whole = getattr(build, "whole", build)
        own = {n: v for n, v in sizes.items() if n in inspect.signature(whole).parameters}

        def made(*a, **k):
            return whole(*a, **{**k, **own})
        made.whole = whole
        return made

    for name, module in list(sys.modules.items()):
        if name.startswith("torchtune.models.") and name.endswith("_model_builders"):
            for attribute, value in list(vars(module).items()):
                if inspect.isfunction(value) and getattr(value, "whole", value).__module__.endswith("_component_builders"):
                    setattr(module, attribute, small(value))
        if name.startswith("torchtune.models."):
            for attribute in [a for a in vars(module) if a.endswith("_tokenizer")]:
                setattr(module, attribute, Lengths)
    for attribute in [a for a in dir(torchtune.datasets) if a.endswith("_dataset")]:
        setattr(torchtune.datasets, attribute, Pairs if "paired" in attribute or "preference" in attribute else Rows)


def train(text, case):
    """Runs a case's recipe."""
    make_small(text, case["config"])
    file = pathlib.Path("case.yaml").absolute()
    file.write_text(text)
    recipe = pathlib.Path(torchtune.__file__).parent.parent / "recipes" / (case["recipe"] + ".py")
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="29556")
    sys.argv = [str(recipe), "--config", str(file)]
    runpy.run_path(str(recipe), run_name="__main__")


if __name__ == "__main__":
    record(("torchao", "torchtune", "bitsandbytes"), lambda folder: None, train, steps=3)
