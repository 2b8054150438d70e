#!/usr/bin/env python3
"""Records steps of axolotl's own example files with small random models, for `vprof run`:

  vprof run --gpu a100-40 --steps all --keep-files -- python axolotl_files.py FILES FOLDER > files.jsonl

FILES and the output have the format of llamafactory_files.py. axolotl patches classes of transformers, so each run takes
one line.
"""
import json
import os
import pathlib

os.environ.update(AXOLOTL_DO_NOT_TRACK="1", WANDB_MODE="disabled")
from axolotl.cli.args import TrainerCliArgs
from axolotl.cli.config import load_cfg
from axolotl.cli.train import do_train

from files import record, text


def write_data(folder, n=64):
    """Writes the examples' data sets. Texts that are not packed are a little shorter than sequence_len: 2048."""
    def said(role, seed):
        return {"role": role, "content": "w1" if role == "user" else text(seed, 2030)}

    rows = {
        "alpaca": [{"instruction": "w1", "input": "", "output": text(i, 150 + i % 50)} for i in range(3000)],
        "sft": [{"messages": [said("user", i), said("assistant", i)]} for i in range(n)],
        "pairs": [{"conversation": [said("user", i)], "chosen": said("assistant", i),
                   "rejected": said("assistant", i + 1)} for i in range(n)],
        "orpo": [{"prompt": "w1", "chosen": [said("user", i), said("assistant", i)],
                  "rejected": [said("user", i), said("assistant", i + 1)]} for i in range(n)],
        "bt": [{"system": "", "input": "w1", "chosen": text(i, 2030), "rejected": text(i + 1, 2030)} for i in range(n)],
    }
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lines))


def train(words, _):
    file = pathlib.Path("case.yaml")
    file.write_text(words)
    do_train(load_cfg(str(file)), TrainerCliArgs())


if __name__ == "__main__":
    record(("trl", "peft", "accelerate", "bitsandbytes", "axolotl"), write_data, train)
