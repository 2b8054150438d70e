package main

import "github.com/spf13/cobra"

const unitsHelp = `Amounts of memory are given and shown in powers of two, as in PyTorch's messages
and nvidia-smi: 1 GiB is 1073741824 bytes.

  12GiB 12G 12g    12 GiB; a plain letter is a power of two, too
  12GB             12,000,000,000 bytes, as memory is sold
  12884901888      bytes

Machine formats hold bytes as integers, always. Columns of a table share a unit,
which stands in their head; <0.01 is more than zero.

Four counts are kept apart, and every figure says which one it is:

  requested   what tensors ask for
  allocated   requested, rounded by the caching allocator: torch.cuda.memory_allocated()
  reserved    what the allocator holds of the driver: torch.cuda.memory_reserved()
  device      what the driver and nvidia-smi see: reserved, and the CUDA context
`

// accuracyHelp belongs to the command accuracy.
const accuracyHelp = `Where a figure comes from decides how far to trust it:

  exact       weights, buffers, gradients, optimizer state; all that PyTorch's own
              code allocates, which vprof records as PyTorch would
  modeled     workspaces of cuDNN's convolutions: rules found from cuDNN's own answers
  estimate    the CUDA context: it differs between drivers and boards
  not known   what else a program puts on the GPU: data loaders, other processes

An estimate comes with a range, [low, high]: the middle 95 % of how far such
estimates were from records of real PyTorch. What plan and sweep show was replayed
at that very batch size. Where fit compares several boards, an estimate between two
replayed sizes adds the largest error that interpolation made on a size held out. The
device's count adds the uncertainty of the context.

A simulated run is the recorded step, carried out by PyTorch's caching allocator on
memory that is only counted. It is exact where the recording is, and never called
measured. Times of a simulated run are lower bounds: kernels at the board's full
speed.

vprof calibrate corrects estimates by measured runs.`

const strategiesHelp = `With --gpus N, N ranks train together, one on each GPU, by a --strategy: its name,
and options after a colon. vprof records what one rank allocates, in its order and on
its streams: rank --rank, or the one that needs most. plan --rank all is a table of
all ranks that differ.

  ddp     DistributedDataParallel
            bucket_view=true       gradient_as_bucket_view
            bucket_cap_mb=N        size of the buckets (default: 25, the first 1)
            static_graph=true
            find_unused=true       find_unused_parameters
  zero1   the same with ZeroRedundancyOptimizer: a rank has a share of the state
            engine=deepspeed       DeepSpeed's stage 1, with the options of zero2
  zero2   DeepSpeed's stage 2: all weights that train in one flat buffer, of which a rank
          steps a part, in fp32; in the type of the weights (--amp none --weights bf16)
            bucket=N|auto          reduce_bucket_size, in elements (default: 5e8)
            overlap=true           overlap_comm
            offload=optimizer      master weights and the optimizer's state on the host
  zero3   its stage 3: a rank has a part of each weight, and modules gather theirs
            bucket=, prefetch=N|auto, persist=N|auto, reuse=N, live=N, part=N
                                   reduce_bucket_size, stage3_prefetch_bucket_size,
                                   stage3_param_persistence_threshold,
                                   stage3_max_reuse_distance,
                                   stage3_max_live_parameters, sub_group_size
            overlap=false          without overlap_comm, which it has unless told
            contiguous=false       without contiguous_gradients: no bucket of gradients
            offload=optimizer|params|all
  fsdp2   fully_shard of the children of the longest list of equal modules, then of
          the model
            reshard=true|false|auto|N  reshard_after_forward: all, none, or all but the
                                     root, as PyTorch does if it is not told; with N, as
                                     the GPUs of a node, N ranks share them until backward
            mp=bf16|fp16           MixedPrecisionPolicy(param_dtype), with gradients
                                     reduced in fp32
            reduce=fp32|bf16|fp16  reduce_dtype
            replicate=R            R copies of the model, each on N/R ranks (HSDP)
            wrap=PATTERNS          modules to wrap, like wte+h.*; none: the root alone.
                                     Together in one call: ln_f:lm_head the two, h.*/2
                                     two of the blocks at a time
            init=meta|device       the model comes to the device shard by shard (default),
                                   or is there as a whole before it is sharded
            offload=all            CPUOffloadPolicy: shards, gradients and state on the host
  tp      parallelize_module of the linear layers of each block over the ranks of a
          group, and fully_shard over the groups: q_proj, k_proj, v_proj, gate_proj,
          up_proj and up column-wise, o_proj, down_proj and down row-wise, or as
          transformers plans GPT-NeoX, StarCoder2, Phi and nanochat; OPT likewise
            tp=N                   ranks of a group; there are at least two groups
            col=NAMES row=NAMES    other layers, like col=query+key+value,row=dense
            reshard=, mp=, reduce=, replicate=, wrap=, init=   as of fsdp2 (default:
                                   reshard=auto)
  pp      a pipeline (torch.distributed.pipelining): a stage on each GPU, with the blocks
          of the longest list of equal modules shared out evenly. The batch is that of
          one micro-batch, and the model's loss what the last stage computes.
            schedule=1f1b|gpipe|interleaved
            stages=N               stages of a rank of an interleaved one (default: 2)
            micro=N                micro-batches of a step (default: as many as stages)
            split=BLOCKS           the blocks that stages but the first begin with, by
                                     paths or numbers, like 5+10+15

ddp and fsdp2 take, for mixtures of transformers,
            ep=N                   N ranks share out the experts, and exchange tokens

All but pp take, for decoders of transformers,
            cp=N                   N ranks share each sequence (context parallelism)
            cp_by=ulysses|llama3|ring   by exchanging tokens for heads of attention, as
                                     DeepSpeed and ms-swift do (default), or by gathering
                                     keys and values head by head, or sending them round,
                                     as ring-flash-attn does

Strategies whose ranks each train on a batch of their own have no_sync=false: gradients
are reduced after every micro-batch of a step, and not after the last alone.

The batch size is that of one rank. Device bytes count what NCCL takes for itself,
which is an assumption with a wide range.
`

const gpuSpecHelp = `--gpu-spec FILE simulates a board that the catalog does not have. The file is YAML:

  name: my-board
  like: rtx-4090            # what is left out is this board's
  memory: 48GiB

or, without a board that it is like, at least

  name: my-board
  memory: 20GiB             # as the driver reports it: less than what is sold
  compute_capability: 8.9
  multiprocessors: 46

and, as far as known: context (what a CUDA context takes), threads_per_multiprocessor,
bandwidth_gb_per_s, and the dense rates fp32_tflops, tf32_tflops, fp16_tflops,
bf16_tflops, fp64_tflops, without which there are no times.
`

// newTopics are the help pages that belong to no command.
func newTopics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "exit-codes", Short: "What vprof's exit codes mean", Long: exitCodesHelp},
		{Use: "formats", Short: "What the output formats hold", Long: formatsHelp},
		{Use: "gpu-spec", Short: "How to describe a board of your own", Long: gpuSpecHelp},
		{Use: "trainers", Short: "How to plan from a trainer's configuration", Long: trainerHelp},
		{Use: "strategies", Short: "How several GPUs can train together", Long: strategiesHelp},
		{Use: "units", Short: "How amounts of memory are given and counted", Long: unitsHelp},
	}
}
