#!/usr/bin/env python3
"""Records steps of TRL's documented commands with small random models, run by its scripts, for `vprof run`:

  vprof run --gpu a100-40 --steps all --keep-files -- python trl_files.py FILES FOLDER > files.jsonl

A line of FILES, which may be gzip-compressed, has the name of a script or configuration, its command and the
configuration of a small model. In the command, {folder} is replaced by FOLDER, to which model, tokenizer and data are
written. A line of the output has the same, the releases of the libraries, and the peak of allocated bytes in the second
and third step.
"""
import importlib.util
import json
import shlex

import datasets
import transformers
import trl

from files import record, text

PROMPT_WORDS = 512  # the prompt length that vprof plans by default


def write_data(folder, n=64):
    """Writes a data set for each task. Sequences have from seven tokens less than the commands' maximum length to one
    more.
    """
    texts = [text(i, 1017 + i % 8) for i in range(n + 1)]
    rows = {
        "sft": [{"text": texts[i]} for i in range(n)],
        "pairs": [{"prompt": "w1", "chosen": " " + texts[i], "rejected": " " + texts[i + 1]} for i in range(n)],
        "ranked": [{"prompt": "w1", "chosen": " " + text(i, 1016), "rejected": " " + text(i, 1008)} for i in range(n)],
        "judged": [{"prompt": "w1", "completion": " " + texts[i], "label": i % 4 < 2} for i in range(n)],
        "prompts": [{"prompt": text(i, PROMPT_WORDS)} for i in range(n)],
    }
    for name, lines in rows.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lines))


def generated(trainer, prompt_ids, *_, **__):
    """Replaces a trainer's generation: returns completions of the maximum length, or one token less. The record is
    about the update.
    """
    longest = trainer.args.max_completion_length
    answers = [[(i * 13 + j) % 1000 for j in range(longest - i % 2)] for i in range(len(prompt_ids))]
    return answers if isinstance(trainer, trl.RLOOTrainer) else (answers, None)


def reward(completions, **_):
    """Returns rewards: the reward function of the commands."""
    return [float(i % 2) for i in range(len(completions))]


def experimental(task, arguments):
    """Trains with a trainer that TRL's command line lacks, as its example script does."""
    module = importlib.import_module("trl.experimental." + task)
    config, trainer = (getattr(module, task.upper() + kind) for kind in ("Config", "Trainer"))
    parser = transformers.HfArgumentParser((trl.ScriptArguments, config, trl.ModelConfig))
    script, args, model = parser.parse_args_into_dataclasses(args=arguments)
    trainer(
        transformers.AutoModelForCausalLM.from_pretrained(model.model_name_or_path), args=args,
        train_dataset=datasets.load_dataset(script.dataset_name)["train"],
        processing_class=transformers.AutoTokenizer.from_pretrained(model.model_name_or_path),
        peft_config=trl.get_peft_config(model)).train()


def train(command, case):
    """Runs a command: trl TASK ARGUMENTS, or python examples/scripts/TASK.py ARGUMENTS."""
    _, task, *arguments = shlex.split(command)
    task = task.rsplit("/", 1)[-1].removesuffix(".py")
    arguments += ["--output_dir", "out", "--save_strategy", "no", "--report_to", "none", "--dataloader_pin_memory", "false"]
    if importlib.util.find_spec("trl.scripts." + task) is None:
        return experimental(task, arguments)
    script = importlib.import_module("trl.scripts." + task)
    script.main(*script.make_parser().parse_args_and_config(arguments))


if __name__ == "__main__":
    for name in ("GRPO", "RLOO"):
        getattr(trl, name + "Trainer")._generate_single_turn = generated
    record(("trl", "peft", "accelerate"), write_data, train, steps=3)
