#!/usr/bin/env python3
"""Records steps of LLaMA-Factory's own example files with small random models, for `vprof run`:

  vprof run --gpu a100-40 --steps all --keep-files -- python llamafactory_files.py FILES FOLDER > files.jsonl

A line of FILES, which may be gzip-compressed, has the name of an example in LLaMA-Factory's repository, the text of the
file and the configuration of a small model of the same family. In the text, {folder} is replaced by FOLDER, to which
model, tokenizer and data are written. A line of the output has the same, the releases of the libraries, and the peak of
allocated bytes in the second optimizer step.
"""
import json

import yaml
from llamafactory.train.tuner import run_exp

from files import record, text


def write_data(folder, n=16):
    """Writes the examples' data sets. Their texts are longer than the examples' cutoff lengths."""
    rows = {
        "alpaca": [{"instruction": "w1", "input": "", "output": text(i)} for i in range(n)],
        "ranked": [{"instruction": "w1", "input": "", "chosen": text(i), "rejected": text(i + 1)} for i in range(n)],
        "judged": [{"instruction": "w1", "input": "", "output": text(i), "kto_tag": i % 4 < 2} for i in range(n)],
        "raw": [{"text": text(i)} for i in range(n)],
    }
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lines))
    prompt = {"prompt": "instruction", "query": "input"}
    sets = {name: {"file_name": "alpaca.jsonl"} for name in ("identity", "alpaca_en_demo")}
    sets["dpo_en_demo"] = {
        "file_name": "ranked.jsonl", "ranking": True, "columns": {**prompt, "chosen": "chosen", "rejected": "rejected"}}
    sets["kto_en_demo"] = {
        "file_name": "judged.jsonl", "columns": {**prompt, "response": "output", "kto_tag": "kto_tag"}}
    sets["c4_demo"] = {"file_name": "raw.jsonl", "columns": {"prompt": "text"}}
    (folder / "dataset_info.json").write_text(json.dumps(sets))


def train(words, _):
    run_exp(args=yaml.safe_load(words))


if __name__ == "__main__":
    record(("trl", "peft", "accelerate", "bitsandbytes", "llamafactory"), write_data, train)
