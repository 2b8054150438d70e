"""A translator under Lightning: mixed precision, accumulation, clipping, callbacks, a checkpoint, a test after the fit."""
import argparse

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional as F
from torchmetrics.classification import MulticlassAccuracy


class Translator(L.LightningModule):
    def __init__(self, vocab=8000, dim=512):
        super().__init__()
        self.save_hyperparameters()
        self.source, self.target = nn.Embedding(vocab, dim), nn.Embedding(vocab, dim)
        self.transformer = nn.Transformer(dim, 8, 3, 3, 2048, batch_first=True)
        self.out = nn.Linear(dim, vocab)
        self.accuracy = MulticlassAccuracy(vocab, average="micro")

    def forward(self, source, target):
        mask = self.transformer.generate_square_subsequent_mask(target.size(1), device=self.device)
        return self.out(self.transformer(self.source(source), self.target(target), tgt_mask=mask, tgt_is_causal=True))

    def shared(self, batch, name):
        source, target = batch
        logits = self(source, target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), label_smoothing=0.1)
        self.log(f"{name}_loss", loss, prog_bar=True)
        if name != "train":
            self.accuracy(logits.flatten(0, 1), target[:, 1:].flatten())
            self.log(f"{name}_accuracy", self.accuracy)
        return loss

    def training_step(self, batch, _):
        return self.shared(batch, "train")

    def validation_step(self, batch, _):
        self.shared(batch, "val")

    def test_step(self, batch, _):
        self.shared(batch, "test")

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=5e-4)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-4, total_steps=self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Pairs(L.LightningDataModule):
    def __init__(self, batch):
        super().__init__()
        self.batch = batch

    def loader(self, n):
        data = torch.utils.data.TensorDataset(torch.randint(0, 8000, (n, 64)), torch.randint(0, 8000, (n, 48)))
        return torch.utils.data.DataLoader(data, self.batch, num_workers=1, persistent_workers=True)

    def train_dataloader(self):
        return self.loader(20 * self.batch)

    def val_dataloader(self):
        return self.loader(2 * self.batch)

    test_dataloader = val_dataloader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()
    L.seed_everything(1)
    trainer = L.Trainer(
        accelerator="gpu", devices=1, precision="16-mixed", max_epochs=2, accumulate_grad_batches=4, gradient_clip_val=1.0, log_every_n_steps=1,
        logger=CSVLogger("logs"), callbacks=[ModelCheckpoint(monitor="val_loss"), EarlyStopping("val_loss"), LearningRateMonitor()],
        enable_progress_bar=False,
    )
    data = Pairs(args.batch)
    trainer.fit(Translator(), data)
    trainer.test(datamodule=data, ckpt_path="best", weights_only=False)


if __name__ == "__main__":
    main()
