"""An image classifier by timm: mixup, label smoothing, a moving average of the weights, channels last, mixed precision."""
import argparse
import time

import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import AverageMeter, ModelEmaV3, NativeScaler, accuracy

parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", default=32, type=int)
parser.add_argument("--model", default="convnext_atto")
parser.add_argument("--epochs", default=2, type=int)
parser.add_argument("--clip-grad", default=1.0, type=float)


def loader(batch, n, train):
    for i in range(n):
        g = torch.Generator().manual_seed(i + 1000 * train)
        yield torch.randn(batch, 3, 224, 224, generator=g), torch.randint(0, 200, (batch,), generator=g)


def validate(model, batch, device):
    losses, top1 = AverageMeter(), AverageMeter()
    model.eval()
    with torch.inference_mode():
        for x, y in loader(batch, 2, False):
            x, y = x.to(device, memory_format=torch.channels_last), y.to(device)
            with torch.autocast("cuda"):
                out = model(x)
                loss = torch.nn.functional.cross_entropy(out, y)
            acc1, _ = accuracy(out, y, topk=(1, 5))
            losses.update(loss.item(), x.size(0))
            top1.update(acc1.item(), x.size(0))
    return top1.avg


def main():
    args = parser.parse_args()
    device = torch.device("cuda")
    torch.backends.cudnn.benchmark = True
    model = timm.create_model(args.model, num_classes=200, drop_path_rate=0.1).to(device, memory_format=torch.channels_last)
    ema = ModelEmaV3(model, decay=0.999)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    scheduler = CosineLRScheduler(optimizer, t_initial=args.epochs, warmup_t=1)
    scaler = NativeScaler()
    mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=200)
    criterion = SoftTargetCrossEntropy()
    for epoch in range(args.epochs):
        model.train()
        losses, began = AverageMeter(), time.time()
        for i, (x, y) in enumerate(loader(args.batch_size, 6, True)):
            x, y = x.to(device, memory_format=torch.channels_last), y.to(device)
            x, y = mixup(x, y)
            with torch.autocast("cuda"):
                loss = criterion(model(x), y)
            optimizer.zero_grad()
            scaler(loss, optimizer, clip_grad=args.clip_grad, parameters=model.parameters())
            torch.cuda.synchronize()
            ema.update(model, step=epoch * 6 + i)
            losses.update(loss.item(), x.size(0))
        scheduler.step(epoch + 1)
        top1 = validate(ema.module, args.batch_size, device)
        print(f"epoch {epoch}: loss {losses.avg:.3f}, top-1 {top1:.2f}, {time.time() - began:.1f} s")
        torch.save({"model": model.state_dict(), "ema": ema.module.state_dict(), "optimizer": optimizer.state_dict()}, f"checkpoint-{epoch}.pth.tar")


if __name__ == "__main__":
    main()
