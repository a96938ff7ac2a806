#!/usr/bin/env bash
# Everything: set-up, data, (CPU profile: tiny policy and its warm start,) three stages, table and report page.
# Arguments are Hydra overrides for every stage, or `stage2:key=value` for one, and the options of recipe.curriculum:
# --curriculum with_stage4 | tau | qwen3_4b, --stages stage1,stage2, --ablations ablations (docs/curriculum.md).
# preflight_only=true checks every stage and starts nothing.
# Run it again after an interruption and it goes on where it stopped.
#   MODEL=/path   start model of stage 1 (CPU profile: the tiny policy)
#   RUN=name      results in outputs/<name>      SEED, TRAIN_BATCH_SIZE, MINI_BATCH_SIZE, HARDWARE=cpu|gpu1|gpu8|gpu8_24gb
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/recipe/scripts.sh"
bash setup.sh
HARDWARE=$(<.venv/profile)
export HARDWARE
data=data/$HARDWARE
options=()
arguments=("$@")
if [[ " $* " =~ " --curriculum"[=\ ]([^ ]*/)?tau(_cpu)?(\.yaml)?" " ]]; then
    data=$data/tau
    options=(--environment tau --option policy=workflow --option one_thing_a_message=true)
    if [[ $HARDWARE == cpu ]]; then # one stage, of the tasks that the tiny policy can learn
        options=(--environment tau --protocol python_calls --docs signature)
        options+=(--option policy=none --option show_functions=false)
        arguments+=(--curriculum tau_cpu)
    fi
fi
if [[ $HARDWARE == cpu ]]; then # a second, and the same bytes every time
    .venv/bin/python -m data_prep --out "$data" --tiny "${options[@]}"
elif [[ ! -f $data/manifest.json ]]; then
    .venv/bin/python -m data_prep --out "$data" "${options[@]}"
fi
exec .venv/bin/python -m recipe.curriculum "${arguments[@]}"
