#!/bin/bash
#SBATCH --job-name=vprof-lab-t4.gpu-small
#SBATCH --partition=gpu-small
#SBATCH --gres=gpu:t4:1
#SBATCH --array=0-2,7,11%4
#SBATCH --output="/shared/my lab.fleet/t4.gpu-small/log/task-%a-%A.txt"
#SBATCH --account=team
#SBATCH --qos=long
#SBATCH --time=2:00:00
#SBATCH --mem=16G
#SBATCH --cpus-per-task=4
#SBATCH --exclude=n3,n4
#SBATCH --requeue
#SBATCH --constraint=nvlink
module load cuda
ulimit -n 4096
exec apptainer exec --nv --bind '/shared/my lab.fleet' '/images/it'\''s vprof.sif' /usr/bin/vprof fleet task '/shared/my lab.fleet/t4.gpu-small' --shard "$SLURM_ARRAY_TASK_ID/12"
