"""Writes docs/lab/models.md: the errors of vprof's estimates for models of other libraries, model by model.

    vprof accuracy records.jsonl --models captured --format json > accuracy.json
    python tools/evidence/models.py accuracy.json... --lists bench/reference/microscope/testdata/exported.golden > docs/lab/models.md

The records are peaks measured with PyTorch (tools/record). The models' files come from `vprof capture` or torch.export.
"""

import argparse
import collections
import json
import os
import re

PREFACE = """# Models of other libraries

For maintainers. {records} recorded steps of {models} models that nobody described to vprof, planned from their .pt2 files: PyTorch {torch}
on a simulated driver, GPUs {gpus}. Errors are relative, of the largest peak of a run. Out of memory is right if vprof reports it of
the same run. Where the repository has event lists, they are compared allocation by allocation, in order and size
(`bench/reference/microscope`). `tools/evidence/models.py` writes this page; single operators are in [conformance.md](conformance.md).

The files of ten of the models with lists were written by `vprof capture`, the others are plain exports. Captured again by the
script of this release, twenty models with lists match in 99.7% of the allocations in the median, 96.6% at least
(timm-efficientnet_b0). The lowest differ in workspaces of convolutions.

"""

HEAD = """| model | records | allocated: median | max | reserved: median | max | out of memory right | event list |
|:--- | ---:| ---:| ---:| ---:| ---:| ---:| ---:|
"""


def name(case):
    """Returns the model's name from the path of its file."""
    return re.sub(r"\.pt2$", "", os.path.basename(case))


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def lists(path):
    """Returns, by model, the lowest percentage of equal allocations in its event lists."""
    shares = {}
    for line in open(path):
        found = re.match(r"(.+)-b\d+-(?:none|fp16|bf16)-\w+ +allocations +([\d.]+) %", line)
        if found:
            shares[found[1]] = min(float(found[2]), shares.get(found[1], 100))
    return shares


def page(results, shares):
    rows = [r for result in results for r in result["rows"]]
    by_model = collections.defaultdict(list)
    for r in rows:
        by_model[name(r["case"])].append(r)
    text = PREFACE.format(
        records=len(rows), models=len(by_model), torch=", ".join(sorted({r["torch"] for r in rows})), gpus=", ".join(sorted({r["gpu"] for r in rows}))
    )
    text += HEAD
    exact = []
    for model, runs in sorted(by_model.items()):
        errors = [r["error"] for r in runs if r["error"]]
        cells = [model, str(len(runs))]
        for what in ("allocated", "reserved"):
            off = [abs(e[what]) for e in errors]
            cells += [f"{100 * median(off):.2f}%", f"{100 * max(off):.2f}%"] if off else ["-", "-"]
        right = sum(r["reference"]["oom"] == r["estimate"]["oom"] for r in runs)
        if right == len(runs) and errors and not any(e[what] for e in errors for what in ("allocated", "reserved")):
            exact.append(f"{model} {len(runs)}")
            continue
        cells += [f"{right}/{len(runs)}", f"{shares[model]:.1f}%" if model in shares else "-"]
        text += "| " + " | ".join(cells) + " |\n"
    if exact:
        text += "\nModels whose errors are all 0.00%, with their number of records, all verdicts right: " + ", ".join(exact) + ".\n"
    return text


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("results", nargs="+", help="what vprof accuracy --format json printed")
    options.add_argument("--lists", required=True, help="the table of event lists")
    args = options.parse_args()
    results = []
    for path in args.results:
        with open(path) as f:
            results.append(json.load(f))
    print(page(results, lists(args.lists)), end="")


if __name__ == "__main__":
    main()
