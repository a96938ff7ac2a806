#!/usr/bin/env bash
# Learn from stored trajectories, without an engine: MODEL=/path bash run_offline.sh offline.files=FILE_OR_FOLDER
#   MODEL=/path   start model      RUN=name   outputs/<name>      TRAIN_BATCH_SIZE, MINI_BATCH_SIZE, SEED, HARDWARE
source "$(dirname "${BASH_SOURCE[0]}")/recipe/scripts.sh" || exit 1
exec .venv/bin/python -m recipe.train --config-name offline "$@"
