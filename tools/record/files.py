"""Common code of the recorders of trainers' example files: a small model, texts, the peaks of steps, and the loop over
cases.
"""
import contextlib
import gc
import gzip
import hashlib
import importlib.metadata
import json
import pathlib
import sys
import traceback

import tokenizers
import torch
import transformers
from torch.optim.optimizer import register_optimizer_step_post_hook

WORDS = 3000  # longer than the longest sequence of any file


class Enough(BaseException):
    """Raised after the last step."""


class Peaks:
    """Peaks of allocated bytes between ends of optimizer steps. Optimizers of single parameters step together."""

    def __init__(self, steps):
        self.last, self.found, self.steps = steps, [], {}

    def __call__(self, optimizer, *_):
        self.found.append(torch.cuda.memory_stats()["allocated_bytes.all.peak"])
        torch.cuda.reset_peak_memory_stats()
        at = self.steps.setdefault(id(optimizer), [])
        at.append(len(self.found))
        if len(at) == self.last:
            raise Enough

    def later(self):
        """Returns the peak of the steps after the first."""
        return max(self.found[max(self.steps.values(), key=len)[0]:])


def text(seed, words=WORDS):
    return " ".join(f"w{(seed * 7919 + i * 31) % 1000}" for i in range(words))


def model_folder(folder, config):
    """Writes a model of a configuration and a word-level tokenizer (w0, w1, ...), unless they exist. Returns their
    folder.
    """
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
    torch.set_default_dtype(getattr(torch, config.get("dtype", "bfloat16")))
    transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(
        config["model_type"], eos_token_id=words["<eos>"], pad_token_id=words["<pad>"], **more)).save_pretrained(folder)
    torch.set_default_dtype(torch.float32)
    return folder


def peak(case, folder, train, steps):
    """Returns the peak of allocated bytes of a case after its first step, without the bytes allocated before it."""
    peaks, before = Peaks(steps), torch.cuda.memory_allocated()
    model = model_folder(folder, case["config"])
    hook = register_optimizer_step_post_hook(peaks)
    try:
        with contextlib.suppress(Enough):
            train(case["text"].replace("{folder}/model", str(model)).replace("{folder}", str(folder)), case)
    finally:
        hook.remove()
    print(f"{case['file']}: {before} bytes of cases before", file=sys.stderr)
    return peaks.later() - before


def record(libraries, write_data, train, steps=2):
    """Trains each case of the file named on the command line with train(text, case), and prints its record.

    A case that raises an error is reported and left out.
    """
    files, folder = sys.argv[1], pathlib.Path(sys.argv[2]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    write_data(folder)
    releases = {name: importlib.metadata.version(name).split("+")[0] for name in ("torch", "transformers", *libraries)}
    with gzip.open(files, "rt") if files.endswith(".gz") else open(files) as f:
        cases = {case["file"]: case for case in map(json.loads, f)}  # cases of later releases replace earlier ones
    for case in cases.values():
        line = case | {"stack": releases}
        try:
            line["allocated"] = peak(case, folder, train, steps)
            print(json.dumps(line), flush=True)
        except Exception:
            traceback.print_exc()
        for _ in range(3):
            gc.collect()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
