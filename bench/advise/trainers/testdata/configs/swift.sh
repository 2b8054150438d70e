#!/usr/bin/env bash
# 4 GPUs, 16 samples a step
nproc_per_node=4
PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' \
NPROC_PER_NODE=$nproc_per_node \
swift sft \
    --model example/small-qwen \
    --tuner_type lora \
    --dataset 'mine#1000' \
    --torch_dtype bfloat16 \
    --per_device_train_batch_size 2 \
    --gradient_accumulation_steps $(expr 16 / $nproc_per_node) \
    --lora_rank 8 --lora_alpha 32 \
    --target_modules q_proj v_proj \
    --max_length 2048 \
    --deepspeed zero2 \
    --attn_impl flash_attn
