#!/usr/bin/env bash
# Sets up whatever is missing, then lint, format, types and tests. Arguments go to pytest: bash run_tests.sh -k rewards
# `bash run_tests.sh -m slow` runs the long tests, which the ordinary suite leaves out, one after the other; the ordinary
# ones run in two processes, file by file.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/recipe/scripts.sh"
bash setup.sh

failed=()
[[ " $* " == *" slow"* || " $* " == *" -n"* ]] || set -- -n 2 --dist loadfile --no-loadscope-reorder "$@"
check() {  # check NAME COMMAND...: all of them run, whatever the earlier ones said
    printf '\n== %s (%d s)\n' "$1" "$SECONDS"
    "${@:2}" || failed+=("$1")
}
check "ruff check" .venv/bin/ruff check .
check "ruff format" .venv/bin/ruff format --check .
check "mypy" .venv/bin/mypy
check "pytest" .venv/bin/pytest "$@"

if ((${#failed[@]})); then
    printf '\nrun_tests: %d s, failed: %s\n' "$SECONDS" "$(IFS=,; echo "${failed[*]}")"
    exit 1
fi
printf '\nrun_tests: %d s, all passed\n' "$SECONDS"
