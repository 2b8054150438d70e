#!/usr/bin/env python3
"""Records training of a model that from_pretrained(device_map) has split over the GPUs of one process, for `vprof run`:

  python device_map.py save FOLDER CONFIG.json...
  vprof run --keep-files --gpu rtx-3090 --gpus 2 --steps all -- python device_map.py run FOLDER CASES OUT

CASES has a JSON object per line, with model (the name of a configuration) and differences from DEFAULTS. Each case runs
in a child process, forked before CUDA is initialized. OUT gets one record for each GPU. Labels are the token ids.
"""
import json
import os
import sys
import traceback

import torch
import transformers
import transformers.masking_utils

# answers for a simulated GPU what unpacked sequences give
transformers.masking_utils.find_packed_sequence_indices = lambda position_ids: None
TYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
DEFAULTS = {
    "weights": "bf16", "amp": "none", "adapter": "none", "checkpointing": False, "batch": 2, "seq": 512,
    "loop": "trainer", "use_cache": False, "map": "auto", "clip": False,
}


def save(folder, files):
    for file in files:
        config = transformers.AutoConfig.for_model(**json.load(open(file)))
        name = os.path.splitext(os.path.basename(file))[0]
        for weights, dtype in TYPES.items():
            model = transformers.AutoModelForCausalLM.from_config(config).to(dtype)
            model.save_pretrained(os.path.join(folder, f"{name}-{weights}"))


def loaded(folder, a):
    more = {}
    if a.get("memory"):
        more["max_memory"] = dict(enumerate(a["memory"]))
    if a["adapter"] == "qlora":
        more["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        os.path.join(folder, f"{a['model']}-{a['weights']}"), device_map=a["map"], dtype=TYPES[a["weights"]], **more)
    model.config.use_cache = a["use_cache"]
    if a["adapter"] != "none":
        import peft
        targets = a["targets"] if a["targets"] == "all-linear" else a["targets"].split(",")
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=a["rank"], lora_alpha=2 * a["rank"], lora_dropout=0.05, target_modules=targets, task_type="CAUSAL_LM"))
    if a["checkpointing"]:
        how = {"use_reentrant": a["checkpointing"] == "reentrant"}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=how)
        if a["adapter"] != "none":
            model.enable_input_require_grads()
    return model.train()


def run(folder, a, out):
    model = loaded(folder, a)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    ids = torch.zeros(a["batch"], a["seq"], dtype=torch.long, device=next(model.parameters()).device)
    gpus = range(torch.cuda.device_count())
    steps = {i: [] for i in gpus}

    def forward():
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=a["amp"] == "bf16"):
            return model(input_ids=ids, labels=ids)

    def update(loss):
        loss.backward()
        if a["clip"]:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()

    for _ in range(3):
        if a["loop"] == "trainer":
            update(forward().loss)
        else:  # plain: both variables stay alive
            output = forward()
            loss = output.loss
            update(loss)
        for i in gpus:
            steps[i].append([torch.cuda.max_memory_allocated(i), torch.cuda.max_memory_reserved(i), torch.cuda.memory_allocated(i)])
    for i in gpus:
        options = [] if a["map"] == "auto" else [f"map={a['map']}"]
        options += ["memory=" + "+".join(map(str, a["memory"]))] if a.get("memory") else []
        record = {k: v for k, v in a.items() if k not in ("map", "memory")} | {
            "accumulate": 1, "optimizer": "adamw", "unpacked": True, "gpus": len(gpus),
            "strategy": "device-map:" + ",".join(options + [f"rank={i}"]), "status": "ok", "gpu": "rtx-3090",
            "torch": torch.__version__.split("+")[0], "peak_allocated": steps[i][-1][0], "peak_reserved": steps[i][-1][1],
            "by_step": steps[i],
        }
        with open(out, "a") as f:
            f.write(json.dumps(record) + "\n")


def main():
    if sys.argv[1] == "save":
        return save(sys.argv[2], sys.argv[3:])
    _, _, folder, cases, out = sys.argv
    for line in open(cases):
        child = os.fork()
        if child == 0:
            try:
                run(folder, DEFAULTS | json.loads(line), out)
            except Exception:
                traceback.print_exc()
            os._exit(0)
        os.waitpid(child, 0)


main()
