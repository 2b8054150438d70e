#!/usr/bin/env python3
"""Records training steps of transformers' text models with random weights under the installed releases, for `vprof run`:

  PYTHONPATH=ENVIRONMENT vprof run --gpu a100-40 --steps all -- python stacks.py stacks.json > releases.jsonl

stacks.json has the cases, attention.json the cases of models whose attention was eager before transformers 4.46, and
experts.json the cases of models whose experts were linear layers before 5.0. A line of the output has a case, the releases of its libraries, and
requested bytes of the third step: before it, after forward, and the peaks of forward and of the whole step.
"""
import gc
import importlib.metadata
import json
import sys

import torch
import transformers

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def build(case):
    """Returns the model of a case on the GPU."""
    config = dict(case["config"])
    kind = config.pop("model_type")
    torch.set_default_dtype(TYPES[case.get("weights", "fp32")])
    options = {"attn_implementation": case["attention"]} if "attention" in case else {}
    model = getattr(transformers, f"AutoModelFor{case.get('class', 'CausalLM')}").from_config(
        transformers.AutoConfig.for_model(kind, **config), **options)
    torch.set_default_dtype(torch.float32)
    if "lora" in case:
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **case["lora"]))
    model = model.cuda().train()
    model.config.use_cache = bool(case.get("cache"))
    if "checkpointing" in case:
        model.gradient_checkpointing_enable({"use_reentrant": case["checkpointing"] == "reentrant"})
        if case["checkpointing"] == "reentrant":
            model.enable_input_require_grads()
    return model


def bytes_of(kind):
    return torch.cuda.memory_stats()["requested_bytes.all." + kind]


def steps(case):
    """Runs three steps of a training loop in a function, and returns the requested bytes of the third."""
    model = build(case)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    ids = torch.randint(0, model.config.vocab_size, (case["batch"], case["length"])).cuda()
    more = {}
    if case.get("padding"):
        mask = torch.ones(ids.shape, dtype=torch.int64)
        mask[0, -case["padding"]:] = 0
        more = {"attention_mask": mask.cuda()}
    labels, amp = ids.clone(), case.get("amp")
    for _ in range(3):
        out = None
        torch.cuda.reset_peak_memory_stats()
        found = {"before": bytes_of("current")}
        with torch.autocast("cuda", TYPES[amp or "bf16"], enabled=amp is not None):
            out = model(input_ids=ids, labels=labels, **more)
        found.update(forward=bytes_of("current"), forward_peak=bytes_of("peak"))
        out.loss.backward()
        found["backward_peak"] = bytes_of("peak")
        optimizer.step()
        optimizer.zero_grad()
        found["peak"] = bytes_of("peak")
    return found


def main():
    with open(sys.argv[1]) as f:
        cases = json.load(f)
    releases = {"torch": torch.__version__.split("+")[0]}
    for name in sys.argv[2:] or ["transformers"]:
        releases[name] = importlib.metadata.version(name)
    for case in cases:
        record = {"stack": releases, **case}
        try:
            record.update(steps(case))
        except (ImportError, KeyError, ValueError, TypeError, AttributeError, RuntimeError) as e:
            record["error"] = f"{type(e).__name__}: {e}"[:200]
        gc.collect()
        torch.cuda.empty_cache()
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
