#!/usr/bin/env bash
# Stage 0, supervised warm start. Arguments are Hydra overrides: bash run_sft.sh trainer.total_epochs=1
# On conversations of yours: bash run_sft.sh data.train_files=chat.jsonl data.val_share=0.05 (docs/offline.md)
#   MODEL=/path   start model (CPU: smollm2)      RUN=name      HARDWARE=cpu|tiny|gpu1|gpu8|gpu8_24gb
source "$(dirname "${BASH_SOURCE[0]}")/recipe/scripts.sh" || exit 1
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
[[ "${HARDWARE:-}" == gpu1 ]] && gpus=1
if [[ "${HARDWARE:-}" =~ ^(cpu|tiny)$ || $gpus -eq 0 ]]; then
    exec .venv/bin/python -m recipe.sft "$@"
fi
# torchrun's own stores would listen on every interface of the machine: one is a file, the other the training's
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
exec .venv/bin/torchrun --rdzv-backend=c10d --rdzv-conf=store_type=file --local-addr=127.0.0.1 \
    --nproc_per_node="$gpus" -m recipe.sft "$@"
