"""Runs training scripts under `vprof run` with PyTorch from pip, and compares their peaks with records.

The records come from complete runs of the same scripts with NVIDIA's own libraries
(bench/reference/scripts/recorded/peaks.jsonl). Scripts without a record must make three steps. captured_*.py must match
the plan for their network, whose compiled step was captured at other batch sizes. No GPU is needed.

    python3 tools/evidence/run_check.py --vprof ./vprof --python VENV/bin/python [NAME...]

--records FILE runs the models of a file of bench/reference/data again (zoo.py), and reports differences.
"""

import argparse
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "bench/reference/scripts"

# The models of zoo.py.
ZOO = ("resnet50", "bert-base", "gpt2", "llama-tiny", "whisper-tiny", "wav2vec2-base")

# A file in the run's folder that describes the record's GPU: addresses ascended in the records.
SPEC = "gpu.yaml"

# Allowed relative differences between record and run, as docs/lab/run.md states.
ALLOCATED, RESERVED = 0.02, 0.02


def cases(folder=SCRIPTS):
    """Yields all runs: (script, arguments, flags of vprof, record or None)."""
    for line in (folder / "recorded/peaks.jsonl").read_text().splitlines():
        record = json.loads(line)
        flags = ["--gpu-spec", SPEC, "--steps", "all"]
        if "world" in record:
            flags += ["--gpus", str(record["world"])]
        yield folder / "recorded" / record["script"], record["args"], flags, record
    for script in sorted(folder.glob("*.py")):
        ranks = ["--gpus", "2"] if "init_process_group" in script.read_text() else []
        whole = ["--steps", "all"] if script.stem.startswith("compiled") else []  # they check their results at the end
        yield script, [], ["--gpu", "rtx-3090", *ranks, *whole], None


def zoo(path):
    """Yields the runs of a file of bench/reference/data, like cases(), for the models of zoo.py."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt") as lines:
        records = [json.loads(line) for line in lines]
    for record in records:
        if record.get("case") in ZOO and record["status"] == "ok" and not record["checkpointing"]:
            args = [record["case"], "--as-recorded", "--batch", str(record["batch"]), "--stage", record["stage"]]
            args += ["--amp", record["amp"]] if record["amp"] else []
            yield SCRIPTS.parents[2] / "tools/evidence/zoo.py", args, ["--gpu-spec", SPEC, "--steps", "all"], record


def judge(report, record):
    """Returns what is wrong with a run; empty if nothing is."""
    result = report["script"]["result"]
    if result != "fits":
        return "%s: %s" % (result, report["script"].get("error", ""))
    if record is None:
        return "" if report["script"]["steps"] else "no optimizer stepped"
    run = report["points"][0]["run"]
    for name, share in ("allocated", ALLOCATED), ("reserved", RESERVED):
        off = run[name + "_bytes"] / record["peak_" + name] - 1
        if abs(off) > share:
            return "%s %+.2f %% of the record" % (name, 100 * off)
    return ""


def figures(report, record):
    """Returns the peaks of a run as text, with the differences from the record in percent."""
    words = []
    for point in report["points"]:
        for name in "allocated", "reserved":
            bytes_ = point["run"][name + "_bytes"]
            off = "" if record is None else " (%+.3f %%)" % (100 * (bytes_ / record["peak_" + name] - 1))
            words.append("%s %.2f MiB%s" % (name, bytes_ / 2**20, off))
    return ", ".join(words)


def run(vprof, python, script, args, flags, gpu=None):
    """Runs a script in a temporary folder and returns its report. gpu names the record's GPU."""
    with tempfile.TemporaryDirectory() as folder:
        if gpu:
            pathlib.Path(folder, SPEC).write_text("name: %s\nlike: %s\naddresses: rising\n" % (gpu, gpu))
        command = [os.path.abspath(vprof), "run", "-q", "--timeout", "20m", "--format", "json", "--inductor-cache", "none", *flags, "--"]
        command += [python, str(script), *args]
        out = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    try:
        return json.loads(out.stdout)
    except ValueError:
        return {"script": {"result": "vprof failed", "error": out.stderr[-2000:], "steps": []}, "points": []}


def planned(vprof, python, script):
    """Captures the network of a script at other batch sizes, and returns the plan's peaks with the keys of a record."""
    gpu = ["--gpu", "rtx-3090"]
    with tempfile.TemporaryDirectory() as folder:
        for verb in (
            ["capture", "%s:Net" % script, "--inputs-from", "%s:example" % script, "-o", "net.pt2", "--python", python, "--compile", "--batch", "8,64"],
            ["plan", "--model", "net.pt2", "--torch-compile", "--amp", "bf16", "--batch", "24", "--format", "json"],
        ):
            out = subprocess.run([os.path.abspath(vprof), *verb, *gpu], cwd=folder, capture_output=True, text=True)
            if out.returncode:
                sys.exit("%s of %s failed: %s" % (verb[0], script.name, out.stderr[-2000:]))
    estimate = json.loads(out.stdout)["points"][0]["estimate"]
    return {"peak_" + name: estimate[name]["bytes"] for name in ("allocated", "reserved")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vprof", default="./vprof")
    parser.add_argument("--python", default=sys.executable, help="a Python with PyTorch and what the scripts import")
    parser.add_argument("--first", action="store_true", help="only the first setting of each script")
    parser.add_argument("--records", metavar="FILE", help="record the runs of this file of bench/reference/data again")
    parser.add_argument("names", nargs="*", help="scripts, without .py, or models (default: all)")
    options = parser.parse_args()
    bad, seen = 0, set()
    for script, args, flags, record in zoo(options.records) if options.records else cases():
        name = args[0] if options.records else script.stem
        if options.names and name not in options.names or options.first and name in seen:
            continue
        seen.add(name)
        if script.stem.startswith("captured_"):
            record = planned(options.vprof, options.python, script)
        report = run(options.vprof, options.python, script, args, flags, record and record.get("gpu"))
        wrong = judge(report, record)
        # Other releases of transformers or cuDNN than the records' give other peaks (docs/lab/run.md). They are
        # reported, but do not fail.
        known = options.records and report["script"]["result"] == "fits"
        bad += bool(wrong and not known)
        what = " ".join([script.stem, *args, *flags])
        print(what + ":", figures(report, record), ("differs: " if known else "WRONG: ") + wrong if wrong else "", flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
