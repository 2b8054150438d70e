#!/usr/bin/env python3
"""Records steps of ms-swift's own example commands with small random models, for `vprof run`:

  vprof run --gpu a100-40 --steps all --keep-files -- python msswift_files.py FILES FOLDER > files.jsonl

FILES and the output have the format of llamafactory_files.py, with commands in place of files.
"""
import json
import shlex

from swift.pipelines import rlhf_main, sft_main

from files import record, text


def write_data(folder, n=64):
    """Writes the examples' data sets. Texts are longer than --max_length 2048; texts of pairs are a little shorter."""
    user = {"role": "user", "content": "w1"}
    rows = {
        "sft": [{"messages": [user, {"role": "assistant", "content": text(i)}]} for i in range(n)],
        "pairs": [{"messages": [user, {"role": "assistant", "content": text(i, 2020)}],
                   "rejected_response": text(i + 1, 2020)} for i in range(n)],
        "judged": [{"messages": [user, {"role": "assistant", "content": text(i, 2020)}], "label": i % 4 < 2}
                   for i in range(n)],
        "cls": [{"messages": [{"role": "user", "content": text(i)}], "label": i % 2} for i in range(n)],
    }
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lines))


def train(command, _):
    _, kind, *arguments = shlex.split(command)
    {"sft": sft_main, "rlhf": rlhf_main}[kind](arguments)


if __name__ == "__main__":
    record(("trl", "peft", "accelerate", "bitsandbytes", "ms-swift"), write_data, train)
