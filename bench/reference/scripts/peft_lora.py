"""LoRA on a small Llama by peft and the Trainer of transformers, with checkpointing, evaluation and checkpoints."""
import argparse

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed


class Tokens(Dataset):
    def __init__(self, n, length):
        self.n, self.length = n, length

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        ids = torch.randint(0, 32000, (self.length,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.ones_like(ids)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--output", default="lora-out")
    args = parser.parse_args()
    set_seed(42)
    config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.enable_input_require_grads()
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM"))
    model.print_trainable_parameters()
    training = TrainingArguments(
        output_dir=args.output, per_device_train_batch_size=args.batch, per_device_eval_batch_size=args.batch, gradient_accumulation_steps=2,
        max_steps=20, bf16=True, gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False}, logging_steps=1,
        eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2, save_total_limit=1, load_best_model_at_end=True,
        optim="adamw_torch", lr_scheduler_type="cosine", warmup_steps=2, report_to="none", dataloader_num_workers=2,
    )
    trainer = Trainer(model=model, args=training, train_dataset=Tokens(64, 512), eval_dataset=Tokens(8, 512))
    trainer.train()
    trainer.save_model(args.output)


if __name__ == "__main__":
    main()
