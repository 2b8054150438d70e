#!/usr/bin/env python3
"""Compares vprof's estimates with measurements on real GPUs that others have published: docs/lab/evidence.md.

    python tools/evidence/evidence.py --vprof ./vprof --folder /tmp/models --models resnet18,vit_small_patch16_224

Captures each model with "vprof capture" if the folder lacks its .pt2 file, plans the published batch sizes, and writes
the tables. --models selects timm's models by name; --sample 150 selects that many models with peaks, at random. The
default is all published models. --made selects only models whose files exist.
"""

import argparse
import csv
import gzip
import json
import os
import random
import statistics
import subprocess
import sys

import shared

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 2**20


def lines(name):
    with gzip.open(os.path.join(HERE, name), "rt") as f:
        return [json.loads(line) for line in f]


def published():
    """Returns (peaks, brackets) of timm's models, each a list of rows by model. A bracket has the largest batch that
    fitted and the smallest that ran out of memory.
    """
    peaks, brackets = {}, {}
    for row in lines("published.jsonl.gz"):
        (peaks if "bytes" in row else brackets).setdefault(row["model"], []).append(row)
    return peaks, brackets


def others():
    """Returns the peaks of torchvision's models, by (source, model, image size, optimizer, GPU)."""
    groups = {}
    for row in lines("others.jsonl.gz"):
        groups.setdefault((row["source"], row["model"], row["image"], row["optimizer"], row["gpu"]), []).append(row)
    return groups


def captured(opts, spec, size=0, fused=True):
    """Returns the path of a model's .pt2 file for an image size (0: the model's own). It is captured if missing.
    Returns None if that fails. fused=False computes attention step by step, as before PyTorch 2.0.
    """
    path = os.path.join(opts.folder, spec.removeprefix("timm:").replace(":", "-") + (f"@{size}" if size else "") + ".pt2")
    if not os.path.exists(path):
        if opts.made:
            return None
        command = [opts.vprof, "capture", spec, "-o", path, "--size", str(size), *(["--python", opts.python] if opts.python else [])]
        made = subprocess.run(command, env={**os.environ, "TIMM_FUSED_ATTN": "1" if fused else "0"}, capture_output=True, text=True)
        if made.returncode:
            print(f"{spec}: not captured: {made.stderr.strip().splitlines()[:1]}", file=sys.stderr)
            return None
    return path


def plan(opts, path, gpu, batches, *flags):
    """Returns estimates by batch size; None if vprof cannot plan the model."""
    command = [opts.vprof, "plan", "--model", path, "--gpu", gpu, "--batch", ",".join(map(str, sorted(set(batches)))), "--format", "json", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"{path}: not planned: {done.stderr.strip().splitlines()[:1]}", file=sys.stderr)
        return None
    return {p["batch"]: p["estimate"] for p in json.loads(done.stdout)["points"]}


def compare_peaks(opts, peaks, models):
    """Returns (model, batch, measured, reserved, device) in bytes for each published peak that is not an out-of-memory.
    """
    rows = []
    for model in models:
        wanted = [r for r in peaks.get(model, []) if not r["oom"]]
        path = captured(opts, "timm:" + model) if wanted else None
        found = plan(opts, path, "a100-40", [r["batch"] for r in wanted], "--optimizer", "sgd-momentum-wd") if path else None
        for r in wanted if found else []:
            e = found[r["batch"]]
            rows.append((model, r["batch"], r["bytes"], e["reserved"]["bytes"], e["device"]["bytes"]))
    return rows


def compare_others(opts, groups):
    """Returns two dicts by source: rows like compare_peaks, named by model and GPU; and (name, batch, vprof's verdict)
    for each out-of-memory.
    """
    peaks, ooms = {}, {}
    for (source, model, image, optimizer, gpu), wanted in groups.items():
        path = captured(opts, model, image)
        found = plan(opts, path, gpu, [r["batch"] for r in wanted], "--optimizer", optimizer) if path else {}
        for r in wanted if found else []:
            e, name = found[r["batch"]], f"{model.split(':')[1]}, {gpu}"
            if r["oom"]:
                ooms.setdefault(source, []).append((name, r["batch"], e["verdict"]))
            else:
                peaks.setdefault(source, []).append((name, r["batch"], r["bytes"], e["reserved"]["bytes"], e["device"]["bytes"]))
    return peaks, ooms


def compare_brackets(opts, brackets, models):
    """Returns (model, precision, batch that fits, batch that does not, vprof's verdicts on both) for each bracket of
    contiguous tensors.
    """
    rows = []
    for model in models:
        for r in brackets.get(model, []):
            path = captured(opts, "timm:" + model, r["image"], fused=False) if r["layout"] == "nchw" else None
            if not path:
                continue
            batches = [b for b in (r["fits"], r["oom"]) if b]
            found = plan(opts, path, "rtx-3090", batches, "--optimizer", "sgd-momentum", "--amp", "fp16" if r["precision"] == "amp" else "none")
            if found:
                rows.append((f"{model} ({r['image']})", r["precision"], r["fits"], r["oom"], *(found[b]["verdict"] if b else None for b in (r["fits"], r["oom"]))))
    return rows


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def rising(rows):
    """Returns the rows whose measured bytes increase with the batch. A row is left out if a smaller batch has more
    bytes or a larger one fewer: it is not the peak of a training step.
    """

    def ordered(row):
        return all((o[1] - row[1]) * (o[2] - row[2]) > 0 for o in rows if o[0] == row[0] and o[1] != row[1])

    return [row for row in rows if ordered(row)]


def context_of(rows):
    """Returns the CUDA context in bytes that fits the rows best."""
    return int(statistics.median(measured - reserved for _, _, measured, reserved, _ in rows))


def errors(rows, context=None):
    """Returns relative errors of the estimated device bytes; with a context, of the reserved bytes plus this context.
    """
    return [(device if context is None else reserved + context) / measured - 1 for _, _, measured, reserved, device in rows]


def summary(name, values):
    absolute = [abs(v) for v in values]
    return f"| {name} | {len(values)} | {statistics.median(absolute):.1%} | {quantile(absolute, 0.95):.1%} | {max(absolute):.1%} | {statistics.median(values):+.1%} |"


def increments(rows):
    """Returns relative errors of the difference between a model's smallest and largest batch, which contains no
    context. Models whose published values do not grow are left out.
    """
    by = {}
    for row in sorted(rows, key=lambda r: r[1]):
        by.setdefault(row[0], []).append(row)
    ends = [(own[0], own[-1]) for own in by.values() if own[-1][2] > own[0][2]]
    return [(last[3] - first[3]) / (last[2] - first[2]) - 1 for first, last in ends]


def section(rows):
    """Returns a Markdown table of the rows' errors. rows.csv lists them."""
    context, grown = context_of(rows), increments(rows)
    if len(rows) < 10:
        off = statistics.median(map(abs, errors(rows))), statistics.median(map(abs, errors(rows, context)))
        return [f"Median error: device bytes, estimated {off[0]:.1%}; reserved bytes and one context for all {off[1]:.1%}."]
    out = [
        "| against `nvidia-smi` | peaks | error: median | p95 | max | signed median |",
        "|:--- | ---:| ---:| ---:| ---:| ---:|",
        summary("device bytes, estimated", errors(rows)),
        summary("reserved bytes and one context for all", errors(rows, context)),
        *([summary("the same, of figures that rise with the batch", errors(rising(rows), context))] if len(rising(rows)) < len(rows) else []),
        *([summary("growth from the smallest batch to the largest", grown)] if grown else []),
    ]
    return out


def rows_of(source, rows):
    """Returns the rows of a source for rows.csv: source, model, batch, measured MiB, and estimated reserved MiB plus
    one context for all.
    """
    context = context_of(rows)
    return [(source, model, batch, measured // MIB, (reserved + context) // MIB) for model, batch, measured, reserved, _ in rows]


def keep(folder, name, head, rows):
    with open(os.path.join(folder, name), "w", newline="", encoding="utf-8") as f:
        out = csv.writer(f, lineterminator="\n")
        out.writerow(head.split())
        out.writerows(rows)


def verdicts(rows, column, right, what):
    """Returns a sentence with the number of rows that have the right verdict, and the numbers of other verdicts."""
    counts = {v: sum(r[column] == v for r in rows) for v in ("fits", "fits slowly", "tight", "does not fit")}
    said = [right] + [v for v in counts if v != right and counts[v]]
    return f"Of {len(rows)} batch sizes that {what}, vprof says " + ", ".join(f'"{v}" of {counts[v]}' for v in said) + "."


def fitting(brackets):
    """Returns the section about verdicts on brackets. brackets.csv lists them."""
    fits = [r for r in brackets if r[4]]
    fails = [r for r in brackets if r[5]]
    out = ["", "## What fits on an RTX 3090", "", f"{verdicts(fits, 4, 'fits', 'fitted')} {verdicts(fails, 5, 'does not fit', 'ran out of memory')}"]
    return out


def write(opts, peaks, brackets, more=({}, {})):
    brackets = sorted(set(brackets), key=str)  # several releases gave the same bracket
    by_source = {"itu-rad/GPUMemNet": peaks, **more[0]}
    keep(opts.rows, "rows.csv", "source model batch measured_mib reserved_and_context_mib", [row for source, rows in by_source.items() for row in rows_of(source, rows)])
    keep(opts.rows, "brackets.csv", "model precision fitted verdict out_of_memory verdict", [(m, p, fit, a, oom, b) for m, p, fit, oom, a, b in brackets])
    with open(os.path.join(HERE, "preface.md")) as f:
        preface = f.read()
    text = [preface.rstrip(), "", "## Peaks of an A100", ""]
    text += [f"{len(peaks)} peaks of {len({r[0] for r in peaks})} models. The context that fits them best is {context_of(peaks) // MIB} MiB.", "", *section(peaks)]
    for source, rows in more[0].items():
        text += ["", f"## Peaks by {source}", "", f"{len(rows)} peaks; the context that fits them best is {context_of(rows) // MIB} MiB.", "", *section(rows)]
        if ooms := more[1].get(source):
            right = sum(verdict == "does not fit" for *_, verdict in ooms)
            text += ["", f"Of {len(ooms)} runs that ended out of memory, vprof says of {right} that they do not fit: " + "; ".join(f"{name}, batch {batch}" for name, batch, _ in ooms) + "."]
    if brackets:
        text += fitting(brackets)
    text += shared.section(opts.vprof, os.path.join(HERE, "shared"))
    with open(opts.out, "w") as f:
        f.write("\n".join(text) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--vprof", default="./vprof")
    p.add_argument("--python", default="", help="Python with torch, timm and torchvision, for capture")
    p.add_argument("--folder", required=True, help="where the .pt2 files are, or are made")
    p.add_argument("--models", default="", help="names, with commas between")
    p.add_argument("--sample", type=int, default=0, metavar="N", help="N models that have peaks, always the same")
    p.add_argument("--made", action="store_true", help="take the models alone whose files are in the folder")
    p.add_argument("--out", default=os.path.join(HERE, "..", "..", "docs", "lab", "evidence.md"))
    p.add_argument("--rows", default=HERE, help="the folder of rows.csv and brackets.csv")
    opts = p.parse_args()
    peaks, brackets = published()
    models = opts.models.split(",") if opts.models else sorted({*peaks, *brackets})
    if opts.sample:
        models = sorted(peaks)
        random.Random(1).shuffle(models)
        models = models[: opts.sample]
    os.makedirs(opts.folder, exist_ok=True)
    measured = compare_peaks(opts, peaks, models)
    if not measured:
        sys.exit("no published peak could be asked for")
    write(opts, measured, compare_brackets(opts, brackets, models), compare_others(opts, others()))


if __name__ == "__main__":
    main()
