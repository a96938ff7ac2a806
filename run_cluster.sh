#!/usr/bin/env bash
# A Ray cluster for training on several nodes (docs/cluster.md). On each node, in the same checkout:
#   bash run_cluster.sh                               the first one is the head, the others join it; until Ctrl-C
# and then on one of them:
#   source outputs/cluster/environment && bash run_all.sh trainer.nnodes=2
# Arguments go to `ray start`: --node-ip-address=10.0.0.7 --num-gpus=4
#   CLUSTER=folder   that all nodes mount, for address and token (default: outputs/cluster)      HARDWARE=cpu|gpu8|...
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/recipe/scripts.sh"

fail() { printf 'run_cluster: %s\n' "$@" >&2; exit 2; }
given() {  # given OPTION ARGUMENT...: its value among the arguments
    local option=$1 argument before=
    for argument in "${@:2}"; do
        if [[ $argument == "$option="* ]]; then echo "${argument#*=}"; elif [[ $before == "$option" ]]; then echo "$argument"; fi
        before=$argument
    done
}

export PATH=$PWD/.venv/bin:$PATH
mkdir -p "${CLUSTER:-outputs/cluster}"
folder=$(cd "${CLUSTER:-outputs/cluster}" && pwd)
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$folder/token
options=(--disable-usage-stats --block "$@")
if [[ ${HARDWARE:-$(<.venv/profile)} =~ ^(cpu|tiny)$ ]]; then # logical: what verl's actors ask for between them
    [[ -n $(given --num-cpus "$@") ]] || options+=(--num-cpus=8)
    [[ -n $(given --num-gpus "$@") ]] || options+=(--num-gpus=1)
fi

ray_pid=
end() { # told to end: Ray does so, and then this; while nothing runs, at once
    [[ -n $ray_pid ]] || exit 130
    kill "$ray_pid" 2>/dev/null || true
}
trap end INT TERM HUP
run() { # until Ray ends, or this is told to
    ray start "${options[@]}" "$@" &
    ray_pid=$!
    wait "$ray_pid" || true
    wait "$ray_pid" || true # the first one a signal may have ended
}

if mkdir "$folder/head" 2>/dev/null; then # on any file system one node alone can make it
    forget() { rm -rf "$folder/head" "$folder/address" "$folder/environment"; }
    trap forget EXIT
    hostname >"$folder/head/name"
    (umask 077 && .venv/bin/python -c 'import secrets; print(secrets.token_hex(32), end="")' >"$folder/token")
    host=$(given --node-ip-address "$@")
    [[ -n $host ]] || host=$(.venv/bin/python -c 'import ray; print(ray.util.get_node_ip_address())' 2>/dev/null)
    port=$(given --port "$@")
    [[ -n $port ]] || { port=6379; options+=("--port=$port"); }
    printf 'export %q\n' "RAY_ADDRESS=$host:$port" "RAY_AUTH_MODE=token" "RAY_AUTH_TOKEN_PATH=$folder/token" \
        >"$folder/environment"
    echo "run_cluster: $(hostname) is the head, at $host:$port; run this on the other nodes, and on one of them:"
    echo "run_cluster:   source $folder/environment && bash run_all.sh trainer.nnodes=2"
    echo "$host:$port" >"$folder/address.new"
    mv "$folder/address.new" "$folder/address" # last: the others wait for it
    run --head
else
    for _ in $(seq 120); do
        [[ -s $folder/address ]] && break
        sleep 1
    done
    head=$(cat "$folder/head/name" 2>/dev/null || echo unknown)
    [[ -s $folder/address ]] || fail "the head ($head) has not written $folder/address within 120 s." \
        "If it was killed, delete $folder/head and run this again."
    address=$(<"$folder/address")
    .venv/bin/python - "$address" <<'PYTHON' || fail "the head ($head) does not answer at $address." \
        "If that cluster has ended, delete $folder/head and run this again; else let the nodes' network reach that address."
import socket, sys, time

host, _, port = sys.argv[1].rpartition(":")
for _ in range(60):  # it may be starting
    try:
        socket.create_connection((host.strip("[]"), int(port)), 5).close()
        break
    except OSError:
        time.sleep(1)
else:
    sys.exit(1)
PYTHON
    echo "run_cluster: $(hostname) joins the cluster of $head, at $address"
    run --address="$address"
fi
