"""Measures host memory of PyTorch processes: python hostmemory.py

Prints a JSON line for each stage, in MiB: resident memory (anonymous, file-backed, shared), and the process's private
memory. Results are in docs/lab/host.md; coefficients in profiler/planner/host.
"""

import json
import multiprocessing
import time


def memory(pid="self"):
    found = {}
    for file in (f"/proc/{pid}/status", f"/proc/{pid}/smaps_rollup"):
        with open(file) as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key in ("VmRSS", "VmHWM", "RssAnon", "RssFile", "RssShmem", "Pss", "Private_Dirty"):
                    found[key] = int(value.split()[0]) // 1024
    return found


def say(stage, pid="self"):
    print(json.dumps({"stage": stage, **memory(pid)}), flush=True)


class Samples:
    """A data set of Python objects."""

    def __init__(self):
        self.items = [{"text": "x" * 20, "label": i} for i in range(200_000)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        import torch

        return torch.zeros(3, 224, 224) + self.items[i]["label"]


def main():
    say("python")
    import torch

    say("torch")
    from transformers import Trainer  # noqa: F401

    say("transformers")
    if torch.cuda.is_available():
        x = torch.randn(256, 256, device="cuda")
        (x @ x).sum().item()
        say("context and a product")
    for how in ("fork", "forkserver"):
        loader = torch.utils.data.DataLoader(
            Samples(), batch_size=32, num_workers=2, shuffle=True, multiprocessing_context=how
        )
        batches = iter(loader)
        for _ in range(6):
            next(batches)
        time.sleep(2)
        for child in multiprocessing.active_children():
            say(f"worker by {how}", child.pid)
        del batches


if __name__ == "__main__":
    main()
