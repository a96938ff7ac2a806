#!/usr/bin/env bash
# Stage 1 (format) alone. Arguments are Hydra overrides: bash run_stage1.sh trainer.total_epochs=3
# It prints a line for each step; verl's whole log is in outputs/<name>/logs.
#   MODEL=/path   start model      RUN=name   outputs/<name>      TRAIN_BATCH_SIZE, MINI_BATCH_SIZE, SEED, HARDWARE
source "$(dirname "${BASH_SOURCE[0]}")/recipe/scripts.sh" || exit 1
exec .venv/bin/python -m recipe.train --config-name stage1 "$@"
