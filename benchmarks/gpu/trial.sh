#!/usr/bin/env bash
# Do the three stages run on one GPU, how fast, and in how much memory? After `HARDWARE=gpu1 bash setup.sh`:
#   bash benchmarks/gpu/trial.sh [Hydra overrides for all stages]
# SmolLM2-135M with an adapter: self-check, data, warm start, 12 steps of 16 tasks x 16 rollouts a stage, held-out tables,
# memory beside the estimate. A step that fails ends it; what there is by then is written. Run again, it goes on.
#   OUT=docs/data/gpu/NAME   folder of the results, some KB (default: outputs/gpu_trial/results)
#   STEPS=12                 of each stage     LIMIT=1800   seconds for each step of the trial
#   HARDWARE=cpu             a rehearsal without a GPU: two steps of 2 x 2 a stage
# preflight_only=true checks the commands of all stages and trains nothing.
source "$(dirname "${BASH_SOURCE[0]}")/../../recipe/scripts.sh" || exit 1
set -o pipefail
export HARDWARE=${HARDWARE:-gpu1} RUN=gpu_trial
unset MODEL
warm=() # more of the warm start, which cannot be checked without being made
[[ " $* " == *" preflight_only=true "* ]] && export RUN=gpu_trial_checked MODEL=smollm2 && warm=(--cfg job)
run=outputs/$RUN logs=outputs/$RUN/logs out=${OUT:-outputs/$RUN/results} data=data/$RUN
mkdir -p "$logs" "$out"
heads=(--heads 9 --kv-heads 3 --head-size 64)
sft=(paths.data=$data data.train_files=$data/stage0_sft.parquet data.train_batch_size=8 data.max_length=2048
     trainer.total_epochs=1 trainer.save_freq=-1 'checkpoint.save_contents=[hf_model]')
stage=(paths.data=$data 'data.train_files=${paths.data}/${stage.name}_long.parquet'
       'data.val_files=${paths.data}/val.parquet'
       interaction.protocol=python_calls interaction.docs=signature interaction.max_tokens_per_reply=96
       interaction.{train,val}.max_steps_per_turn=4 interaction.{train,val}.max_format_errors_per_turn=1
       interaction.{train,val}.max_result_chars=300 data.max_prompt_length=1024 data.max_response_length=1024
       data.filter_overlong_prompts=false data.shuffle=false actor_rollout_ref.rollout.max_model_len=2048
       reward.custom_reward_function.path=pkg://rewards.dense stage.gate=null trainer.total_epochs=100
       trainer.test_freq=1000) # what hardware=cpu has: such a model can learn it
if [[ $HARDWARE == cpu ]]; then
    heads+=(--device cpu)
    sft+=(data.train_max_samples=8)
    size=2 steps=${STEPS:-2}
    stage+=(stage.group_size=2 data.val_max_samples=4 launcher.needs.memory_gb=4 launcher.needs.disk_gb=1)
else
    sft+=(model.lora_rank=0 optim.lr=2e-4)
    size=16 steps=${STEPS:-12}
    stage+=(actor_rollout_ref.actor.optim.lr=1e-4 actor_rollout_ref.rollout.max_num_seqs=256
            launcher.needs.memory_gb=8 launcher.needs.disk_gb=5)
    while sleep 1; do
        echo "$EPOCHSECONDS $(nvidia-smi -i 0 --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null)"
    done >>"$logs/memory.txt" &
    trap "kill $!" EXIT
fi
stage+=(data.train_batch_size=$size actor_rollout_ref.actor.ppo_mini_batch_size=$size
        trainer.total_training_steps=$steps trainer.save_freq=$steps "$@")

try() { # try NAME COMMAND...
    local began=$EPOCHSECONDS
    timeout -k 30 "${LIMIT:-1800}" "${@:2}" 2>&1 | tee "$logs/$1.txt"
    local status=$?
    echo "$1 $status $began $EPOCHSECONDS" >>"$logs/steps.txt"
    return $status
}

try selfcheck .venv/bin/python -m recipe.gpu.selfcheck "${heads[@]}" \
    && try data .venv/bin/python -m data_prep --out $data --laptop \
    && try stage0_sft env MODEL=smollm2 bash run_sft.sh "${sft[@]}" "${warm[@]}" \
    && try stage1_format bash run_stage1.sh "${stage[@]}" trainer.val_before_train=true \
    && try stage2_base bash run_stage2.sh "${stage[@]}" trainer.val_before_train=false \
    && try stage3_full bash run_stage3.sh "${stage[@]}" trainer.val_before_train=false
status=$?
grep '^{' "$logs/selfcheck.txt" >"$out/checks.json"
.venv/bin/python -m benchmarks.gpu.trial $run "$out" || exit
exit $status
