"""Tests vprof on a machine with a GPU for a quarter of an hour, the most important parts first.

    make gpu-check-build && python tools/evidence/session.py --python PYTHON --out FOLDER

The parts run in order, each with a time limit. A part that reaches its limit is interrupted, and killed if it does not
stop. The output of a part is written to FOLDER/PART.txt. Its result is written to FOLDER/session.jsonl before the next
part begins, so that results survive the loss of the machine. Parts that start after --minutes are listed as skipped.
PYTHON has PyTorch for CUDA, timm and transformers; without it only the parts without PyTorch run.

--rehearse is for a machine without a GPU, with a fake driver that looks like a real one: PyTorch trains under `vprof
run`, and steps that measure PyTorch on the GPU fail.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
GRACE = 20  # seconds after the interrupt for a part to free the GPU

# Prints how often the address of PyTorch's next segment is below the previous one; each segment holds one tensor.
ADDRESSES = """
import json, torch
kept = [torch.empty(32 << 20, dtype=torch.uint8, device="cuda") for _ in range(40)]
at = [t.data_ptr() for t in kept]
falling = sum(b < a for a, b in zip(at, at[1:]))
print(json.dumps({"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "pairs": len(at) - 1, "falling": falling}))
"""

SCRIPTS = ("nanogpt.py --batch 8", "ddpm_ema.py --batch 16", "distill.py --batch 8", "hf_trainer.py --batch 16", "ppo.py --envs 64")


class Part:
    """Commands that run one after another, with a time limit in seconds for all of them."""

    def __init__(self, name, limit, *commands, environment=None):
        self.name, self.limit, self.commands = name, limit, commands
        self.environment = {**os.environ, **(environment or {})}

    def run(self, out, seconds):
        """Runs the part for at most this many seconds and returns its result, a line of session.jsonl."""
        began, exits, ended = time.monotonic(), [], "finished"
        with open(os.path.join(out, self.name + ".txt"), "w") as text:
            for command in self.commands:
                left = seconds - (time.monotonic() - began)
                if left <= 0:
                    ended = "limit"
                    break
                text.write("\n$ " + " ".join(command) + "\n")
                text.flush()
                try:
                    child = subprocess.Popen(command, stdout=text, stderr=subprocess.STDOUT, env=self.environment, start_new_session=True)
                except OSError as error:
                    text.write(str(error) + "\n")
                    exits.append(None)
                    continue
                exits.append(waited(child, left))
                if time.monotonic() - began >= seconds:
                    ended = "limit"
                    break
        return {"part": self.name, "ended": ended, "limit_s": self.limit, "seconds": round(time.monotonic() - began, 1), "exits": exits}


def waited(child, seconds):
    """Returns the exit code of a process, which is interrupted after the seconds and killed after GRACE more."""
    for limit, end in (seconds, signal.SIGINT), (GRACE, signal.SIGKILL):
        try:
            return child.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, end)
    return child.wait()


def parts(options):
    """Returns the parts of the session in order."""
    file = lambda *names: os.path.join(options.out, *names)
    tool = lambda name: os.path.join(options.bin, name)
    vprof, python = tool("vprof"), options.python
    torch = [vprof, "run", "--gpu", options.rehearse, "--steps", "all", "--keep-files", "--"] if options.rehearse else []
    cuda = ["--gpu", options.rehearse] if options.rehearse else ["--device", "cuda:0"]
    sweep = [vprof, "sweep", "--model", "redimnet-b2", "--stage", "full", "--batch", "1,2,4,6,8", "--find-max", "--device", "cuda:0", "--quiet"]
    script = lambda line: os.path.join(ROOT, "bench", "reference", "scripts", "recorded", line)
    guarantee = [python, os.path.join(HERE, "guarantee.py"), "--vprof", vprof, "--cases", str(options.cases)]
    guarantee += ["--folder", options.models, "--out", file("guarantee.jsonl"), *([] if options.rehearse else ["--device", "cuda:0"])]
    addresses = [[*torch, python, "-c", ADDRESSES]] if python else []
    check = [*torch, tool("gpucheck"), "--with-torch", python, file("gpu-check")] if python else [tool("gpucheck"), file("gpu-check")]
    compared = [[sys.executable, os.path.abspath(__file__), "--out", options.out, "--bin", options.bin, *(["--rehearse", options.rehearse] if options.rehearse else []), "--compare"]] if python else []
    all_parts = [
        Part("doctor", 60, [vprof, "doctor"], *addresses),
        Part("gpu-check", 180, check),
        Part("times", 120, [*torch, python, options.times], environment={"OUT": options.out}) if python and options.times else None,
        Part("calibrate", 120, [*sweep, "--export", file("sweep.json")], [vprof, "calibrate", file("sweep.json"), "--output", file("coefficients.yaml")], *compared),
        Part("guarantee", 120, guarantee) if python else None,
    ]
    if python:
        for line in SCRIPTS:
            name, *arguments = line.split()
            how = cuda if options.rehearse else ["--both"]
            all_parts.append(Part("run-" + name[:-3], 60, [vprof, "run", *how, "--export", file("run-" + name[:-3] + ".json"), "--", python, script(name), *arguments]))
    far = [tool("cuda.test"), "-test.v", "-test.run", "^TestRealKernelsStayWithinOperandsOfGigabytes$", "-test.bench", "^BenchmarkReal", "-test.benchtime", "20x"]
    all_parts.append(Part("kernels", 60, far, environment={} if options.rehearse else {"VPROF_REAL_GPU": "1"}))
    return [p for p in all_parts if p]


def compare(options):
    """Prints PyTorch's measured device bytes from gpu-check, with vprof's estimates before and after the calibration.
    """
    folder = os.path.join(options.out, "gpu-check", "torch")
    gpu = ["--gpu", options.rehearse] if options.rehearse else ["--auto"]
    for name in "redimnet_b2", "spoter":
        path = os.path.join(folder, name + ".jsonl")
        if not os.path.exists(path):
            sys.exit("gpu-check has not recorded " + name)
        with open(path) as f:
            records = [r for r in map(json.loads, f) if r.get("peak_device_used") and not r.get("amp")]
        for flags in [], ["--coefficients", os.path.join(options.out, "coefficients.yaml")]:
            command = [os.path.join(options.bin, "vprof"), "plan", "--model", os.path.join(folder, name + ".pt2"), *gpu, *flags]
            command += ["--batch", ",".join(str(r["batch"]) for r in records), "--format", "json"]
            points = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["points"]
            for r, point in zip(records, points):
                estimate = point["estimate"]["device"]["bytes"]
                print(json.dumps({"model": name, "batch": r["batch"], "calibrated": bool(flags), "pytorch": r["peak_device_used"], "estimate": estimate, "error": round(estimate / r["peak_device_used"] - 1, 4)}))


def session(all_parts, out, seconds):
    """Runs the parts in order within a time limit, and returns their results. Each is appended to session.jsonl before
    the next part starts.
    """
    end, lines = time.monotonic() + seconds, []
    with open(os.path.join(out, "session.jsonl"), "a") as file:
        for part in all_parts:
            left = min(part.limit, end - time.monotonic())
            line = part.run(out, left) if left > 0 else {"part": part.name, "ended": "skipped", "limit_s": part.limit}
            lines.append(line)
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
            print(json.dumps(line), flush=True)
    return lines


def arguments(words=None):
    """Returns the options of a command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", default=os.path.join(ROOT, "bin", "gpu"), help="folder of the binaries that make gpu-check-build makes")
    p.add_argument("--python", help="a Python with PyTorch for CUDA, timm and transformers")
    p.add_argument("--out", required=True, help="folder of results")
    p.add_argument("--models", default=os.path.join(ROOT, "bin", "captured"), help="folder of captured models, which are made where they are missing")
    p.add_argument("--times", help="a script that times kernels and steps with PyTorch and writes its rows to $OUT")
    p.add_argument("--cases", type=int, default=20, help="cases of the guarantee")
    p.add_argument("--minutes", type=float, default=14.0)
    p.add_argument("--rehearse", metavar="GPU", help="there is only a driver without a GPU that passes for this one")
    p.add_argument("--compare", action="store_true", help=argparse.SUPPRESS)
    options = p.parse_args(words)
    options.out, options.bin, options.models = map(os.path.abspath, (options.out, options.bin, options.models))
    return options


def main():
    options = arguments()
    if options.compare:
        compare(options)
        return 0
    os.makedirs(options.out, exist_ok=True)
    lines = session(parts(options), options.out, 60 * options.minutes)
    return any(line["ended"] != "finished" or any(code != 0 for code in line["exits"]) for line in lines)


if __name__ == "__main__":
    sys.exit(main())
