#!/usr/bin/env bash
# Makes .venv with everything the project needs. Safe to repeat: a second run takes seconds.
# run_all.sh and run_tests.sh call it.
#
#   HARDWARE=...         the profile, one of recipe/config/hardware; without it, by the number of GPUs that nvidia-smi lists:
#                        cpu, gpu1, or gpu8 for two and more. cpu and tiny have the same packages, all others too.
#   PYTHON=...           a Python 3.11 (default: python3.11 on the PATH, else python3)
#   TORCH_INDEX_URL=...  CPU profile only: index for torch alone. Where the ordinary index has the CUDA build of
#                        torch 2.13.0, this saves gigabytes: TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/recipe/scripts.sh"

fail() { printf 'setup: %s\n' "$@" >&2; exit 2; }

[[ $(uname -s) == Linux && $(uname -m) == x86_64 ]] \
    || fail "this is $(uname -s) on $(uname -m); the packages are for Linux on x86-64 (on Windows: in WSL2)."

# --- profile ---------------------------------------------------------------------------------------------------------
gpus=$({ nvidia-smi -L 2>/dev/null || true; } | wc -l)
if [[ -n "${HARDWARE:-}" ]]; then
    profile=${HARDWARE/#tiny/cpu} # the tiny policy's profile has the CPU's packages
    chosen="set by HARDWARE"
else
    case $gpus in
        0) profile=cpu chosen="no GPU found" ;;
        1) profile=gpu1 chosen="nvidia-smi lists one GPU" ;;
        *) profile=gpu8 chosen="nvidia-smi lists $gpus GPUs" ;;
    esac
fi
case $profile in
    cpu) pins=requirements/cpu.txt packages=cpu disk_gb=6 expected="2 to 5 minutes, 0.6 GB to download" ;;
    gpu8 | gpu8_24gb | gpu1) pins=requirements/gpu.txt packages=gpu8 disk_gb=20 expected="5 to 15 minutes, 5 GB to download" ;;
    *) fail "HARDWARE=$profile is not a profile; use cpu, tiny, gpu8, gpu8_24gb or gpu1, or leave it unset." ;;
esac

# --- is it there already? --------------------------------------------------------------------------------------------
# The stamp is written last, so an interrupted installation is taken up again.
stamp="$packages $PWD $(cat "$pins" pyproject.toml | sha256sum | cut -d' ' -f1)"
if [[ -f .venv/profile ]]; then
    made=$(<.venv/profile)
    if [[ $made != "$profile" && ($made == cpu || $profile == cpu) ]]; then
        fail ".venv was made for HARDWARE=$made, and this run asks for $profile ($chosen)." \
             "Either set HARDWARE=$made, or delete .venv and run this again."
    fi
    [[ $made == "$profile" ]] || echo "$profile" >.venv/profile # the other scripts read it
fi
if [[ -f .venv/stamp ]]; then
    if [[ "$(<.venv/stamp)" == "$stamp" ]]; then
        echo "setup: .venv is up to date (profile $profile, $chosen)"
        exit 0
    fi
    if [[ "$(<.venv/stamp)" != "$packages $PWD "* ]]; then
        fail ".venv was made in another folder and does not work in this one. Delete .venv and run this again."
    fi
    rm .venv/stamp
fi

# --- Python ----------------------------------------------------------------------------------------------------------
get_python="Install Python 3.11 (Debian 12: apt install python3.11 python3.11-venv; elsewhere: uv or pyenv), \
or name one with PYTHON=/path/to/python3.11."
if [[ -z "${PYTHON:-}" ]]; then
    PYTHON=python3
    for candidate in python3.11 python3; do
        if command -v "$candidate" >/dev/null; then PYTHON=$candidate; break; fi
    done
fi
version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) \
    || fail "'$PYTHON' does not run." "$get_python"
[[ $version == 3.11 ]] \
    || fail "'$PYTHON' is Python $version; the pinned packages are for 3.11." "$get_python"
"$PYTHON" -c 'import ensurepip, venv' 2>/dev/null \
    || fail "'$PYTHON' has no venv module. On Debian: apt install python3.11-venv"

# --- what to expect --------------------------------------------------------------------------------------------------
free_gb=$(($(df -Pk . | awk 'NR == 2 {print $4}') / 1024 / 1024))
if ((free_gb < disk_gb)); then
    echo "setup: warning: $free_gb GB free here, about $disk_gb GB wanted; a CUDA build of torch alone takes 6 GB." >&2
fi
if [[ $packages == gpu8 ]]; then
    driver=$({ nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null || true; } | head -n 1)
    if [[ $driver =~ ^([0-9]+)\. && ${BASH_REMATCH[1]} -lt 580 ]]; then
        echo "setup: warning: the NVIDIA driver is $driver; the packages are built with CUDA 13, which needs 580 or newer." >&2
    fi
    "$PYTHON" -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null \
        || echo "setup: warning: no Python.h; Triton compiles with it. On Debian: apt install python3.11-dev gcc" >&2
fi

# --- steps -----------------------------------------------------------------------------------------------------------
log=outputs/setup.log
mkdir -p outputs
: >"$log"
echo "setup: profile $profile ($chosen), Python $version; pip's output goes to $log"
step() {  # step TEXT COMMAND...
    printf 'setup [%3d s] %s\n' "$SECONDS" "$1"
    "${@:2}" >>"$log" 2>&1 && return
    tail -n 5 "$log" >&2
    fail "this step failed: $1" \
         "The lines above are the last of $log. Most often it is one of these:" \
         "  no network, or a package index out of reach: see PIP_INDEX_URL, HTTPS_PROXY and TORCH_INDEX_URL" \
         "  no room left ($(df -Ph . | awk 'NR == 2 {print $4}') free here; pip also needs some in TMPDIR)" \
         "Running setup.sh again goes on from here."
}
pip() { .venv/bin/python -m pip --disable-pip-version-check --no-input "$@"; }

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    step "make .venv: seconds" "$PYTHON" -m venv --clear .venv
fi
echo "$profile" >.venv/profile

if [[ $packages == cpu ]]; then
    torch=$(grep '^torch==' "$pins")
    # With its dependencies: the CUDA build, where the index has that one, needs packages that $pins does not name.
    step "$torch: a minute, 0.2 GB to download; 3 GB where the index has the CUDA build (TORCH_INDEX_URL)" \
        pip install ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} "$torch"
fi
step "$(grep -c '==' "$pins") packages of $pins: $expected" pip install --no-deps -r "$pins"
step "this project, editable: seconds" pip install --no-deps --no-build-isolation -e .

echo "$stamp" >.venv/stamp
printf 'setup: done in %d s (profile %s)\n' "$SECONDS" "$profile"
