#!/usr/bin/env bash
# Stage 0, supervised warm start. Arguments are Hydra overrides: bash run_sft.sh trainer.total_epochs=1
#   MODEL=/path   start model (CPU profile: the tiny policy)      HARDWARE=cpu|gpu1|gpu8|gpu8_24gb
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
[[ "${HARDWARE:-}" == gpu1 ]] && gpus=1
if [[ "${HARDWARE:-}" == cpu || $gpus -eq 0 ]]; then
    exec .venv/bin/python -m recipe.sft "$@"
fi
exec .venv/bin/torchrun --standalone --nproc_per_node="$gpus" -m recipe.sft "$@"
