"""Stage 0: supervised warm start on conversations, with verl's own SFT trainer.

    python -m recipe.sft [Hydra overrides]                             one process
    torchrun --nproc_per_node=8 -m recipe.sft [Hydra overrides]        one process a GPU

On the CPU profile, and without a MODEL, the tiny policy is made first and the result is what stage 1 starts from.
"""

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from omegaconf import DictConfig

from recipe.cpu import precision
from recipe.files import PreflightError
from recipe.machine import loopback, processes
from recipe.machine.cluster import TOKEN
from recipe.machine.processes import LOCK, NOTE, Launch
from recipe.offline.conversations import Sides, arrange, for_verl, read_sides, write, write_side
from recipe.preflight import require
from recipe.preflight.machine import choose_attention
from recipe.preflight.model import load_settings, load_tokenizer, start_model, weights
from recipe.preflight.settings import model_lora, packed_rows
from recipe.settings import command
from recipe.stage import starts, state
from recipe.stage.end import read_done
from recipe.stage.export import ExportError, export, write_card
from recipe.stage.starts import fingerprint, say, writing
from recipe.stage.state import Done


def machines() -> int:
    """How many machines train: torchrun says it in every process; without it there is one process."""
    return int(os.environ.get("WORLD_SIZE", "1")) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def process_group() -> None:
    """Variables that torchrun would set, where it did not start this process; on one machine it meets on loopback."""
    closed = machines() == 1 and os.environ.get("DIST_INIT_METHOD") == loopback.ENVIRONMENT["DIST_INIT_METHOD"]
    if closed and not loopback.joins_torchrun():
        os.environ["MASTER_ADDR"] = loopback.HOST
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = str(sock.getsockname()[1])
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in alone.items():
        os.environ.setdefault(name, value)


def tee_output(path: Path) -> None:
    """Copy everything this process and its children print to `path`. `tee -i` outlives Ctrl-C and so sees the end."""
    if TOKEN in os.environ:  # recipe.curriculum keeps the log
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    tee = subprocess.Popen(["tee", "-ai", str(path)], stdin=subprocess.PIPE)
    assert tee.stdin is not None
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(tee.stdin.fileno(), stream.fileno())
    tee.stdin.close()


def hold(run: Path, held: ExitStack) -> None:
    """Have nobody else train into the run's folder, unless the curriculum that started this process holds it.

    Raises:
        SystemExit: another start is at work there.
    """
    noted = Launch.read_or_none(run / NOTE)
    if noted is None or noted.token != os.environ.get(TOKEN):
        held.enter_context(processes.alone(run))


def choose_folder(config: DictConfig) -> None:
    """The tiny policy is for all runs; a model of the user's is trained in the folder of its run, on a CPU too."""
    paths, tiny = config.paths, config.paths.get("tiny_policy")
    if config.model.path is None or tiny is None:
        return
    if paths.run == tiny:
        paths.run = "outputs/${oc.env:RUN,default}"
    if paths.stage == tiny:
        paths.stage = "${paths.run}/${stage.name}"


def run(config: DictConfig, overrides: list[str]) -> None:
    """Make the warm start, unless it is there.

    Raises:
        PreflightError: it cannot start.
    """
    choose_folder(config)
    starts.set_environment(config, machines())
    stage, sides = Path(config.paths.stage), None
    if os.environ.get("RANK", "0") == "0":  # of torchrun's processes the one that reads the data and writes
        sides = read_sides(config)
    if config.model.path is not None:
        config.model.path = start_model(str(config.model.path))
    made, before = fingerprint(config), state.look(stage).began
    same = before is not None and before.digest == made
    if config.trainer.resume_mode != "disable" and same and read_done(stage):
        print(f"the warm start in {stage / 'hf'} is up to date")
        return
    if not same and any((stage / name).exists() for name in (state.FILE, "checkpoints", "hf")):
        say([f"the warm start in {stage} is of another model, other settings or rows: made again"] * bool(sides))
        config.trainer.resume_mode = "disable"
    if config.trainer.save_freq != -1:  # without the first three a resume would begin anew at a later step
        config.checkpoint.save_contents = ["model", "optimizer", "extra", "hf_model"]
    require(model_lora(config.model, "model"), packed_rows(config.model, "model", config.trainer.device))
    if config.model.lora_adapter_path is not None:
        how = "Merge that one into the start model (peft: merge_and_unload, save_pretrained), and set MODEL to that"
        raise PreflightError(f"model.lora_adapter_path: a warm start trains a new adapter. {how}.")
    if config.model.path is not None:
        require(weights(config.model.path))
        starts.check_same_start(config)
        sides = arrange(sides, config, load_tokenizer) if sides else None
    elif config.trainer.device != "cpu" or not config.paths.get("tiny_policy"):
        raise PreflightError("no model to start from. Set MODEL=/path/to/huggingface/folder (or model.path=...).")
    with ExitStack() as held:  # until the model is written
        train(config, overrides, made, sides, held)


def train(config: DictConfig, overrides: list[str], made: str, sides: Sides | None, held: ExitStack) -> None:
    """Train and export, in a process that has checked everything. `sides` has the main process alone."""
    stage, checkpoints = Path(config.paths.stage), Path(config.trainer.default_local_dir)
    if sides:
        with writing(config):
            folder = Path(config.paths.run)
            hold(folder, held)
            if config.trainer.resume_mode != "auto":
                say(starts.start_over(config))
            else:
                say(state.go_back(checkpoints, machines() == 1))
            if not (folder / LOCK).exists():  # it was set aside with the stage, where that is the run's folder
                hold(folder, held)
            tee_output(folder / "logs" / f"{config.stage.name}_{time.strftime('%Y%m%d-%H%M%S')}.log")
            precision.settle(config, folder)
    precision.settle(config)
    if sides and (measured := config.launcher.get("measured")):
        print(f"trains in {config.engine.mixed_precision.param_dtype} ({measured})", flush=True)
    if config.model.path is None:
        with writing(config):
            sides = begin_with_tiny_policy(config, sides)
    if sides:
        with writing(config):
            write(sides, stage / "data")
            starts.write_start(config, overrides, made)
    # every process, so that all come to the same attention
    cuda = config.trainer.device == "cuda"
    lines = choose_attention(config, "cuda", load_settings(str(config.model.path))) if cuda else []
    if sides:
        print(*lines, sep="\n", end="\n" * bool(lines), flush=True)
    process_group()
    from recipe.training.sft_trainer import train as make_steps

    last = make_steps(for_verl(config))
    if not sides:
        return
    if (reached := state.latest(checkpoints)) != last:
        sys.exit(f"{config.stage.name} ended at step {reached} of {last}. Start it again: it goes on from there.")
    try:
        target = export(checkpoints / f"global_step_{last}" / "huggingface", stage / "hf", str(config.model.path))
        state.update(stage, done=Done(last, last, last, time.time()))
    except (OSError, ExportError) as error:
        sys.exit(f"{config.stage.name} is trained, but {error}")
    print(f"warm-started model in {target}")
    write_card(config, stage / "hf")


def begin_with_tiny_policy(config: DictConfig, sides: Sides | None) -> Sides | None:
    """Make the tiny policy, where no model is given; what its tokenizer makes of the conversations."""
    from recipe.cpu.tiny_policy import make_tiny_policy

    stage, said = Path(config.paths.stage), None
    config.model.path = str(stage / "untrained")
    if sides and config.stage.get("tiny_knows") == "lines":
        said = stage / "data" / "train.parquet"
        write_side(sides.train, said)
    parameters = make_tiny_policy(Path(config.model.path), conversations=said)
    print(f"tiny policy of {parameters / 1e6:.2f}M random parameters in {config.model.path}", flush=True)
    return arrange(sides, config, load_tokenizer) if sides else None


def main() -> None:
    config, again = None, ""
    try:
        config, overrides = command(sys.argv[1:], "sft", group="sft_hardware")
        again = starts.going_on(config)
        malloc = {name: str(value) for name, value in config.launcher.env.items() if name.startswith("MALLOC_")}
        if any(name not in os.environ for name in malloc):  # the C library reads them only when a process starts
            os.environ.update(malloc)
            os.execv(sys.executable, [sys.executable, "-m", "recipe.sft", *sys.argv[1:]])
        run(config, overrides)
    except PreflightError as error:
        sys.exit(f"\n{config.stage.name if config else 'stage0_sft'} cannot start: {error}")
    except KeyboardInterrupt:
        if config is None:
            raise
        print(f"\n{config.stage.name} was interrupted. The same command{again} goes on", flush=True)
        sys.exit(130)


if __name__ == "__main__":
    main()
