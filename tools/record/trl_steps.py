#!/usr/bin/env python3
"""Records training steps of TRL's trainers with random weights under the installed releases, for `vprof run`:

  PYTHONPATH=ENVIRONMENT vprof run --gpu a100-40 --steps all -- python trl_steps.py trl_steps.json FOLDER > trl.jsonl

trl_steps.json has the configurations, each with the trainer's class and the keys of its YAML. The model and its
tokenizer are written to FOLDER. A line of the output has a configuration, the releases of its libraries, and the peaks
of allocated and requested bytes in the third step.
"""
import gc
import importlib.metadata
import json
import pathlib
import sys

import datasets
import tokenizers
import torch
import transformers
import trl

LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate")


def model_folder(folder, config):
    """Writes a model of a configuration and a word-level tokenizer (w0, w1, ...)."""
    kind = config["model_type"]
    words = {f"w{i}": i for i in range(config["vocab_size"] - 2)}
    words |= {"<eos>": len(words), "<pad>": len(words) + 1}
    tokens = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    tokens.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokens, eos_token="<eos>", pad_token="<pad>").save_pretrained(folder)
    more = {k: v for k, v in config.items() if k != "model_type"}
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(
        kind, eos_token_id=words["<eos>"], pad_token_id=words["<pad>"], **more))
    model.save_pretrained(folder)


def text(words, seed):
    return " ".join(f"w{(seed * 7919 + i * 31) % 1000}" for i in range(words))


def rows_of(task, args, n):
    """Yields sequences of the configuration's maximum length; every second one has one token less."""
    length = args.row_words or getattr(args, "max_length", None) or 0
    for i in range(n):
        words = length - i % 2
        if task == "SFT":
            yield {"input_ids": [(i * 131 + j * 17) % 1000 for j in range(words)]}
        elif task == "GRPO":
            yield {"prompt": text(args.prompt_words, i // args.num_generations)}
        elif task == "KTO":
            yield {"prompt": "w1", "completion": " " + text(words - 2, i), "label": i % 4 < 2}
        else:
            yield {"prompt": "w1", "chosen": " " + text(words - 2, i), "rejected": " " + text(words - 2, i + 1)}


def bytes_of(kind):
    return torch.cuda.memory_stats()[kind + "_bytes.all.peak"]


class Peaks(transformers.TrainerCallback):
    """Records the peaks of each step."""

    def __init__(self):
        self.steps = []

    def on_step_begin(self, *_, **__):
        torch.cuda.reset_peak_memory_stats()

    def on_step_end(self, *_, **__):
        self.steps.append({"allocated": bytes_of("allocated"), "requested": bytes_of("requested")})


def steps(case, folder):
    """Returns the peaks of the third step of a configuration."""
    task, keys = case["task"], dict(case["keys"])
    parser = trl.TrlParser((getattr(trl, task + "Config"), trl.ModelConfig))
    args, model_args = parser.parse_dict({
        "model_name_or_path": folder, "output_dir": folder + "/out", "max_steps": 3, "save_strategy": "no",
        "report_to": "none", "logging_steps": 1, "dataloader_pin_memory": False, **keys})
    args.model_init_kwargs = {"dtype": model_args.dtype, "attn_implementation": model_args.attn_implementation}
    args.prompt_words, args.row_words = case.get("prompt_words"), case.get("row_words")
    more, peaks = {}, Peaks()
    if getattr(model_args, "use_peft", False):
        more["peft_config"] = trl.get_peft_config(model_args)
    if task == "GRPO":
        more["reward_funcs"] = lambda completions, **_: [float(i % 2) for i in range(len(completions))]
    n = 8 * args.per_device_train_batch_size * args.gradient_accumulation_steps
    data = datasets.Dataset.from_list(list(rows_of(task, args, n)))
    trainer = getattr(trl, task + "Trainer")(model=folder, args=args, train_dataset=data, callbacks=[peaks], **more)
    if task == "GRPO":
        answers(trainer, args.max_completion_length)
    trainer.train()
    return peaks.steps[-1]


def answers(trainer, length):
    """Replaces generation by completions of the given length: the record is about the update."""
    def generated(prompt_ids, *_, **__):
        return [[(i * 13 + j) % 1000 for j in range(length)] for i in range(len(prompt_ids))], None
    trainer._generate_single_turn = generated


def main():
    with open(sys.argv[1]) as f:
        config, cases = (lambda x: (x["config"], x["cases"]))(json.load(f))
    folder = str(pathlib.Path(sys.argv[2]).absolute())
    model_folder(folder, config)
    releases = {name: importlib.metadata.version(name).split("+")[0] for name in LIBRARIES}
    for case in cases:
        record = {"stack": releases, "config": config, **case}
        try:
            record.update(steps(case, folder))
        except Exception as e:  # this release lacks the configuration
            record["error"] = f"{type(e).__name__}: {e}"[:300]
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        record["left"] = torch.cuda.memory_allocated()
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
