#!/usr/bin/env python3
"""Trains with transformers' Trainer and LoRA under FullyShardedDataParallel; `vprof run` records the events:

  vprof run --gpus 2 --gpu a100-80 --steps 2 --record steps.vprof -- python -m torch.distributed.run --nproc_per_node 2 \
    fsdp1_trainer.py
  vprof events --model vprof:steps.vprof

The first line of models/hfconfig/testdata/fsdp1.jsonl has the requested bytes of the second step, recorded with
transformers 4.48.1, accelerate 1.0.1, peft 0.13.2 and PyTorch 2.15.
"""
import torch
from peft import LoraConfig, get_peft_model
from transformers import MistralConfig, MistralForCausalLM, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, i):
        ids = torch.randint(0, 4000, (1024,))
        return {"input_ids": ids, "labels": ids}


config = MistralConfig(vocab_size=4000, hidden_size=512, intermediate_size=1792, num_hidden_layers=32,
                       num_attention_heads=8, num_key_value_heads=2, sliding_window=None)
model = MistralForCausalLM(config).to(torch.bfloat16)
model.enable_input_require_grads()
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=16, lora_dropout=.1, task_type="CAUSAL_LM",
                                         target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
wrap = {"transformer_layer_cls_to_wrap": ["MistralDecoderLayer"], "backward_prefetch": "backward_pre",
        "use_orig_params": "true", "sync_module_states": "true", "cpu_ram_efficient_loading": "true"}
Trainer(model, TrainingArguments(
    "out", per_device_train_batch_size=2, max_steps=3, report_to=[], save_strategy="no", gradient_checkpointing=True,
    logging_steps=1000, optim="adamw_torch", max_grad_norm=1.0, fsdp="full_shard auto_wrap", fsdp_config=wrap,
), train_dataset=Tokens()).train()
