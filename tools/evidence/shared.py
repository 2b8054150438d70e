"""Measurements contributed by users: checks lines of `vprof accuracy --share` and counts them for docs/lab/evidence.md.

They are in the folder tools/evidence/shared, one file for each contributor (NAME.jsonl).
"""

import glob
import json
import os
import statistics
import subprocess

# Upper limit in bytes of a process's device memory outside of its segments. More belongs to other processes or is
# wrong.
MOST_CONTEXT = 4 * 2**30


def implausible(row, gpus):
    """Returns why a line cannot come from a real run; empty if it can."""
    sizes = [row.get("peak_" + name, 0) for name in ("requested", "allocated", "reserved", "device")]
    asked = [n for n in sizes if n]
    if row.get("simulated"):
        return "simulated"
    if row.get("gpu") not in gpus:
        return f"no GPU {row.get('gpu')}"
    if row.get("by") not in ("callback", "run", "sweep") or row.get("batch", 0) < 1:
        return "no run"
    if not sizes[1] or not sizes[2] or asked != sorted(asked):
        return "the counts do not rise from requested to device"
    if sizes[2] > gpus[row["gpu"]] or sizes[3] > gpus[row["gpu"]]:
        return "more than the GPU has"
    if sizes[3] and sizes[3] - sizes[2] > MOST_CONTEXT:
        return "more beside the segments than a process takes"
    return ""


def errors(vprof, path):
    """Returns relative errors of allocated bytes by line number, for the lines that vprof can plan."""
    done = subprocess.run([vprof, "accuracy", path, "--format", "json"], capture_output=True, text=True)
    rows = json.loads(done.stdout)["rows"] if done.returncode == 0 else []
    return {row["line"]: row["error"]["allocated"] for row in rows if row["error"]}


def section(vprof, folder):
    """Returns the section of the page; empty if there are no contributions."""
    listed = subprocess.run([vprof, "gpus", "--format", "json"], capture_output=True, text=True, check=True)
    gpus = {b["name"]: b["memory_bytes"] for b in json.loads(listed.stdout)["gpus"]}
    out, counted, people = [], 0, 0
    for path in sorted(glob.glob(os.path.join(folder, "*.jsonl"))):
        with open(path, encoding="utf-8") as f:
            rows = dict(enumerate((json.loads(line) for line in f if line.strip()), 1))
        off = errors(vprof, path)
        kept = {n: row for n, row in rows.items() if not implausible(row, gpus)}
        known = [abs(off[n]) for n in kept if n in off]
        median = f"{statistics.median(known):.2%}" if known else "-"
        used = ", ".join(sorted({row["gpu"] for row in kept.values()}))
        who = os.path.splitext(os.path.basename(path))[0]
        out.append(f"| {who} | {used} | {len(kept)} | {len(rows) - len(kept)} | {len(known)} | {median} |")
        counted, people = counted + len(kept), people + bool(kept)
    if not out:
        return []
    head = ["", "## Shared by users", "", f"{counted} figures by {people} people.", ""]
    head += ["| by | GPUs | figures | implausible | planned | allocated, median error |", "|:--- |:--- | ---:| ---:| ---:| ---:|"]
    return head + out
