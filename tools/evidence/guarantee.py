"""Counts how often a training step needs more than the upper end of its estimate, as xMem judges estimators.

    python tools/evidence/guarantee.py --vprof ./vprof --cases 150 --out guarantee.jsonl

Each case is a model with a batch, a precision and an optimizer, drawn by a seed. vprof plans it from its captured file.
Then PyTorch trains it under `vprof run`, and its allocator may reserve what the upper end says and no more
(torch.cuda.set_per_process_memory_fraction). A step that runs out of memory is a failure. What is above the need of the
run without a limit is given away. Needs a PYTHON with PyTorch for CUDA, timm and transformers, and a build of vprof.
"""

import argparse
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
GPU = "a100-80"
STEPS = 5  # reserved bytes still grow in the third

MODELS = (
    "resnet18 resnet50 resnext50_32x4d densenet121 ghostnet_100 mobilenetv2_100 mobilenetv3_large_100 mnasnet_100 "
    "tf_efficientnet_b0 regnety_008 rexnet_100 repvgg_b0 hrnet_w18_small nfnet_l0 poolformer_s12 edgenext_small "
    "mobilevitv2_100 beit_base_patch16_224 mixer_b16_224 xcit_tiny_12_p16_224 crossvit_small_240 nest_tiny "
    "swinv2_tiny_window8_256 cait_xxs24_224 vgg13 "
).split()
OPTIMIZERS = ["adamw", "adamw-fused", "sgd", "sgd-momentum", "rmsprop"]


def drawn(count):
    """Returns the cases, models in turn."""
    dice = random.Random(20261129)
    return [
        {"spec": "timm:" + MODELS[i % len(MODELS)], "batch": dice.choice([2, 4, 8, 16, 32]), "amp": dice.choice(["none", "fp16", "bf16"]), "optimizer": dice.choice(OPTIMIZERS)}
        for i in range(count)
    ]


def captured(vprof, spec, folder):
    """Returns the file of a model, made where it is not there yet."""
    path = os.path.join(folder, spec.partition(":")[2] + ".pt2")
    if not os.path.exists(path):
        subprocess.run([vprof, "capture", spec, "-o", path, "--python", sys.executable], check=True, capture_output=True)
    return path


def planned(vprof, case, folder):
    """Returns the interval of reserved bytes."""
    flags = ["--batch", str(case["batch"]), "--amp", case["amp"], "--optimizer", case["optimizer"], "--gpu", GPU, "--format", "json"]
    done = subprocess.run([vprof, "plan", "--model", captured(vprof, case["spec"], folder), *flags], capture_output=True, text=True)
    return json.loads(done.stdout)["points"][0]["estimate"]["reserved"]


def train(case, limit):
    """Trains a case of which the allocator may reserve at most limit bytes, all if None, and returns the peak; None if memory ran out."""
    import torch
    import training

    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(1.0 if limit is None else min(1.0, (limit + 1) / total))
    options = argparse.Namespace(
        spec=case["spec"], device="cuda:0", accumulate=1, loss="", optimizer=case["optimizer"], task="", attention="", input=[], size=0, seq=256, samples=32000, inputs_from=""
    )
    try:
        job = training.Job(options, case["batch"], case["amp"], False, lambda _phase: None)
        for _ in range(STEPS):
            job.step()
    except torch.OutOfMemoryError:
        return None
    return torch.cuda.max_memory_reserved()


def work(path):
    """Trains the planned cases of a file, without a limit and with it, and prints a line of JSON for each."""
    sys.path.insert(0, os.path.join(HERE, "..", "record"))
    with open(path) as f:
        cases = json.load(f)
    for case in cases:
        print("GUARANTEE " + json.dumps({**case, "need": train(case, None), "capped": train(case, case["reserved"]["high_bytes"])}), flush=True)


def told(rows):
    """Returns the summary that docs/trust.md has."""
    failed = [r for r in rows if r["capped"] is None]
    away = [r["reserved"]["high_bytes"] / r["need"] - 1 for r in rows if r["need"]]
    inside = sum(r["reserved"]["low_bytes"] <= r["need"] <= r["reserved"]["high_bytes"] for r in rows if r["need"])
    lines = [f"{len(rows)} cases: {len(failed)} ran out of memory under the upper end; {inside} needs inside; median given away {statistics.median(away):.1%}"]
    return lines + [f"  failed: {r['spec']} batch {r['batch']} {r['amp']} {r['optimizer']}: {r['need']} of {r['reserved']['high_bytes']}" for r in failed]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--vprof", default="./vprof")
    p.add_argument("--cases", type=int, default=150)
    p.add_argument("--out", help="file of results, a line of JSON each")
    p.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "vprof-guarantee"), help="captured models")
    p.add_argument("--worker", help=argparse.SUPPRESS)
    options = p.parse_args()
    if options.worker:
        return work(options.worker)
    os.makedirs(options.folder, exist_ok=True)
    cases = [{**c, "reserved": planned(options.vprof, c, options.folder)} for c in drawn(options.cases)]
    planned_cases = os.path.join(options.folder, "cases.json")
    with open(planned_cases, "w") as f:
        json.dump(cases, f)
    command = [options.vprof, "run", "--gpu", GPU, "--steps", "all", "--", sys.executable, os.path.abspath(__file__), "--worker", planned_cases]
    done = subprocess.run(command, capture_output=True, text=True)
    rows = [json.loads(line.partition(" ")[2]) for line in (done.stdout + done.stderr).splitlines() if line.startswith("GUARANTEE ")]
    if options.out:
        with open(options.out, "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in rows)
    if len(rows) < len(cases):
        sys.exit(f"{len(rows)} of {len(cases)} cases ran; {done.stderr[-2000:]}")
    print("\n".join(told(rows)))


if __name__ == "__main__":
    main()
