"""Start Ray's workers by forking a process that has already imported the large libraries.

    python -m recipe.prefork FD               the server, with a listening socket as open file FD
    python -SE recipe/prefork.py SOCKET ARGS  what Ray starts in place of `python ARGS`

Each Python process of a stage spends 10 to 30 seconds importing torch, transformers and vLLM. Here one server imports
these once: on one GPU trainer, worker and vLLM's server are there 20 seconds after Ray, not 110. Ray lets a job name
what stands for Python (`runtime_env={"py_executable": ...}`); ours hands arguments, environment, working folder and
standard streams to the server, whose forked child goes on as the worker. Ray and verl read the environment when they
are imported, so they are left to the child.
"""

import json
import os
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


def start() -> str:
    """Start the server, which ends with the calling process; returns the command for Ray's `py_executable`."""
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
        subprocess.Popen([sys.executable, "-m", "recipe.prefork", str(fd)], pass_fds=[fd])
    return shlex.join([sys.executable, "-SE", os.path.abspath(__file__), address])


def request(address: str, arguments: list[str]) -> None:
    """Ask the server for a worker and stay until it has ended, as Ray expects of the process it started.

    Without a server this process becomes the worker itself: slower to start, and the same.
    """
    message = json.dumps({"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}).encode()
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address)
        except OSError:
            os.execv(sys.executable, [sys.executable, *arguments])
        socket.send_fds(server, [len(message).to_bytes(4, "big")], [0, 1, 2])
        server.sendall(message)
        server.recv(1)  # returns when the worker, which holds the other end, has ended


def become_worker(connection: socket.socket) -> None:
    """In the forked child: take over what the request says and run the worker's script."""
    import runpy

    head, streams, _, _ = socket.recv_fds(connection, 4, 3)
    wanted = json.loads(connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.argv = wanted["arguments"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")


def serve(fd: int) -> None:
    """Import everything, then fork a worker for each request, until terminated."""
    import importlib

    from recipe.processes import end_with_parent

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
