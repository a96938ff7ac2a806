# Sourced first by the scripts of the root: answers --help, a variable after the script's name, and a missing set-up.
for argument in "$@"; do
    if [[ $argument == --help || $argument == -h ]]; then
        sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
        exit
    elif [[ $argument =~ ^[A-Z][A-Z_]*= ]]; then
        echo "${0##*/}: ${argument%%=*} goes before the command: $argument bash ${0##*/}" >&2
        exit 2
    fi
done
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
if [[ ! -f .venv/stamp && ! ${0##*/} =~ ^(setup|run_all|run_tests)\.sh$ ]]; then
    echo "${0##*/}: .venv is missing or not complete. Run this first: bash setup.sh" >&2
    exit 2
fi
