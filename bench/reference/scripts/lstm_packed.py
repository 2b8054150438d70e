"""A tagger with a bidirectional LSTM over packed sequences, teacher forcing off, early stopping on the validation loss."""
import argparse
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader


class Tagger(nn.Module):
    def __init__(self, words=20000, tags=17, dim=256, hidden=512):
        super().__init__()
        self.embedding = nn.Embedding(words, dim, padding_idx=0)
        self.lstm = nn.LSTM(dim, hidden, num_layers=2, bidirectional=True, dropout=0.3, batch_first=True)
        self.out = nn.Linear(2 * hidden, tags)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(self.embedding(words), lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = self.lstm(packed)
        hidden, _ = pad_packed_sequence(hidden, batch_first=True)
        return self.out(hidden)


def rows(n, seed):
    r = random.Random(seed)
    return [([r.randrange(1, 20000) for _ in range(k)], [r.randrange(17) for _ in range(k)]) for k in (r.randint(5, 120) for _ in range(n))]


def collate(batch):
    words = [torch.tensor(w) for w, _ in batch]
    tags = [torch.tensor(t) for _, t in batch]
    return pad_sequence(words, batch_first=True), pad_sequence(tags, batch_first=True, padding_value=-100), torch.tensor([len(w) for w in words])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train = DataLoader(rows(512, 1), args.batch, shuffle=True, collate_fn=collate)
    valid = DataLoader(rows(128, 2), args.batch, collate_fn=collate)
    model = Tagger().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_of = nn.CrossEntropyLoss(ignore_index=-100)
    best, bad = float("inf"), 0
    for epoch in range(10):
        model.train()
        for words, tags, lengths in train:
            words, tags = words.to(device), tags.to(device)
            optimizer.zero_grad()
            logits = model(words, lengths)
            loss = loss_of(logits.reshape(-1, logits.size(-1)), tags.reshape(-1))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
        model.eval()
        total = correct = seen = 0
        with torch.no_grad():
            for words, tags, lengths in valid:
                logits = model(words.to(device), lengths)
                tags = tags.to(device)
                mask = tags != -100
                total += loss_of(logits.transpose(1, 2), tags).item()
                correct += (logits.argmax(-1)[mask] == tags[mask]).sum().item()
                seen += mask.sum().item()
        print(f"epoch {epoch} valid {total / len(valid):.4f} accuracy {correct / seen:.3f}")
        if total < best:
            best, bad = total, 0
            torch.save(model.state_dict(), "best.pt")
        else:
            bad += 1
            if bad >= 2:
                break
    model.load_state_dict(torch.load("best.pt", map_location=device))


if __name__ == "__main__":
    main()
