"""Counts how often training needs more than the upper bound of its estimate, as xMem evaluates estimators.

    python tools/evidence/guarantee.py --vprof ./vprof --cases 150 --kinds timm --out guarantee.jsonl

A case is a captured model of timm, a configuration of transformers, or a script. Batch, precision and optimizer of the
first two are drawn with a fixed seed. vprof plans the case; for a script it plans from a recording of its steps. Then
PyTorch trains it while its allocator may reserve no more than the upper bound (set_per_process_memory_fraction). A case
that runs out of memory is a failure. The amount by which the upper bound exceeds the need without a limit is "given
away".

Training is simulated by `vprof run`; with --device cuda:0 it runs on the GPU, and estimates are for this GPU. Each
result is appended to --out before the next case begins. Needs a PYTHON with PyTorch for CUDA, timm and transformers,
and a build of vprof.
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
STEPS = 5  # reserved bytes still grow in the third step

MODELS = (
    "resnet18 resnet50 resnext50_32x4d densenet121 ghostnet_100 mobilenetv2_100 mobilenetv3_large_100 mnasnet_100 "
    "tf_efficientnet_b0 regnety_008 rexnet_100 repvgg_b0 hrnet_w18_small nfnet_l0 poolformer_s12 edgenext_small "
    "mobilevitv2_100 beit_base_patch16_224 mixer_b16_224 xcit_tiny_12_p16_224 crossvit_small_240 nest_tiny "
    "swinv2_tiny_window8_256 cait_xxs24_224 vgg13 "
).split()
# Flags of vprof by the keys of a case.
SETTINGS = {"batch": "--batch", "length": "--seq-len", "amp": "--amp", "optimizer": "--optimizer", "loop": "--loop"}
OPTIMIZERS = ["adamw", "adamw-fused", "sgd", "sgd-momentum", "rmsprop"]

# Configurations of transformers by class, as differences from the library's defaults. Sizes are from the smallest
# released model, with fewer layers.
CONFIGURATIONS = {
    "GPT2LMHeadModel": {"model_type": "gpt2"},
    "OPTForCausalLM": {"model_type": "opt", "num_hidden_layers": 8},
    "GPTNeoXForCausalLM": {"model_type": "gpt_neox", "hidden_size": 768, "num_hidden_layers": 8, "num_attention_heads": 12, "intermediate_size": 3072},
    "LlamaForCausalLM": {
        "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 16, "num_attention_heads": 9, "num_key_value_heads": 3,
        "intermediate_size": 1536, "vocab_size": 49152, "tie_word_embeddings": True,
    },
    "MistralForCausalLM": {
        "model_type": "mistral", "hidden_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 16, "num_key_value_heads": 4,
        "intermediate_size": 3584, "vocab_size": 32000,
    },
    "Qwen2ForCausalLM": {
        "model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 6, "num_attention_heads": 14, "num_key_value_heads": 2,
        "intermediate_size": 4864, "vocab_size": 151936, "tie_word_embeddings": True,
    },
    "Qwen3ForCausalLM": {
        "model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 16, "num_key_value_heads": 8,
        "intermediate_size": 3072, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True,
    },
    "BertForMaskedLM": {"model_type": "bert"},
    "RobertaForMaskedLM": {"model_type": "roberta", "max_position_embeddings": 514, "type_vocab_size": 1, "vocab_size": 50265},
    "DistilBertForMaskedLM": {"model_type": "distilbert"},
}

SCRIPTS = (
    "zoo.py gpt2 --batch 4",
    "zoo.py bert-base --batch 8 --amp fp16",
    "zoo.py whisper-tiny --batch 8",
    "zoo.py wav2vec2-base --batch 4 --amp bf16",
    "zoo.py llama-tiny --batch 16 --amp bf16",
    "recorded/nanogpt.py --batch 8",
    "recorded/ddpm_ema.py --batch 16",
    "recorded/distill.py --batch 8",
    "recorded/ppo.py --envs 64",
    "recorded/hf_trainer.py --batch 16",
    "vae.py",
    "gnn.py",
    "lbfgs_pinn.py",
    "timm_mixup.py",
    "peft_lora.py",
    "accelerate_loop.py",
)


def drawn(kinds):
    """Returns the cases of some kinds. Models take turns; settings are drawn with a fixed seed."""
    dice, cases = random.Random(20261129), {}
    cases["timm"] = [
        {"kind": "timm", "spec": "timm:" + MODELS[i % len(MODELS)], "batch": dice.choice([2, 4, 8, 16, 32]), "amp": dice.choice(["none", "fp16", "bf16"]), "optimizer": dice.choice(OPTIMIZERS)}
        for i in range(150)
    ]
    names = list(CONFIGURATIONS)
    cases["transformers"] = [
        {
            "kind": "transformers", "spec": names[i % len(names)], "batch": dice.choice([1, 2, 4, 8]), "length": dice.choice([128, 256, 512]),
            "amp": dice.choice(["none", "fp16", "bf16"]), "optimizer": dice.choice(OPTIMIZERS), "loop": dice.choice(["trainer", "function", "plain"]),
        }
        for i in range(50)
    ]
    cases["script"] = [{"kind": "script", "spec": s} for s in SCRIPTS]
    return [c for kind in kinds for c in cases[kind]]


def spread(cases, count):
    """Returns count cases, evenly spaced over all of them."""
    return [cases[i * len(cases) // count] for i in range(count)] if count < len(cases) else cases


class Machine:
    """Plans and trains cases on a simulated GPU, or on this machine's GPU."""

    def __init__(self, vprof, device, folder):
        self.vprof, self.device, self.folder = os.path.abspath(vprof), device, os.path.abspath(folder)
        auto = ["--auto"] if device else ["--gpu", GPU]
        report = self.json("plan", "--model", "gpt2", *auto)
        self.gpu, self.memory = report["devices"][0]["gpu"], report["devices"][0]["memory_bytes"]

    def json(self, *args):
        """Returns the JSON output of a vprof command."""
        done = subprocess.run([self.vprof, *args, "--format", "json"], capture_output=True, text=True)
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise RuntimeError("vprof %s: %s" % (" ".join(args), done.stderr.strip()[-500:])) from None

    def simulated(self, *command, flags=()):
        """Runs a command on the simulated GPU, where PyTorch needs no NVIDIA libraries. Returns the completed process.
        """
        run = [self.vprof, "run", "-q", "--gpu", self.gpu, "--steps", "all", *flags, "--", *command]
        return subprocess.run(run, capture_output=True, text=True)

    def captured(self, spec):
        """Returns the path of a model's .pt2 file, captured if it is missing."""
        path = os.path.join(self.folder, spec.partition(":")[2] + ".pt2")
        if not os.path.exists(path):
            done = self.simulated(self.vprof, "capture", spec, "-o", path, "--python", sys.executable, flags=["--keep-files"])
            if not os.path.exists(path):
                raise RuntimeError(f"capture of {spec}: {(done.stdout + done.stderr).strip()[-500:]}")
        return path

    def configured(self, name):
        """Writes the config.json of a CONFIGURATIONS entry and returns the model name for vprof, "hf:" and its path."""
        path = os.path.join(self.folder, name, "config.json")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            json.dump({**CONFIGURATIONS[name], "architectures": [name]}, f)
        return "hf:" + path

    def recorded(self, spec):
        """Records a script's steps on the simulated GPU and returns the path of the recording."""
        path = os.path.join(self.folder, spec.replace("/", "-").replace(" ", "_") + ".vprof")
        done = self.simulated(*command(spec), flags=["--record", path])
        if not os.path.exists(path):
            raise RuntimeError(f"{spec}: {(done.stdout + done.stderr).strip()[-500:]}")
        return path

    def planned(self, case):
        """Returns the estimate of reserved bytes, with low_bytes and high_bytes."""
        flags = [w for key, flag in SETTINGS.items() if key in case for w in (flag, str(case[key]))]
        model = {"timm": self.captured, "transformers": self.configured, "script": self.recorded}[case["kind"]](case["spec"])
        return self.json("plan", "--model", model, *flags, "--gpu", self.gpu)["points"][0]["estimate"]["reserved"]

    def script(self, case, limit):
        """Runs a script whose allocator may reserve at most limit bytes (None for no limit). Returns the peak of
        reserved bytes, or None if memory ran out.
        """
        where = ["--device", self.device] if self.device else ["--gpu", self.gpu]
        environment = dict(os.environ)
        if limit is not None:
            environment["PYTORCH_CUDA_ALLOC_CONF"] = f"per_process_memory_fraction:{min(1.0, (limit + 1) / self.memory):.12f}"
        run = [self.vprof, "run", "-q", *where, "--steps", "all", "--format", "json", "--", *command(case["spec"])]
        done = subprocess.run(run, capture_output=True, text=True, env=environment)
        try:
            report = json.loads(done.stdout)
        except ValueError:
            raise RuntimeError(f"{case['spec']}: {done.stderr.strip()[-500:]}") from None
        return report["points"][0]["run"]["reserved_bytes"] if report["script"]["result"] == "fits" else None


def command(spec):
    """Returns the command line of a script."""
    name, *arguments = spec.split()
    folder = HERE if name == "zoo.py" else os.path.join(HERE, "..", "..", "bench", "reference", "scripts")
    return [sys.executable, os.path.normpath(os.path.join(folder, name)), *arguments]


class Configured:
    """Trains a configuration of transformers, with the interface of training.Job."""

    def __init__(self, case):
        import torch
        import training
        import transformers

        config = dict(CONFIGURATIONS[case["spec"]])
        torch.manual_seed(0)
        config = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
        self.loop, self.kept = case["loop"], None
        if self.loop == "trainer":
            config.use_cache = False  # transformers' Trainer sets it, too
        self.model = getattr(transformers, case["spec"])(config).cuda().train()
        kind, options = training.OPTIMIZERS[case["optimizer"]]
        self.optimizer = getattr(torch.optim, kind)(self.model.parameters(), **options)
        self.amp = training.AMP[case["amp"]]
        self.scaler = torch.amp.GradScaler("cuda", enabled=case["amp"] == "fp16")
        self.ids = torch.randint(0, config.vocab_size, (case["batch"], case["length"])).cuda()
        self.labels = self.ids.clone()

    def step(self):
        """Runs one training step. The output is kept as in the case's loop (docs/oom.md): until the loss is read
        (trainer), until the step ends (function), or until the next forward pass has returned (plain).
        """
        import torch

        with torch.autocast("cuda", self.amp, enabled=self.amp is not None):
            out = self.model(input_ids=self.ids, labels=self.labels)
        loss = out.loss
        if self.loop == "plain":
            self.kept = out, loss
        elif self.loop == "trainer":
            del out
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)


def train(case, limit):
    """Trains a case whose allocator may reserve at most limit bytes (None for no limit). Returns the peak of reserved
    bytes, or None if memory ran out.
    """
    import torch
    import training

    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(1.0 if limit is None else min(1.0, (limit + 1) / total))
    try:
        if case["kind"] == "transformers":
            job = Configured(case)
        else:
            options = argparse.Namespace(
                spec=case["spec"], device="cuda:0", accumulate=1, loss="", optimizer=case["optimizer"], task="", attention="", input=[], size=0, seq=256, samples=32000, inputs_from=""
            )
            job = training.Job(options, case["batch"], case["amp"], False, lambda _phase: None)
        for _ in range(STEPS):
            job.step()
    except torch.OutOfMemoryError:
        return None
    return torch.cuda.max_memory_reserved()


def tried(case, run, out):
    """Runs a planned case without a limit and with its upper bound as the limit, and appends the result to a file."""
    row = {**case, "need": run(case, None), "capped": run(case, case["reserved"]["high_bytes"])}
    with open(out, "a") as f:
        f.write(json.dumps(row) + "\n")


def work(path, out):
    """Trains the planned cases of a file in this process."""
    sys.path.insert(0, os.path.join(HERE, "..", "record"))
    with open(path) as f:
        cases = json.load(f)
    for case in cases:
        tried(case, train, out)


def told(rows):
    """Returns the summary for docs/lab/accuracy.md: a line for all cases, one for each kind, and the failed cases."""
    lines = [judged("all", rows)] if len({r["kind"] for r in rows}) > 1 else []
    lines += [judged(kind, [r for r in rows if r["kind"] == kind]) for kind in sorted({r["kind"] for r in rows})]
    for r in rows:
        if r["capped"] is None:
            settings = " ".join(f"{key} {r[key]}" for key in SETTINGS if key in r)
            lines.append(f"  failed: {r['spec']} {settings}: {r['need']} of {r['reserved']['high_bytes']}")
    return lines


def judged(kind, rows):
    failed = sum(r["capped"] is None for r in rows)
    away = [r["reserved"]["high_bytes"] / r["need"] - 1 for r in rows if r["need"]]
    inside = sum(r["reserved"]["low_bytes"] <= r["need"] <= r["reserved"]["high_bytes"] for r in rows if r["need"])
    return f"{kind}: {len(rows)} cases, {failed} ran out of memory under the upper end; {inside} needs inside; median given away {statistics.median(away or [0]):.1%}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--vprof", default="./vprof")
    p.add_argument("--device", default="", help="cuda:0 trains on this machine's GPU (default: a simulated %s)" % GPU)
    p.add_argument("--kinds", default="timm,transformers,script")
    p.add_argument("--cases", type=int, default=1000, help="take so many of them, evenly")
    p.add_argument("--out", help="file of results, a line of JSON each; cases that it has are not run again")
    p.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "vprof-guarantee"), help="captured models")
    p.add_argument("--worker", help=argparse.SUPPRESS)
    options = p.parse_args()
    out = os.path.abspath(options.out or os.path.join(options.folder, "results.jsonl"))
    if options.worker:
        return work(options.worker, out)
    os.makedirs(options.folder, exist_ok=True)
    if not options.out:
        open(out, "w").close()
    try:
        machine = Machine(options.vprof, options.device, options.folder)
        run(machine, spread(drawn(options.kinds.split(",")), options.cases), out)
    except RuntimeError as error:
        sys.exit(str(error))
    print("\n".join(told(results(out))))


def results(path):
    """Returns the rows of a results file; empty if there is no file."""
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [json.loads(line) for line in f]


def run(machine, cases, out):
    """Plans and trains the cases that the results file lacks. All but scripts run in one process."""
    done = [{k: v for k, v in r.items() if k not in ("reserved", "need", "capped")} for r in results(out)]
    cases = [c for c in cases if c not in done]
    for case in cases:
        case["reserved"] = machine.planned(case)
    scripts = [c for c in cases if c["kind"] == "script"]
    together = [c for c in cases if c["kind"] != "script"]
    if together:
        path = os.path.join(machine.folder, "cases.json")
        with open(path, "w") as f:
            json.dump(together, f)
        worker = [sys.executable, os.path.abspath(__file__), "--worker", path, "--out", out]
        ended = subprocess.run(worker, capture_output=True, text=True) if machine.device else machine.simulated(*worker, flags=["--keep-files"])
        missing = len(done) + len(together) - len(results(out))
        if missing:
            raise RuntimeError(f"{missing} of {len(together)} cases did not run: {(ended.stdout + ended.stderr)[-2000:]}")
    for case in scripts:
        tried(case, machine.script, out)


if __name__ == "__main__":
    main()
