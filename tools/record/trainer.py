#!/usr/bin/env python3
"""Trains one rank of a decoder with transformers' Trainer, for `vprof run`:

  vprof run --gpu a100-80 --gpus 8 --steps 3 -- accelerate launch --config_file fsdp.yaml trainer.py \
    --model_name_or_path FOLDER --per_device_train_batch_size 2 --block_size 1024 --bf16 --max_steps 5 --save_strategy no

FOLDER has a bf16 model as save_pretrained writes it.
"""
from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class Script:
    model_name_or_path: str = ""
    block_size: int = 1024


class Rows(torch.utils.data.Dataset):
    def __init__(self, tokens):
        self.ids = torch.arange(tokens) % 31000

    def __len__(self):
        return 4096

    def __getitem__(self, i):
        return dict(input_ids=self.ids, labels=self.ids.clone(), attention_mask=torch.ones_like(self.ids))


def main():
    script, args = HfArgumentParser((Script, TrainingArguments)).parse_args_into_dataclasses()
    model = AutoModelForCausalLM.from_pretrained(script.model_name_or_path)
    Trainer(model=model, args=args, train_dataset=Rows(script.block_size)).train()


if __name__ == "__main__":
    main()
