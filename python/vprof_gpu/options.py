"""Options of the functions, as the commands have them. Generated: go test ./cli -run Python -update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict, Union

Value = Union[str, int, float, bool]
Values = Union[Value, Sequence[Value], Mapping[str, Value]]


class CaseOptions(TypedDict, total=False):
    """Options of all commands that plan a case."""

    accumulate: Values
    """Accumulate the gradients of n micro-batches in each optimizer step (default: the model's)."""

    alloc_conf: Values
    """Settings of PyTorch's allocator, as in PYTORCH_CUDA_ALLOC_CONF, like expandable_segments:True."""

    amp: Values
    """Precision of torch.autocast: none, fp16, bf16 (default: the model's)."""

    auto: bool
    """Estimate for this machine's GPU, without the memory that other processes use."""

    batching: Values
    """Kind of batches: padded (to the longest sample), grouped (samples of similar length, padded), packed (several
    samples in a sequence)."""

    checkpointing: Values
    """Recompute activations in backward (activation checkpointing), and how: true, false, non-reentrant, reentrant,
    reentrant-trained (only layers with trained parameters), every=2 (every second layer), selective=mm,sdpa
    (keeps the results of these operators) (default: the model's)."""

    clip: Values
    """Clip gradients, and how: norm (clip_grad_norm_) or none (default: as the model's project does)."""

    coefficients: Values
    """Correct estimates with a coefficients file of vprof calibrate; FILE#NAME selects an entry, none turns it off
    (default: the file named by vprof.yaml, here or in a folder above)."""

    dataset_on_gpu: Values
    """Also count training data of this size that stays on the GPU, like 3.2GiB (default: none)."""

    evaluate: Values
    """Evaluate between training steps, with options: batch=8 sets the batch size (default: the training's);
    scores=4 keeps the logits of 4 batches on the GPU, as eval_accumulation_steps of transformers' Trainer does
    (default: only losses are kept); new-tokens=128 generates tokens, without a loss; none leaves evaluation out."""

    gpu_memory: Values
    """Set the GPU's total memory to size, like 12GiB, 12 (GiB) or 70%."""

    gpu_spec: Values
    """Simulate the GPU that a YAML file describes (see vprof help gpu-spec)."""

    gpus: int
    """Train on n equal GPUs, one process (rank) on each; results are for one rank."""

    host_memory: Values
    """Also check that host memory of this size suffices, like 64GiB or 64 (GiB)."""

    lengths: Values
    """Replay epochs over samples of different lengths: a file with one length a line, or a distribution such as
    lognormal:mean=512,p95=1500."""

    liger: bool
    """Compute norms, rotary embeddings, feed-forward layers and the loss with liger-kernel."""

    link: float
    """Speed of a GPU's link to the others, in GB/s (default: the GPU's NVLink, else PCIe)."""

    loop: Values
    """Loop that trains, which decides when the model's outputs other than the loss are freed: trainer, function,
    plain; trainer frees them at once, function when the step ends, plain when the next forward pass has returned
    (default: trainer; for a .pt2 model, function)."""

    lora: Values
    """Train LoRA adapters instead of the model, with options like r=8,alpha=16,target=all-linear or
    r=8,target=q_proj,v_proj; dora=true uses DoRA; towers=false adapts no image or audio encoder;
    parameters=experts.gate_up_proj,experts.down_proj also adapts experts; save=embed_tokens,lm_head also trains
    these modules in full; match=REGEX, as the last option, adapts modules whose whole path matches; method=NAME,
    as the first, uses another method of peft with its options, like
    method=oft,oft_block_size=32,target=q_proj,v_proj."""

    loss: Values
    """Loss of a .pt2 model: cross-entropy, token-cross-entropy, mse, bce, l1, sum, output; output is the model's
    own loss (default: output, else cross-entropy)."""

    model: Values
    """Model to train: a name (see vprof models), hf:Qwen/Qwen3-8B or hf:config.json for transformers, model.pt2 of
    torch.export, or a recorded run.vprof."""

    objective: Values
    """Train with this objective instead of next-token prediction, by name: cpo, dpo, gkd, grpo, kto, orpo, reward,
    simpo; with options like dpo:precomputed,as=llama-factory."""

    offline: bool
    """Do not fetch configurations of models from the Hugging Face hub."""

    optimizer: Values
    """Name of the optimizer (default: the model's): adamw, adamw-fused, adamw-single, amsgrad, adam, adam-wd, sgd,
    sgd-momentum, sgd-momentum-wd, rmsprop, adagrad, adadelta, adafactor, adafactor-foreach, adamax, nadam, muon,
    adamw8bit, paged-adamw8bit, paged-adamw32bit, lion8bit, lion32bit, paged-lion8bit, paged-lion32bit,
    galore-adamw, galore-adamw8bit, galore-adafactor, adafactor-transformers, adamw8bit-torchao, adamw-fp8,
    adamw4bit, none; optimizers that project gradients accept options like galore-adamw:rank=64,target=attn+mlp."""

    optimizer_in_backward: bool
    """Update each parameter in backward, as soon as its gradient is computed, and free the gradient."""

    pad_to_multiple_of: int
    """Pad sequences to a multiple of n tokens."""

    quantize: Values
    """Quantize the frozen layers under the adapters of --lora to this bitsandbytes type: nf4, nf4-dq, int8,
    nf4+experts, nf4-dq+experts, int8+experts (dq: double quantization; +experts: experts, too)."""

    seq_len: Values
    """Length of a sequence for text models, as n tokens (default: the model's)."""

    set: Values
    """Set an option that has no flag (see vprof help options) or a setting of the model (see vprof models show), as
    name=value (repeatable)."""

    stack: Values
    """Estimate training with these releases of libraries, like transformers=5.12,trl=1.16, or the releases in
    uv.lock, requirements.txt, pixi.lock, environment.yml, pyproject.toml or a Python interpreter (a path)
    (default: the newest known)."""

    stage: Values
    """Stage of training: which layers are frozen; vprof models show lists them (default: the model's)."""

    task: Values
    """Task that a transformers model (hf:) is trained for: causal-lm, masked-lm, classification,
    token-classification, transcription, ctc (default: read from its config.json)."""

    torch: Values
    """Estimate training with this release of PyTorch, like 2.15; auto reads it from a .pt2 model, or else from
    uv.lock, requirements.txt or pyproject.toml beside vprof.yaml (default: 2.15)."""

    torch_compile: bool
    """Estimate the step under torch.compile, from a recording of vprof capture --compile, or else from the eager
    step with a wide interval."""

    train_only: Values
    """Train only the parameters whose names match a regex, such as 'layers\\.(30|31)\\.|lm_head', and freeze the
    others."""

    weights: Values
    """Type of the weights: fp32, bf16, fp16 (default: the model's; for hf: models, the dtype of config.json)."""


class PlanOptions(CaseOptions, total=False):
    """Options of vprof plan."""

    batch: Values
    """Batch sizes: a list like 8,16,32 or ranges like 8..128x2, 8..64+8 and 1..8 (default: the model's own batch)."""

    gpu: Values
    """GPUs: a list like rtx-3060,a100-80, or all (see vprof gpus)."""

    rank: Values
    """Estimate rank n; vprof plan also accepts all, for a table of all ranks (default: the rank that needs most)."""

    strategy: Values
    """How the GPUs (ranks) share the work, by name and options like fsdp2:mp=bf16,replicate=2: ddp, fsdp1, fsdp2,
    tp, zero1, zero2, zero3, pp, device-map (see vprof help strategies)."""


class FitOptions(CaseOptions, total=False):
    """Options of vprof fit."""

    apply: bool
    """Write the recommendation into the project's configuration, with a .backup of each file."""

    batch: int
    """Show which configurations fit batch n, and their speed (default: the largest batch of each)."""

    batch_multiple: int
    """Try only batches that are multiples of n, such as 8 for tensor cores."""

    config_path: Values
    """The project's configuration file (default with --apply: the one in the folder of the model's project)."""

    device: Values
    """Measure on this device, like cuda:0; sim:NAME simulates a GPU, as --gpu does."""

    dry_run: bool
    """With --apply: show the changes without writing them."""

    gpu: Values
    """GPUs: one like rtx-3060, a list, or all (see vprof gpus)."""

    levers: bool
    """Search the memory-saving options: liger-kernel, 8-bit and paged optimizers, the optimizer in backward,
    quantized layers, offload; and explain what each saves."""

    map: Values
    """With --apply: write a value to this key of a YAML, TOML or JSON file, as name=path.to.key; names: batch,
    accumulate, amp, checkpointing, effective (effective batch size), or a setting of the model (repeatable)."""

    max_batch: int
    """Largest batch n to try."""

    measured: Values
    """Scale estimates to the measured time of a step with these options (of the first stage) on the GPU, like
    0.42s, or 0.42s@8 if measured at batch 8."""

    other_processes: Values
    """Assume that other processes use this size of memory, like 1GiB."""

    profile: bool
    """Like --auto, and also measure the result on the GPU."""

    risk: Values
    """Accepted probability that a step runs out of memory, like 1%, instead of --safety-margin."""

    safety_margin: Values
    """Largest share of the GPU's memory that a step may need, or a name: conservative, balanced, aggressive, ultra."""

    search: Values
    """What to maximize: batch, or seq-len, the longest sequence that fits at --batch."""

    strategy: Values
    """How the ranks share the work, by name and options: ddp, fsdp1, fsdp2, tp, zero1, zero2, zero3, pp, device-map
    (see vprof help strategies); auto searches them."""

    target_effective_batch: int
    """Number n of samples in an optimizer step, reached by accumulation (default: any)."""

    tune: Values
    """Also search values of a model's setting, as name=values like n-negatives=8..24+8 (repeatable)."""


class SmokeOptions(CaseOptions, total=False):
    """Options of vprof smoke."""

    batch: int
    """Batch size n (default: the configuration's, or the model's)."""

    config_path: Values
    """The project's configuration file to test."""

    device: Values
    """Measure on this device, like cuda:0; sim:NAME simulates a GPU, as --gpu does."""

    gpu: Values
    """GPU to simulate (see vprof gpus)."""

    json: bool
    """Short for --format json."""

    longest: Values
    """A setting of the model in the longest sample, as name=value like seq-len=4096 (repeatable)."""

    map: Values
    """Read a value from this key of --config-path, as name=path.to.key; names: batch, accumulate, amp,
    checkpointing, or a setting of the model (repeatable)."""

    other_processes: Values
    """Assume that other processes use this size of memory, like 1GiB."""

    profile: bool
    """Like --auto, and also measure the result on the GPU."""

    rank: Values
    """Estimate rank n; vprof plan also accepts all, for a table of all ranks (default: the rank that needs most)."""

    risk: Values
    """Accepted probability that a step runs out of memory, like 1%, instead of --safety-margin."""

    run: bool
    """Run the command after -- on the simulated GPU, as vprof run does, instead of reading its options."""

    safety_margin: Values
    """Largest share of the GPU's memory that a step may need, or a name: conservative, balanced, aggressive, ultra."""

    strategy: Values
    """How the GPUs (ranks) share the work, by name and options like fsdp2:mp=bf16,replicate=2: ddp, fsdp1, fsdp2,
    tp, zero1, zero2, zero3, pp, device-map (see vprof help strategies)."""

    tolerance: Values
    """Largest accepted growth of memory since the baseline, as a share like 2% or 0.02."""

    until: Values
    """With --run, run until an event: eval, save or end."""

    validation_batch: int
    """Batch size n of validation (default: the project's, or that of training)."""

    watch_baseline: Values
    """Compare with an earlier result of --format json in file; growth above --tolerance exits with code 3."""


class RunOptions(TypedDict, total=False):
    """Options of vprof run."""

    activation_memory_budget: float
    """Share of activations that torch.compile keeps for backward, from 0 to 1 (default: the script's)."""

    both: bool
    """Simulate this machine's GPU, then run on the GPU itself, and compare."""

    data_shapes: Values
    """JSON file that describes the columns, images and samples of absent data (see vprof help run)."""

    device: Values
    """Run and measure on this device, like cuda:0; sim:NAME is like --gpu NAME."""

    fetch: bool
    """Fetch configurations and headers of weights from HF_ENDPOINT, no values."""

    gpu: Values
    """Simulate this GPU, or several separated by commas, one run each (see vprof gpus)."""

    gpu_memory: Values
    """Set the GPU's total memory to size, like 12GiB, 12 (GiB) or 70%."""

    gpu_spec: Values
    """Simulate the GPU that a YAML file describes (see vprof help gpu-spec)."""

    gpus: int
    """Simulate a job on this number of GPUs, a process (rank) each; see --rank."""

    inductor_cache: Values
    """Folder in which torch.compile caches code and tuning; none starts without a cache, as on a new machine
    (default: a cache that vprof keeps per GPU)."""

    keep_files: bool
    """Keep files that the script saves, and let experiment trackers record."""

    lengths: Values
    """Lengths of placeholder samples in tokens: a file of them, or a distribution such as
    lognormal:mean=512,p95=1500 (default: the length to which the script truncates)."""

    offline: bool
    """Do not fetch configurations of models from the Hugging Face hub."""

    print_hook: bool
    """Print the Python hook that vprof adds to the script, and exit."""

    rank: Values
    """With --gpus, number of the rank to run, from 0, or all, one after the other."""

    record: Values
    """Store the allocations in a file like train.vprof, which other commands accept as a model: vprof plan --model
    train.vprof --gpu all."""

    steps: Values
    """End training after this many steps of each optimizer; all runs to the end (default: 3, and up to 3 with the
    longest batches)."""

    timeout: Values
    """End the command after this time, like 30m; 0s sets no limit."""

    triton: bool
    """Let Triton compile the kernels of torch.compile, which takes longer and needs the same memory."""

    until: Values
    """Run until this event: eval, save (of a checkpoint), or end (of the script)."""

    without_data: bool
    """Replace absent data sets and tokenizers by placeholders, without network access."""

    without_weights: bool
    """Replace absent weights by placeholders without values, without network access."""


# Options that the process behind the functions takes: they write no file and use no GPU of this machine.
ANSWERED = {
    "plan": frozenset(PlanOptions.__annotations__) - {
        "auto", "offline"},
    "fit": frozenset(FitOptions.__annotations__) - {
        "apply", "auto", "config_path", "device", "dry_run", "map", "offline"},
    "smoke": frozenset(SmokeOptions.__annotations__) - {
        "auto", "config_path", "device", "map", "offline"},
}
