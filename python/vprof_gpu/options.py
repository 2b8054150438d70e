"""Options of the functions, as the commands have them. Generated: go test ./cli -run Python -update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict, Union

Value = Union[str, int, float, bool]
Values = Union[Value, Sequence[Value], Mapping[str, Value]]


class CaseOptions(TypedDict, total=False):
    """Options of all commands that plan a case."""

    accumulate: Values
    """Micro-batches n of one optimizer step (default: the model's)."""

    alloc_conf: Values
    """Allocator settings, as in PYTORCH_CUDA_ALLOC_CONF."""

    amp: Values
    """Autocast precision: none, fp16, bf16 (default: the model's)."""

    auto: bool
    """Use this machine's GPU, minus the memory of other processes."""

    batching: Values
    """How batches are made of samples: kind is padded (to the longest of each), grouped (by length), packed
    (several to a row)."""

    checkpointing: Values
    """Recompute activations in backward, and how: true, false, non-reentrant, reentrant, reentrant-trained (only
    layers with trained parameters), every=2 (every second layer), selective=mm,sdpa (keeps the results of these
    operators) (default: the model's)."""

    clip: Values
    """Clip gradients by their norm before the optimizer's step: norm, none (default: as the model's project does)."""

    coefficients: Values
    """Correct estimates with a file of vprof calibrate; FILE#NAME selects an entry, none turns it off (default:
    coefficients of vprof.yaml, here or above)."""

    dataset_on_gpu: Values
    """Also count training data that lies on the GPU for the whole run, as size like 3.2GiB (default: it comes from
    the host)."""

    evaluate: Values
    """Evaluation between training steps, by options: batch=8 sets its batch size (default: the training's);
    scores=4 keeps the scores of 4 batches on the GPU, as transformers' Trainer does for metrics
    (eval_accumulation_steps; default: only losses are kept); new-tokens=128 generates tokens, without a loss;
    none leaves evaluation out."""

    gpu_memory: Values
    """Set the GPU's total memory to size, like 12GiB, 12 (GiB) or 70%."""

    gpu_spec: Values
    """Simulate the GPU that a YAML file describes (see vprof help gpu-spec)."""

    gpus: int
    """Train on n equal GPUs, one rank on each; values are for one rank."""

    host_memory: Values
    """Also check that the host memory of this size suffices, like 64GiB or 64 (GiB)."""

    lengths: Values
    """Replay epochs over samples of different lengths: a file of them, or a distribution such as
    lognormal:mean=512,p95=1500."""

    liger: bool
    """Compute norms, rotary positions, feed-forward layers and the loss with liger-kernel."""

    link: float
    """Speed of a GPU's link to the others, in GB/s (default: the GPU's NVLink, else PCIe)."""

    loop: Values
    """Which outputs of the model the training loop keeps alive, beside the loss: trainer, function, plain; trainer
    keeps none, function keeps them until the step ends, plain until the next forward pass has returned (default:
    trainer; for a .pt2 model, function)."""

    lora: Values
    """Train low-rank adapters instead of the model: options like r=8,alpha=16,target=all-linear, or
    target=q_proj,v_proj; dora=true; towers=false leaves out encoders of images and sounds;
    parameters=experts.gate_up_proj,experts.down_proj adapts experts, too; save=embed_tokens,lm_head trains these
    modules in full; match=REGEX, last, matches whole paths; method=NAME, first, is another method of peft, with
    options of its configuration, like method=oft,oft_block_size=32,target=q_proj,v_proj."""

    loss: Values
    """Loss of a .pt2 model: cross-entropy, token-cross-entropy, mse, bce, l1, sum, output (default: output if the
    model returns a loss, else cross-entropy)."""

    model: Values
    """Name of the model (see vprof models), a file of torch.export (model.pt2), or hf: and a config.json of
    transformers."""

    objective: Values
    """Train by preferences or rewards instead of next-token prediction, by name: cpo, dpo, gkd, grpo, kto, orpo,
    reward, simpo; options like dpo:precomputed,as=llama-factory."""

    offline: bool
    """Fetch no model's configuration from the Hugging Face hub."""

    optimizer: Values
    """Name of the optimizer (default: the model's): adamw, adamw-fused, adamw-single, amsgrad, adam, adam-wd, sgd,
    sgd-momentum, sgd-momentum-wd, rmsprop, adagrad, adadelta, adafactor, adafactor-foreach, adamax, nadam, muon,
    adamw8bit, paged-adamw8bit, paged-adamw32bit, lion8bit, lion32bit, paged-lion8bit, paged-lion32bit,
    galore-adamw, galore-adamw8bit, galore-adafactor, adafactor-transformers, adamw8bit-torchao, adamw-fp8,
    adamw4bit, none; optimizers that project gradients take options like galore-adamw:rank=64,target=attn+mlp."""

    optimizer_in_backward: bool
    """Update each parameter in backward, as soon as its gradient is computed, and free the gradient."""

    pad_to_multiple_of: int
    """Pad the length of batches to a multiple of n."""

    quantize: Values
    """Store the frozen layers below adapters (--lora) in bitsandbytes' type: nf4, nf4-dq, int8, nf4+experts,
    nf4-dq+experts, int8+experts."""

    seq_len: Values
    """Number n of tokens in a sequence, for models of text (default: the model's)."""

    set: Values
    """An option without a flag (see vprof help options) or a setting of the model (see vprof models show), as
    name=value; may be repeated."""

    stack: Values
    """Estimate training with these releases of libraries, like transformers=5.12,trl=1.16, or of a file: uv.lock,
    requirements.txt, pixi.lock, environment.yml, pyproject.toml, or a Python (default: the newest known)."""

    stage: Values
    """Freeze stage (default: the model's)."""

    task: Values
    """What an hf: model is trained for: task is causal-lm, masked-lm, classification, token-classification,
    transcription, ctc (default: from its configuration)."""

    torch: Values
    """Estimate training with this release of PyTorch, like 2.15; auto reads it from a .pt2 model, or else from
    uv.lock, requirements.txt or pyproject.toml beside vprof.yaml (default 2.15)."""

    torch_compile: bool
    """Estimate the step under torch.compile: as vprof capture --compile has recorded it, or else from the eager
    step, with a wide interval."""

    train_only: Values
    """Train only the parameters whose names match a regex, such as 'layers\\.(30|31)\\.|lm_head', and freeze the
    others."""

    weights: Values
    """Type of the weights: fp32, bf16, fp16 (default: the model's; for an hf: model, its configuration's dtype)."""


class PlanOptions(CaseOptions, total=False):
    """Options of vprof plan."""

    batch: Values
    """Batch sizes: a list like 8,16,32 or ranges like 8..128x2, 8..64+8 and 1..8 (default: the model's own batch)."""

    gpu: Values
    """GPUs: a list like rtx-3060,a100-80, or all (see vprof gpus)."""

    rank: Values
    """Estimate rank n; for plan, all shows a table of ranks (default: the one that needs most)."""

    strategy: Values
    """How the ranks share the work, by name and options like fsdp2:mp=bf16,replicate=2: ddp, fsdp1, fsdp2, tp,
    zero1, zero2, zero3, pp, device-map (see vprof help strategies)."""


class FitOptions(CaseOptions, total=False):
    """Options of vprof fit."""

    apply: bool
    """Write the recommendation into the project's configuration, with a .backup of each file."""

    batch: int
    """Show which configurations fit batch n, and their speed (default: the largest batch of each)."""

    batch_multiple: int
    """Try only batches that are multiples of n, such as 8 for tensor cores."""

    config_path: Values
    """The project's configuration file (default with --apply: the path in the model's project)."""

    device: Values
    """Device to measure on, like cuda:0, or sim:NAME to simulate, like --gpu."""

    dry_run: bool
    """With --apply: show the changes without writing them."""

    gpu: Values
    """GPUs: one like rtx-3060, a list, or all (see vprof gpus)."""

    levers: bool
    """Search the memory-saving options: liger-kernel, 8-bit and paged optimizers, the optimizer in backward,
    quantized layers, offload; and explain what each saves."""

    map: Values
    """With --apply: key of a value in any YAML, TOML or JSON file, as name=path.to.key; names are batch,
    accumulate, amp, checkpointing, effective and settings (repeatable)."""

    max_batch: int
    """Largest batch n to try."""

    measured: Values
    """Measured time of a step with these options (of the first stage) on the GPU, like 0.42s; 0.42s@8 was measured
    at batch 8."""

    other_processes: Values
    """Assume that other processes use this size of memory, like 1GiB."""

    profile: bool
    """Like --auto, and also measure the recommendation on the GPU."""

    risk: Values
    """Instead of --safety-margin: accepted probability that a step needs more than the memory, like 1%."""

    safety_margin: Values
    """Largest share of the memory that a step may need, or a name: conservative, balanced, aggressive, ultra."""

    search: Values
    """What to maximize: batch, or seq-len, the longest sequence that fits at --batch."""

    strategy: Values
    """How the ranks share the work, by name and options: ddp, fsdp1, fsdp2, tp, zero1, zero2, zero3, pp, device-map
    (see vprof help strategies); auto searches them."""

    target_effective_batch: int
    """Number n of samples in an optimizer step, by accumulation (default: any)."""

    tune: Values
    """Also search a setting of the model, as name=values with values like 8..24+8 (repeatable)."""


class SmokeOptions(CaseOptions, total=False):
    """Options of vprof smoke."""

    batch: int
    """Batch size n (default: the configuration's, or the model's)."""

    config_path: Values
    """The project's configuration file to test."""

    device: Values
    """Device to measure on, like cuda:0, or sim:NAME to simulate, like --gpu."""

    gpu: Values
    """GPU to simulate (see vprof gpus)."""

    json: bool
    """Short for --format json."""

    longest: Values
    """A setting of the model for the longest sample, as name=value (repeatable)."""

    map: Values
    """Key of a value in any other YAML, TOML or JSON of --config-path, as name=path.to.key; names are batch,
    accumulate, amp, checkpointing and settings (repeatable)."""

    other_processes: Values
    """Assume that other processes use this size of memory, like 1GiB."""

    profile: bool
    """Like --auto, and also measure the recommendation on the GPU."""

    rank: Values
    """Estimate rank n; for plan, all shows a table of ranks (default: the one that needs most)."""

    risk: Values
    """Instead of --safety-margin: accepted probability that a step needs more than the memory, like 1%."""

    run: bool
    """Run the command after -- on the simulated GPU, as vprof run does, instead of reading its options."""

    safety_margin: Values
    """Largest share of the memory that a step may need, or a name: conservative, balanced, aggressive, ultra."""

    strategy: Values
    """How the ranks share the work, by name and options like fsdp2:mp=bf16,replicate=2: ddp, fsdp1, fsdp2, tp,
    zero1, zero2, zero3, pp, device-map (see vprof help strategies)."""

    tolerance: Values
    """Accepted growth since the baseline, as a share."""

    until: Values
    """With --run, run until an event: eval, save or end."""

    validation_batch: int
    """Batch size n of validation (default: the project's, or that of training)."""

    watch_baseline: Values
    """Also compare with file, an earlier result of --format json."""


class RunOptions(TypedDict, total=False):
    """Options of vprof run."""

    activation_memory_budget: float
    """The share of activations that torch.compile keeps for backward (default: the script's)."""

    both: bool
    """Simulate this machine's GPU, run on it, too, and compare."""

    data_shapes: Values
    """A file of JSON with the columns, images and samples of absent data (see vprof help run)."""

    device: Values
    """Run on this device and measure: cuda:0; or sim:NAME, as --gpu."""

    fetch: bool
    """With placeholders, fetch only configurations and headers of weights from HF_ENDPOINT, no values."""

    gpu: Values
    """The GPU that PyTorch finds, or several with commas between them (see vprof gpus)."""

    gpu_memory: Values
    """Set the GPU's total memory to size, like 12GiB, 12 (GiB) or 70%."""

    gpu_spec: Values
    """Simulate the GPU that a YAML file describes (see vprof help gpu-spec)."""

    gpus: int
    """Number of ranks in the script's job; one of them is run."""

    inductor_cache: Values
    """Folder where torch.compile caches its code and autotuning for later runs; none for a fresh machine, which
    tunes first (default: a cache that vprof keeps per GPU)."""

    keep_files: bool
    """Keep what the script saves, and let experiment trackers record."""

    lengths: Values
    """Of absent data, the lengths of samples in tokens: a file of them, or a distribution such as
    lognormal:mean=512,p95=1500 (default: the length to which the script cuts)."""

    offline: bool
    """Fetch no model's configuration from the Hugging Face hub."""

    print_hook: bool
    """Print the Python that runs beside the script and do nothing."""

    rank: Values
    """With --gpus, the number of the rank that is run, or all, one after the other."""

    record: Values
    """Store the allocations in a file like train.vprof, which other commands accept as a model: vprof plan --model
    train.vprof --gpu all."""

    steps: Values
    """End training after this many steps of each optimizer, or all (default: 3, and the longest batches of the data
    set)."""

    timeout: Values
    """End the command after this time, like 30m; 0s never does."""

    triton: bool
    """Let Triton compile the kernels of torch.compile, which takes longer and needs the same memory."""

    until: Values
    """Run until an event: eval, save, or end (the script's own end)."""

    without_data: bool
    """Put placeholders in place of absent data sets and tokenizers, without a network."""

    without_weights: bool
    """Put placeholders without values in place of absent weights, without a network."""


# Options that the process behind the functions takes: they write no file and use no GPU of this machine.
ANSWERED = {
    "plan": frozenset(PlanOptions.__annotations__) - {
        "auto", "offline"},
    "fit": frozenset(FitOptions.__annotations__) - {
        "apply", "auto", "config_path", "device", "dry_run", "map", "offline"},
    "smoke": frozenset(SmokeOptions.__annotations__) - {
        "auto", "config_path", "device", "map", "offline"},
}
