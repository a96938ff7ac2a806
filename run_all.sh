#!/usr/bin/env bash
# Everything: set-up, data, (on a CPU: a pretrained model of 135 M and its warm start,) three stages, table, report page.
# Arguments are Hydra overrides for every stage, or `stage2:key=value` for one, and the options of recipe.curriculum:
# --curriculum tiny | long | with_stage4 | tau | qwen3_4b, --stages stage1,stage2, --ablations ablations (docs/train.md).
# preflight_only=true checks every stage and starts nothing.
# Run it again after an interruption and it goes on where it stopped.
#   MODEL=/path   start model of stage 1; on a CPU of its warm start (without it: smollm2)
#   RUN=name      results in outputs/<name>      SEED, TRAIN_BATCH_SIZE, MINI_BATCH_SIZE, HARDWARE=cpu|tiny|gpu1|gpu8|gpu8_24gb
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/recipe/scripts.sh"
curriculum=
[[ " $* " =~ " --curriculum"[=\ ]([^ ]*/)?([^ /]+) ]] && curriculum=${BASH_REMATCH[2]%.yaml}
memory_gb=$(awk '/^MemTotal/ {print int($2 / 1e6)}' /proc/meminfo)
if [[ ${HARDWARE:-cpu} == cpu && -z ${MODEL:-} && ! $curriculum =~ ^(tiny|tau|tau_tiny)$ ]] \
    && ((memory_gb < 11)) && ! nvidia-smi -L >/dev/null 2>&1; then
    echo "run_all.sh: this machine has $memory_gb GB of memory; to train SmolLM2-135M takes 11 GB." >&2
    echo "Train the tiny model instead: bash run_all.sh --curriculum tiny" >&2
    exit 2
fi
bash setup.sh
HARDWARE=${HARDWARE:-$(<.venv/profile)}
options=()
arguments=("$@")
if [[ $HARDWARE == cpu && $curriculum =~ ^(tiny|tau|tau_tiny)$ ]]; then
    HARDWARE=tiny
fi
export HARDWARE
data=data/$HARDWARE
if [[ $curriculum =~ ^tau ]]; then
    data=$data/tau
    options=(--environment tau --option policy=workflow --option one_thing_a_message=true)
    if [[ $HARDWARE == tiny ]]; then # one stage, of the tasks that the tiny policy can learn
        options=(--environment tau --protocol python_calls --docs signature)
        options+=(--option policy=none --option show_functions=false)
        arguments+=(--curriculum tau_tiny)
    fi
fi
case $HARDWARE in # seconds, and the same bytes every time
    tiny) .venv/bin/python -m data_prep --out "$data" --tiny "${options[@]}" ;;
    cpu)
        if [[ ${SEED:-1} != 1 ]]; then # other tasks, in a folder of their own
            data+=/seed$SEED
            arguments=("paths.data=$data" "${arguments[@]}")
        fi
        [[ $curriculum ]] || arguments+=(--curriculum laptop)
        .venv/bin/python -m data_prep --out "$data" --laptop --seed "${SEED:-1}"
        ;;
    *) [[ -f $data/manifest.json ]] || .venv/bin/python -m data_prep --out "$data" "${options[@]}" ;;
esac
exec .venv/bin/python -m recipe.curriculum "${arguments[@]}"
