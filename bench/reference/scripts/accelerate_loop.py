"""A loop with accelerate: gradient accumulation, a schedule, evaluation with gathered metrics, saved states."""
import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModelForSequenceClassification, RobertaConfig, get_linear_schedule_with_warmup


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--mixed_precision", default="bf16")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    set_seed(0)
    accelerator = Accelerator(mixed_precision=args.mixed_precision, gradient_accumulation_steps=2)
    config = RobertaConfig(num_hidden_layers=4, hidden_size=512, num_attention_heads=8, intermediate_size=2048, num_labels=3, max_position_embeddings=260)
    model = AutoModelForSequenceClassification.from_config(config)

    def data(n):
        return TensorDataset(torch.randint(5, 50000, (n, 256)), torch.ones(n, 256, dtype=torch.long), torch.randint(0, 3, (n,)))

    train = DataLoader(data(96), args.batch, shuffle=True, drop_last=True)
    test = DataLoader(data(20), args.batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)
    schedule = get_linear_schedule_with_warmup(optimizer, 2, 12 * args.epochs)
    model, optimizer, train, test, schedule = accelerator.prepare(model, optimizer, train, test, schedule)
    for epoch in range(args.epochs):
        model.train()
        for ids, mask, labels in train:
            with accelerator.accumulate(model):
                loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        model.eval()
        right = total = 0
        for ids, mask, labels in test:
            with torch.no_grad():
                logits = model(input_ids=ids, attention_mask=mask).logits
            predictions, references = accelerator.gather_for_metrics((logits.argmax(-1), labels))
            right += (predictions == references).sum().item()
            total += references.numel()
        accelerator.print(f"epoch {epoch}: {right}/{total}")
        accelerator.save_state(f"state-{epoch}")
    accelerator.wait_for_everyone()
    accelerator.unwrap_model(model).save_pretrained("final", save_function=accelerator.save)


if __name__ == "__main__":
    main()
