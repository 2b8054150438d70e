# QLoRA of a 3B model with TRL on two GPUs.
MODEL=Qwen/Qwen2.5-3B
accelerate launch --num_processes 2 sft.py \
  --model_name_or_path $MODEL --dataset_name trl-lib/Capybara \
  --use_peft --lora_r 16 --lora_target_modules all-linear --load_in_4bit \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --gradient_checkpointing \
  --max_length 2048 --bf16 --output_dir out
