"""Start Ray's workers by forking a process that has already imported the large libraries.

    python -m recipe.machine.prefork FD               the server, with a listening socket as open file FD
    python -SE recipe/machine/prefork.py SOCKET ARGS  what is started in place of `python ARGS`

Each Python process of a stage spends 10 to 30 seconds importing torch, transformers and vLLM. Here one server imports
these once: on one GPU trainer, worker and vLLM's server are there 20 seconds after Ray, not 110. Ray starts its workers
with the `sys.executable` of the process that starts Ray. Ours hands their arguments, environment, working folder and
standard streams to the server, whose forked child goes on as the worker; everything else becomes Python itself. Ray and
verl read the environment when they are imported, so they are left to the child. What such a worker spawns with
`multiprocessing`, vLLM's engine above all, is forked from the server too.
"""

import fcntl
import json
import os
import re
import signal
import socket
import sys

PRELOAD = (
    "tensordict",
    "torch._inductor.lowering",
    "torch._inductor.standalone_compile",
    "torch.distributed.checkpoint",
    "datasets",
    "transformers.models.auto",
    "accelerate",
    "peft",
    "vllm.v1.engine.core",
    f"vllm.v1.worker.{'cpu' if os.environ.get('VERL_PLATFORM') == 'cpu' else 'gpu'}_worker",
    "vllm.entrypoints.openai.api_server",
)
SPAWNED = "--multiprocessing-fork"
"""Last argument of a process that `multiprocessing` spawns: it reads from a file that it inherits what to run."""
MOST, HIGH = 64, 500
"""Open files that a worker inherits at most; the number from which on they wait for their places."""


def start() -> str:
    """Start the server, which ends with the calling process; returns what takes the place of Python."""
    import atexit
    import shlex
    import shutil
    import subprocess
    import tempfile

    folder = tempfile.mkdtemp(prefix="prefork-")  # readable by nobody else: whoever can connect can run code as us
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = os.path.join(folder, "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)  # requests wait while the server imports
        fd = listener.fileno()
        subprocess.Popen([sys.executable, "-m", "recipe.machine.prefork", str(fd)], pass_fds=[fd])
    command = shlex.join([sys.executable, "-SE", os.path.abspath(__file__), address])
    executable = os.path.join(folder, "python")  # `multiprocessing` takes one word
    with open(executable, "w", opener=lambda path, flags: os.open(path, flags, 0o700)) as script:
        script.write(f'#!/bin/sh\nexec {command} "$@"\n')
    return executable


def request(address: str, arguments: list[str]) -> None:
    """Ask the server for a worker and stay until it has ended, as Ray expects of the process it started.

    Without a server this process becomes the worker itself: slower to start, and the same.
    """
    given, files = arguments, [0, 1, 2]
    if os.path.basename(arguments[0]) == "setup_worker.py":
        arguments = set_up(arguments)
    forked = os.path.basename(arguments[0]) == "default_worker.py"
    if arguments[-1] == SPAWNED:
        forked, inherited = True, [int(name) for name in os.listdir("/proc/self/fd")]
        files += [fd for fd in inherited if fd > 2 and os.path.exists(f"/proc/self/fd/{fd}")]
    about = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd(), "files": files}
    message = json.dumps({**about, "python": os.path.join(os.path.dirname(address), "python")}).encode()
    with socket.socket(socket.AF_UNIX) as server:
        try:
            if not forked:
                raise OSError("a program of Ray's or Python's own, which needs none of the libraries")
            server.connect(address)
        except OSError:
            os.execv(sys.executable, [sys.executable, *given])
        socket.send_fds(server, [len(message).to_bytes(4, "big")], files)
        server.sendall(message)
        server.recv(1)  # returns when the worker, which holds the other end, has ended


def set_up(arguments: list[str]) -> list[str]:
    """What Ray's setup_worker.py does before it becomes the worker: it imports all of Ray for that.

    Its own arguments are left as they are where a job asks for more than variables.
    """
    context, left = json.loads("{}"), []
    for item in arguments[1:]:
        name, _, value = item.partition("=")
        if name == "--serialized-runtime-env-context":
            context = json.loads(value or "{}")
        elif name != "--language":
            left.append(item)
    python = context.get("py_executable") or sys.executable
    if context.get("command_prefix") or context.get("override_worker_entrypoint") or python != sys.executable:
        return arguments
    for name, value in (context.get("env_vars") or {}).items():
        os.environ[name] = re.sub(r"\$\{[A-Z0-9_]+\}", "", os.path.expandvars(value))
    return left


def become_worker(connection: socket.socket) -> None:
    """In the forked child: take over what the request says and run the worker's script."""
    import ctypes
    import multiprocessing
    import runpy
    from multiprocessing.spawn import spawn_main

    import setproctitle

    head, received, _, _ = socket.recv_fds(connection, 4, MOST)
    wanted = json.loads(connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
    kept = fcntl.fcntl(connection.detach(), fcntl.F_DUPFD, HIGH)  # stays open until this process ends
    received = [fcntl.fcntl(fd, fcntl.F_DUPFD, kept) for fd in received]
    for number, fd in zip(wanted["files"], received, strict=True):
        os.dup2(fd, number, inheritable=number < 3)
        os.close(fd)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    # it looks for the title's place beside the environment of a process, which is no longer there
    setproctitle.setproctitle = lambda title: ctypes.CDLL(None).prctl(15, title.encode(), 0, 0, 0)  # PR_SET_NAME
    sys.argv = wanted["arguments"]
    multiprocessing.set_executable(wanted["python"])
    if sys.argv[-1] == SPAWNED:
        given, sys.argv = sys.argv[sys.argv.index("-c") + 1], ["-c", SPAWNED]  # a call of spawn_main with numbers
        spawn_main(**{name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", given)})
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")


def serve(fd: int) -> None:
    """Import everything, then fork a worker for each request, until terminated."""
    import importlib

    from recipe.machine.processes import end_with_parent

    end_with_parent()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARN")  # as verl has it in its workers
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # is there a card? Asked of CUDA itself, no child could use it
    sys.modules["ray"] = None  # type: ignore[assignment]  # which vLLM imports where it can
    for name in PRELOAD:
        importlib.import_module(name)
    del sys.modules["ray"]
    with socket.socket(fileno=fd) as listener:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                break
            connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    become_worker(connection)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        request(sys.argv[1], sys.argv[2:])
    else:
        serve(int(sys.argv[1]))
