#!/usr/bin/env python3
"""Records what PyTorch needs, as reference for vprof's estimates.

    python record.py peaks  timm:resnet18 --batch 8,16 --amp none,bf16 --out peaks.jsonl
    python record.py events train.py:make_model --inputs-from train.py:example_batch --batch 4 --out step.txt.gz
    python record.py ops --only relu,linear --out ops.jsonl.bz2

Needs a CUDA GPU and PyTorch. --device cpu is a dry run without a GPU: its output is no
evidence.
"""

import argparse
import bz2
import concurrent.futures
import ctypes
import gzip
import importlib.util
import itertools
import json
import multiprocessing
import os
import re
import sys
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    import torch

    warnings.filterwarnings("ignore", message=".*Profiler clears events.*")
    import history
    import operators
    import training
    import vectors
    from training import capture
except ModuleNotFoundError as e:
    if e.name != "torch":
        raise
    torch = training = vectors = None  # not needed for --help

SCHEMA = "vprof.reference/v1"
SIMULATED = "VPROF_HOOK" in os.environ  # under vprof run, whose GPU is simulated


def gpu_name(opts):
    """Returns the GPU's name in vprof's catalog (vprof gpus): --gpu, or derived from CUDA's device name."""
    if opts.gpu:
        return opts.gpu
    device = torch.device(opts.device)
    if device.type == "cpu":
        return "cpu"
    name = re.sub(r"nvidia|geforce|tesla|graphics|-?(sxm|pcie|hbm)\w*", "", torch.cuda.get_device_name(device).lower())
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")


def header(opts):
    gpu = opts.device != "cpu"
    return {
        "schema": SCHEMA,
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "cudnn": torch.backends.cudnn.version() or 0 if gpu else 0,
        "source": source(gpu),
        "gpu": gpu_name(opts),
        **({"device": torch.cuda.get_device_name(), "driver": driver()} if gpu else {}),
    }


def source(gpu):
    if SIMULATED:
        return "PyTorch on the simulated GPU of vprof run"
    return "PyTorch on a GPU" if gpu else "a dry run on the CPU, which is no evidence"


def driver():
    """Returns the CUDA version that the driver supports, 13020 for 13.2."""
    version = ctypes.c_int()
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    return version.value


class Counters:
    """Counters of the allocator at the end of each phase. On the CPU they are computed from events."""

    def __init__(self, device):
        self.device, self.cuda = device, device.type == "cuda"
        self.step, self.phases = -1, []
        self.living, self.now, self.peak = {}, 0, 0
        self.section = None
        self.watch = None if self.cuda else history.watcher(device)
        self.begin()

    def begin(self):
        if self.cuda:
            torch.cuda.reset_peak_memory_stats(self.device)
            return
        self.section = self.watch.section()
        self.events = self.section.__enter__()

    def mark(self, name):
        if self.cuda:
            c = torch.cuda
            c.synchronize(self.device)
            counters = [f(self.device) for f in (c.memory_allocated, c.max_memory_allocated, c.memory_reserved, c.max_memory_reserved)]
        else:
            counters = self.count()
        self.phases.append([self.step, name, *counters])
        self.begin()

    def count(self):
        self.section.__exit__(None, None, None)
        self.peak = self.now
        for e in self.events:
            if e.kind == "a":
                self.living[e.address] = e.bytes
                self.now += e.bytes
                self.peak = max(self.peak, self.now)
            else:
                self.now -= self.living.pop(e.address, 0)
        return [self.now, self.peak, self.now, self.peak]

    def used(self):
        if not self.cuda:
            return 0
        free, total = torch.cuda.mem_get_info(self.device)
        return total - free


def peaks(opts, batch, amp, checkpointing):
    """Returns one record. It runs in a process of its own, for a new context and allocator."""
    device = torch.device(opts.device)
    record = {"case": opts.case, "stage": "full", "batch": batch, "amp": None if amp == "none" else amp, "checkpointing": checkpointing, "accumulate": opts.accumulate, "optimizer": opts.optimizer, "gpu": gpu_name(opts)}
    conf = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF")
    if conf:
        record["env"] = "PYTORCH_CUDA_ALLOC_CONF=" + conf
    if device.type == "cuda":
        torch.cuda.init()
        torch.cuda.set_device(device)
    counters = Counters(device)
    record["device_used_context"] = counters.used()
    record["status"] = "ok"
    try:
        job = training.Job(opts, batch, amp, checkpointing, counters.mark)
        record.update(params=job.counts(), batch_bytes=job.batch_bytes())
        for counters.step in range(opts.steps):
            job.step()
            counters.mark("step_end")
    except capture.Refusal:
        raise
    except Exception as e:
        oom = isinstance(e, torch.OutOfMemoryError) or "out of memory" in str(e)
        record.update(status="oom" if oom else "error", error=f"{type(e).__name__}: {capture.first_line(e)}")
    return summed_up(record, counters)


def summed_up(record, counters):
    """Returns the record with its peaks and the phases of set-up, first and last step."""
    phases = counters.phases
    last = max((p[0] for p in phases), default=-1)
    top = max(phases, key=lambda p: p[3], default=[-1, "model", 0, 0, 0, 0])
    record.update(
        peak_allocated=top[3],
        peak_reserved=max((p[5] for p in phases), default=0),
        peak_device_used=counters.used(),  # the caching allocator has not freed segments
        steady_peak_allocated=max((p[3] for p in phases if p[0] == last), default=0),
        peak_phase=f"{top[0]}:{top[1]}",
        num_alloc_retries=torch.cuda.memory_stats(counters.device).get("num_alloc_retries", 0) if counters.cuda else 0,
        phases=[p for p in phases if p[0] in (-1, 0, last)],
    )
    return record


def alone(function, *args):
    """Returns the function's result, computed in a process of its own."""
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def opened(path):
    """Returns a text file opened for writing, compressed according to its extension."""
    return {".gz": gzip.open, ".bz2": bz2.open}.get(os.path.splitext(path)[1], open)(path, "wt")


def record_peaks(opts):
    with opened(opts.out) as f:
        f.write(json.dumps(header(opts)) + "\n")
        for amp, checkpointing, batch in itertools.product(opts.amp.split(","), (False, True) if opts.checkpointing == "both" else (opts.checkpointing == "on",), opts.batch):
            try:
                record = alone(peaks, opts, batch, amp, checkpointing)
            except concurrent.futures.process.BrokenProcessPool:
                print(f"batch {batch}, {amp}: the process died; left out", file=sys.stderr)
                continue
            f.write(json.dumps(record) + "\n")
            f.flush()
            print(f"{opts.case} batch {batch} {amp}: {record['status']}, allocated {record['peak_allocated']}, reserved {record['peak_reserved']}", file=sys.stderr)


def record_events(opts):
    device = torch.device(opts.device)
    watch = history.watcher(device)
    events, section = [], watch.section()
    now, step = section.__enter__(), -1

    def mark(name):
        nonlocal section, now
        section.__exit__(None, None, None)
        events.extend(now)
        events.append(f"m {step}:{name}")
        section = watch.section()
        now = section.__enter__()

    job = training.Job(opts, opts.batch[0], opts.amp.split(",")[0], opts.checkpointing == "on", mark)
    for _ in range(opts.steps):
        job.step()
        mark("step_end")
    section.__exit__(None, None, None)
    with opened(opts.out) as f:
        f.writelines(line + "\n" for line in listed(events))


def listed(events):
    """Yields the lines of an event list. Frees of memory allocated before the recording are left out."""
    ids, count = {}, 0
    for e in events:
        if isinstance(e, str):
            yield e
        elif e.kind == "a":
            count += 1
            ids[e.address] = count
            yield f"a {count} {e.bytes} {e.op} {e.native} {e.node} {e.where}"
        elif e.address in ids:
            yield f"f {ids.pop(e.address)}"


def record_ops(opts):
    table = operators.OPERATORS
    if opts.table:
        found = importlib.util.spec_from_file_location("table", opts.table)
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        table = module.OPERATORS
    wanted = set(filter(None, opts.only.split(",")))
    unknown = wanted - {o.name for o in table}
    if unknown:
        raise capture.Refusal(f"--only: the table has no {', '.join(sorted(unknown))}", f"it has {', '.join(o.name for o in table)}")
    device, gpu, count = torch.device(opts.device), gpu_name(opts), 0
    with opened(opts.out) as f:
        for operator, regime in itertools.product(table, opts.regimes.split(",")):
            if wanted and operator.name not in wanted:
                continue
            try:
                f.write(json.dumps(vectors.vector(operator, regime, device, gpu)) + "\n")
                count += 1
            except (RuntimeError, NotImplementedError) as e:
                print(f"{operator.name} {regime}: PyTorch refuses: {capture.first_line(e)}", file=sys.stderr)
    print(f"{count} vectors in {opts.out}", file=sys.stderr)


def batches(text):
    sizes = [int(v) for v in text.split(",")]
    if min(sizes) < 1:
        raise ValueError
    return sizes


def arguments(argv):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = p.add_subparsers(dest="verb", required=True)
    for verb, what in (("peaks", "peaks of training steps, as bench/reference has them"), ("events", "every allocation and free of training steps")):
        v = verbs.add_parser(verb, help=what, description=what)
        v.add_argument("spec", help="as for vprof capture: timm:NAME, torchvision:NAME, hf:config.json, pkg.module:callable, file.py:callable")
        for flag, default in (("inputs-from", ""), ("task", ""), ("attention", "")):
            v.add_argument("--" + flag, default=default)
        v.add_argument("--input", action="append", default=[], metavar="NAME=DTYPE[DIM,...]")
        for flag, default in (("size", 0), ("seq", 256), ("samples", 32000), ("accumulate", 1), ("steps", 3 if verb == "peaks" else 2)):
            v.add_argument("--" + flag, type=int, default=default)
        v.add_argument("--batch", type=batches, default=[8], help="batch sizes" if verb == "peaks" else "batch size")
        v.add_argument("--amp", default="none", help="none, fp16, bf16")
        v.add_argument("--optimizer", default="adamw", choices=training and list(training.OPTIMIZERS))
        v.add_argument("--loss", default="", choices=training and ["", *training.LOSSES])
        v.add_argument("--checkpointing", default="off", choices=["off", "on", "both"] if verb == "peaks" else ["off", "on"])
        v.add_argument("--case", default="", help="what vprof knows the model by (default: the file that vprof capture writes)")
    v = verbs.add_parser("ops", help="single operators", description="what single operators allocate and free")
    v.add_argument("--only", default="", help="names of operators")
    v.add_argument("--regimes", default=vectors and ",".join(vectors.REGIMES))
    v.add_argument("--table", default="", help="a file like operators.py with your own")
    for v in verbs.choices.values():
        v.add_argument("--device", default="cuda:0", help="cuda:N, or cpu for a dry run")
        v.add_argument("--gpu", default="", help="the GPU name in vprof's catalog (vprof gpus)")
        v.add_argument("--out", required=True, help="file to write, .gz to compress")
    opts = p.parse_args(argv)
    if torch is None:
        p.error(f"{sys.executable} has no PyTorch; use an interpreter that has (pip install torch)")
    if opts.verb != "ops":
        for amp in opts.amp.split(","):
            if amp not in training.AMP:
                p.error(f"--amp: {amp!r} is none of {', '.join(training.AMP)}")
        opts.case = opts.case or re.split(r"[:/@]", opts.spec.partition("@")[0].removesuffix("/config.json").removesuffix(".json"))[-1] + ".pt2"
    elif set(opts.regimes.split(",")) - set(vectors.REGIMES):
        p.error(f"--regimes: choose from {', '.join(vectors.REGIMES)}")
    if opts.device != "cpu" and not torch.cuda.is_available():
        p.error("there is no CUDA GPU that PyTorch can use; --device cpu is a dry run without one")
    if SIMULATED and os.environ.get("VPROF_STEPS", "0") != "0":
        p.error("vprof run ends each training after some steps, and its record with it: vprof run --steps all -- python record.py ...")
    return opts


def main(argv):
    opts = arguments(argv)
    try:
        {"peaks": record_peaks, "events": record_events, "ops": record_ops}[opts.verb](opts)
    except capture.Refusal as e:
        print(f"record: {e}" + (f"\n  {e.do}" if e.do else ""), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
