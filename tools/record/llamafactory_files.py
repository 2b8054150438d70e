#!/usr/bin/env python3
"""Steps of LLaMA-Factory's own example files with small random models, as its code runs them, for `vprof run`:

  vprof run --gpu a100-40 --steps all --keep-files -- python llamafactory_files.py FILES FOLDER > files.jsonl

A line of FILES, compressed with gzip or not, has the name of an example of its repository, the text of the file and
the configuration of a small model of the same family. In the text {folder} is FOLDER, where model, tokenizer and data
are written. A line of the output has the same, with the releases of the libraries and the bytes allocated at the peak
of the second optimizer step.
"""
import contextlib
import gc
import gzip
import hashlib
import importlib.metadata
import json
import pathlib
import sys

import tokenizers
import torch
import transformers
import yaml
from llamafactory.train.tuner import run_exp
from torch.optim.optimizer import register_optimizer_step_post_hook

LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes", "llamafactory")
WORDS = 3000  # longer than any example's rows


class Enough(BaseException):
    """Two steps were taken."""


class Peaks:
    """The peaks between the ends of steps; optimizers of single parameters take a step together."""

    def __init__(self):
        self.found, self.steps = [], {}

    def __call__(self, optimizer, *_):
        self.found.append(torch.cuda.memory_stats()["allocated_bytes.all.peak"])
        torch.cuda.reset_peak_memory_stats()
        at = self.steps.setdefault(id(optimizer), [])
        at.append(len(self.found))
        if len(at) == 2:
            raise Enough

    def second(self):
        return max(self.found[max(self.steps.values(), key=len)[-2]:])


def text(seed):
    return " ".join(f"w{(seed * 7919 + i * 31) % 1000}" for i in range(WORDS))


def model_folder(folder, config):
    """Writes a model of a configuration and a tokenizer of its words, w0, w1, ..., and returns their folder."""
    folder = folder / ("model-" + hashlib.sha256(json.dumps(config).encode()).hexdigest()[:8])
    if folder.exists():
        return folder
    words = {f"w{i}": i for i in range(config["vocab_size"] - 4)}
    for special in ("<eos>", "<pad>", "<bos>", "<unk>"):
        words[special] = len(words)
    tokens = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokens.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokens, eos_token="<eos>", pad_token="<pad>", bos_token="<bos>", unk_token="<unk>",
    ).save_pretrained(folder)
    more = {k: v for k, v in config.items() if k != "model_type"}
    torch.set_default_dtype(torch.bfloat16)
    transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(
        config["model_type"], eos_token_id=words["<eos>"], pad_token_id=words["<pad>"], **more)).save_pretrained(folder)
    torch.set_default_dtype(torch.float32)
    return folder


def write_data(folder, n=16):
    """Writes the examples' data sets, with rows longer than they cut."""
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


def peak(case, folder):
    """Returns the allocated bytes of the second step of a case, without what was there before."""
    peaks, before = Peaks(), torch.cuda.memory_allocated()
    model = model_folder(folder, case["config"])
    hook = register_optimizer_step_post_hook(peaks)
    with contextlib.suppress(Enough):
        words = case["text"].replace("{folder}/model", str(model)).replace("{folder}", str(folder))
        run_exp(args=yaml.safe_load(words))
    hook.remove()
    return peaks.second() - before


def main():
    files, folder = sys.argv[1], pathlib.Path(sys.argv[2]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    write_data(folder)
    releases = {name: importlib.metadata.version(name).split("+")[0] for name in LIBRARIES}
    with gzip.open(files, "rt") if files.endswith(".gz") else open(files) as f:
        cases = [json.loads(line) for line in f]
    for case in cases:
        record = {"stack": releases, **{k: case[k] for k in ("file", "text", "config")}}
        print(json.dumps({**record, "allocated": peak(case, folder)}), flush=True)
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
