accelerate launch --config_file accelerate.yaml train.py \
  --model_name_or_path example/small-llama --output_dir out \
  --per_device_train_batch_size 1 --bf16 --gradient_checkpointing \
  --max_length 4096 --optim paged_adamw_32bit
