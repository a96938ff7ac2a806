"""A command line made into a configuration: Hydra's files and groups, then the overrides one by one.

Hydra composes what the files and the chosen groups say; that is kept, so that the next configuration of one process
costs milliseconds. Overrides are read by Hydra's own parser and applied here, as Hydra does after composing, because
whatever a person mistypes is to be told in one line: which override, what is wrong with it, what may be meant.
"""

import filecmp
import importlib.util
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import hydra
from hydra import initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from recipe.errors import PreflightError
from recipe.settings import CONFIG_DIR, additions
from recipe.settings.reading import check_environment, reference_line
from recipe.settings.renamed import renamed
from recipe.typed import meant, one_line, shown

BAD = (OmegaConfBaseException, HydraException, ValueError, TypeError, KeyError, IndexError, RecursionError)
"""What Hydra and OmegaConf raise at values that cannot be."""

FIXED = {"hydra.run.dir": ".", "hydra.output_subdir": None, "hydra.job.chdir": False, "hydra.verbose": False}
"""Settings of Hydra's as they are here; to give one so changes nothing, to give another value would not either."""


def verl_config_dir() -> Path:
    """verl's folder of Hydra configurations, found without importing verl."""
    spec = importlib.util.find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("verl is not installed in this environment. Run `bash setup.sh` and start through the scripts.")
    return Path(next(iter(spec.submodule_search_locations))) / "trainer" / "config"


def detect_hardware() -> str:
    """Hardware profile: the variable HARDWARE, else by how many GPUs `nvidia-smi` lists: cpu, gpu1 or gpu8."""
    if profile := os.environ.get("HARDWARE"):
        return profile
    try:
        answer = subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "cpu"
    gpus = len(answer.stdout.strip().splitlines()) if answer.returncode == 0 else 0
    return {0: "cpu", 1: "gpu1"}.get(gpus, "gpu8")


def quoted(text: str) -> str:
    """A text as the value of an override, in quotes where Hydra would take its characters for something else."""
    if re.fullmatch(r"[A-Za-z0-9_./:-]+", text):
        return text
    return "'" + re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + "\\'" * bool(match[2]), text) + "'"


def searched(folders: Sequence[Path]) -> str:
    """The override that lets Hydra search these folders too."""
    return f"hydra.searchpath=[{','.join(quoted(f'file://{folder}') for folder in folders)}]"


def launch_overrides(arguments: Sequence[str], group: str = "hardware") -> list[str]:
    """Overrides that a composition by Hydra alone needs.

    Where verl's configurations are, no second log file of Hydra's own and, unless given, the hardware profile.
    """
    overrides = [searched([verl_config_dir()]), "hydra/job_logging=stdout"]
    if not any(argument.startswith(f"{group}=") for argument in arguments):
        overrides.append(f"{group}={detect_hardware()}")
    return overrides


def compose(
    name: str, overrides: Sequence[str] = (), group: str = "hardware", folder: Path | None = None
) -> DictConfig:
    """The configuration of `--config-name NAME OVERRIDES`, with the detected hardware profile where none is given.

    Args:
        group: that of the hardware profiles.
        folder: with further configurations (`--config-dir`).

    Raises:
        PreflightError: there is no such configuration or profile, or an override that cannot be read or applied.
    """
    check_environment()
    name = name.removesuffix(".yaml")
    if (bad := next((at for at in (str(CONFIG_DIR), str(Path.cwd())) if not _can_hold(at)), None)) is not None:
        raise PreflightError(f"the folder {shown(bad)} has characters that no configuration can hold. Rename it.")
    folders = (CONFIG_DIR, *([own] if (own := _own_folder(folder)) else []))
    choices: list[tuple[str, Override]] = []
    values: list[tuple[str, Override]] = []
    for text in overrides:
        override = parse(text)
        if override.key_or_group in FIXED and override.value() == FIXED[override.key_or_group]:
            continue
        if re.match(r"hydra(?=[./]|$)", override.key_or_group):
            raise PreflightError(f"{shown(text, quote=False)}: Hydra's own settings are fixed here. Leave it out.")
        chosen = _is_group(override, (*folders, verl_config_dir())) and not isinstance(override.value(), dict)
        (choices if chosen else values).append((text, override))
    if not any(override.key_or_group == group for _, override in choices):
        choices.append((profile := f"{group}={detect_hardware()}", parse(profile)))
    for text, override in choices:
        _check_choice(text, override, folders)
    _check_name(name, folders)
    base, pickled = _base(name, tuple(text for text, _ in choices), folders)
    config: DictConfig = pickle.loads(pickled)
    for text, override in values:
        apply(config, text, override)
    for text, override in values:
        additions.check_kind(base, config, text, override.key_or_group)
    return config


@lru_cache(maxsize=32)
def _base(name: str, choices: tuple[str, ...], folders: tuple[Path, ...]) -> tuple[DictConfig, bytes]:
    """What the files say, before any override; once more pickled, which is the cheapest way to copy it.

    Hydra reads NAME.yaml before the search path that an override gives: its folder has to be the first one.
    """
    first = next(at for at in folders if (at / f"{name}.yaml").is_file())
    others = [at for at in folders if at != first]
    try:
        with initialize_config_dir(str(first), version_base=None):
            base = hydra.compose(name, overrides=[*choices, searched([*others, verl_config_dir()])])
    except BAD as error:
        chosen = shown(" ".join((name, *choices)), quote=False)
        raise PreflightError(f"the configuration {chosen} cannot be composed: {line_of(error)}") from error
    return base, pickle.dumps(base)


def _can_hold(path: str) -> bool:
    return "${" not in path and path.isprintable()


def _own_folder(folder: Path | None) -> Path | None:
    """A user's folder of configurations, from the root; None where there is none beside this recipe's.

    Raises:
        PreflightError: there is no such folder, or it has a file of this recipe's with something else in it: which of
            the two counts, nobody should have to guess.
    """
    if folder is None:
        return None
    said, own = f"--config-dir {shown(str(folder), quote=False)}", folder.absolute()
    if not _can_hold(str(own)):
        raise PreflightError(f"{said} has characters that no configuration can hold. Rename the folder.")
    if not os.path.isdir(own):
        raise PreflightError(f"{said}: there is no such folder. Give the one that holds your configurations.")
    if own.samefile(CONFIG_DIR):
        return None
    for path in sorted(CONFIG_DIR.rglob("*.yaml")):
        same = own / (name := path.relative_to(CONFIG_DIR))
        if same.is_file() and not filecmp.cmp(same, path, shallow=False):
            raise PreflightError(f"{said}: recipe/config has {name} too, and yours would not be read. Rename yours.")
    return own


def _check_name(name: str, folders: Sequence[Path]) -> None:
    named = re.fullmatch(r"[\w./-]{1,100}", name)
    if named and any((folder / f"{name}.yaml").is_file() for folder in folders):
        return
    known = sorted(path.stem for path in CONFIG_DIR.glob("stage*.yaml"))
    raise PreflightError(
        f"--config-name {shown(name, quote=False)}: no such configuration{meant(name, known)}; it is one of "
        f"{', '.join(known)}, or a file NAME.yaml in a folder given by --config-dir."
    )


def parse(text: str) -> Override:
    """One override.

    Raises:
        PreflightError: it is none.
    """
    said = shown(text, quote=False)
    try:
        override = OverridesParser.create().parse_override(text)
        if override.is_sweep_override():
            raise PreflightError(
                f"{said} is several values. A list is written KEY=[a,b], a text with commas KEY=\"'a,b'\"."
            )
        override.value()
    except PreflightError:
        raise
    except BAD as error:
        reason = one_line(str(error).split("See https")[0].split(" expecting ")[0])
        raise PreflightError(
            f"{said} is no KEY=VALUE: {reason or type(error).__name__}. A text with special characters is quoted, "
            "KEY=\"'text'\"."
        ) from error
    return override


def _is_group(override: Override, folders: Sequence[Path]) -> bool:
    key = override.key_or_group
    named = re.fullmatch(r"[\w.-]{1,100}", key)  # by a text of 5,000 letters no folder can be asked for
    return override.package is not None or "/" in key or bool(named and any((at / key).is_dir() for at in folders))


def _check_choice(text: str, override: Override, folders: Sequence[Path]) -> None:
    group, choice = override.key_or_group, override.value()
    if not isinstance(choice, str | list) or not choice:
        raise PreflightError(f"{shown(text, quote=False)}: expected the name of one of the configurations in {group}.")
    known = sorted({path.stem for folder in folders for path in (folder / group).glob("*.yaml")})
    if known and choice not in known:
        source = " (the environment variable HARDWARE)" if choice == os.environ.get("HARDWARE") else ""
        raise PreflightError(
            f"{shown(text, quote=False)}{source}: no such {group}{meant(choice, known)}; it is one of "
            f"{', '.join(known)}."
        )


def apply(config: DictConfig, text: str, override: Override) -> None:
    """Apply one override, as Hydra does.

    Raises:
        PreflightError: it names a key that is not there, adds one that is or that nothing reads, or cannot be applied.
    """
    key, said = override.key_or_group, shown(text, quote=False)
    try:
        there = additions.has(config, key)
        if not there and (line := renamed(key)) is not None:
            raise PreflightError(line)
        if not there and not (override.is_add() or override.is_force_add()):
            raise PreflightError(f"{additions.unknown(config, key)} A new key is added with a + before its name.")
        if override.is_delete():
            if not additions.handed_on(key):
                raise PreflightError(f"{said}: this key cannot be taken away. Set it to another value.")
            parent, _, name = key.rpartition(".")
            with open_dict(config):
                del OmegaConf.select(config, parent)[name]
            return
        value = override.value()
        taken = there and OmegaConf.select(config, key, throw_on_missing=False) is not None  # as Hydra asks
        if override.is_add() and taken and not isinstance(value, dict | list):
            raise PreflightError(f"{said}: {key} is already there. Leave out the +.")
        if not there:
            additions.check_new(config, key)
        if additions.is_text(config, key) and additions.is_number(value):
            value = text.partition("=")[2].strip()  # as it was written: 1e3, not 1000.0
        OmegaConf.update(config, key, value, merge=True, force_add=override.is_add() or override.is_force_add())
    except PreflightError:
        raise
    except BAD as error:
        reason = one_line((str(error).splitlines() or [""])[0]) or type(error).__name__
        raise PreflightError(f"{said} cannot be applied: {reason}.") from error


def line_of(error: Exception) -> str:
    """What Hydra or OmegaConf has against a command line, on one line."""
    cause = error.__cause__ or error
    return reference_line(cause) if isinstance(cause, OmegaConfBaseException) else one_line(error)
