"""A detector like DETR: a ResNet, a transformer, and Hungarian matching on the CPU by scipy."""
import argparse

import torch
import torchvision
from scipy.optimize import linear_sum_assignment
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision.ops import box_convert, generalized_box_iou


class Shapes(Dataset):
    def __init__(self, n=64):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        count = int(torch.randint(1, 9, (1,), generator=g))
        boxes = torch.rand(count, 4, generator=g) * 0.4 + 0.3
        return torch.rand(3, 320, 320, generator=g), {"boxes": boxes, "labels": torch.randint(0, 20, (count,), generator=g)}


def collate(rows):
    return torch.stack([r[0] for r in rows]), [r[1] for r in rows]


class DETR(nn.Module):
    def __init__(self, classes=20, dim=256, queries=50):
        super().__init__()
        resnet = torchvision.models.resnet50(weights=None, norm_layer=torchvision.ops.FrozenBatchNorm2d)
        self.backbone = nn.Sequential(*list(resnet.children())[:-2])
        self.project = nn.Conv2d(2048, dim, 1)
        self.transformer = nn.Transformer(dim, 8, 3, 3, batch_first=True)
        self.queries = nn.Parameter(torch.rand(queries, dim))
        self.rows, self.columns = nn.Parameter(torch.rand(50, dim // 2)), nn.Parameter(torch.rand(50, dim // 2))
        self.classes, self.boxes = nn.Linear(dim, classes + 1), nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 4))

    def forward(self, x):
        h = self.project(self.backbone(x))
        rows, columns = h.shape[-2:]
        pos = torch.cat([self.columns[:columns].unsqueeze(0).repeat(rows, 1, 1), self.rows[:rows].unsqueeze(1).repeat(1, columns, 1)], -1)
        h = self.transformer(pos.flatten(0, 1) + h.flatten(2).transpose(1, 2), self.queries.expand(len(x), -1, -1))
        return self.classes(h), self.boxes(h).sigmoid()


@torch.no_grad()
def match(logits, boxes, targets):
    batch, queries = logits.shape[:2]
    prob, flat = logits.flatten(0, 1).softmax(-1), boxes.flatten(0, 1)
    labels, wanted = torch.cat([t["labels"] for t in targets]), torch.cat([t["boxes"] for t in targets])
    cost = 5 * torch.cdist(flat, wanted, p=1) - prob[:, labels]
    cost = cost - 2 * generalized_box_iou(box_convert(flat, "cxcywh", "xyxy"), box_convert(wanted, "cxcywh", "xyxy"))
    cost = cost.view(batch, queries, -1).cpu()
    sizes = [len(t["boxes"]) for t in targets]
    pairs = [linear_sum_assignment(c[i]) for i, c in enumerate(cost.split(sizes, -1))]
    return [(torch.as_tensor(i, dtype=torch.int64), torch.as_tensor(j, dtype=torch.int64)) for i, j in pairs]


def criterion(logits, boxes, targets):
    pairs = match(logits, boxes, targets)
    batch = torch.cat([torch.full_like(i, b) for b, (i, _) in enumerate(pairs)])
    source = torch.cat([i for i, _ in pairs])
    classes = torch.full(logits.shape[:2], 20, dtype=torch.int64, device=logits.device)
    classes[batch, source] = torch.cat([t["labels"][j] for t, (_, j) in zip(targets, pairs)])
    weight = torch.ones(21, device=logits.device)
    weight[-1] = 0.1
    loss = F.cross_entropy(logits.transpose(1, 2), classes, weight)
    wanted = torch.cat([t["boxes"][j] for t, (_, j) in zip(targets, pairs)])
    found = boxes[batch, source]
    iou = torch.diag(generalized_box_iou(box_convert(found, "cxcywh", "xyxy"), box_convert(wanted, "cxcywh", "xyxy")))
    return loss + 5 * F.l1_loss(found, wanted, reduction="sum") / len(wanted) + 2 * (1 - iou).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    model = DETR().cuda()
    backbone = [p for n, p in model.named_parameters() if n.startswith("backbone")]
    rest = [p for n, p in model.named_parameters() if not n.startswith("backbone")]
    optimizer = torch.optim.AdamW([{"params": rest}, {"params": backbone, "lr": 1e-5}], lr=1e-4, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    loader = DataLoader(Shapes(), args.batch, shuffle=True, collate_fn=collate, num_workers=args.workers, pin_memory=True)
    for epoch in range(2):
        for images, targets in loader:
            images = images.cuda(non_blocking=True)
            targets = [{k: v.cuda() for k, v in t.items()} for t in targets]
            loss = criterion(*model(images), targets)
            if not torch.isfinite(loss):
                raise SystemExit(f"loss is {loss.item()}")
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        scheduler.step()


if __name__ == "__main__":
    main()
