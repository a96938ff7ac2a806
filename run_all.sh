#!/usr/bin/env bash
# Everything: set-up, data, (CPU profile: tiny policy and its warm start,) three stages, table and report page.
# Arguments are Hydra overrides for every stage, or `stage2:key=value` for one, and the options of recipe.curriculum:
# --curriculum with_stage4, --stages stage1,stage2, --ablations ablations (docs/curriculum.md).
# Run it again after an interruption and it goes on where it stopped.
#   MODEL=/path   start model of stage 1 (CPU profile: the tiny policy)
#   RUN=name      results in outputs/<name>      SEED, TRAIN_BATCH_SIZE, MINI_BATCH_SIZE, HARDWARE=cpu|gpu1|gpu8|gpu8_24gb
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
bash setup.sh
HARDWARE=$(<.venv/profile)
export HARDWARE
data=data/$HARDWARE
if [[ $HARDWARE == cpu ]]; then # a second, and the same bytes every time
    .venv/bin/python -m data_prep --out "$data" --tiny
elif [[ ! -f $data/manifest.json ]]; then
    .venv/bin/python -m data_prep --out "$data"
fi
exec .venv/bin/python -m recipe.curriculum "$@"
