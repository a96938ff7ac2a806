"""Thousands of random command lines, composed and checked by what the command itself calls, in one process.

Each either is one line that a person can use, or a configuration whose values are what was given and what may stand
there: by a table of this file's own where it has the key, written from the documentation and not from the types that
are tested. A traceback is a failure, a wrong value that passes is one, and so is a file that appears.
"""

import functools
import gc
import math
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import omegaconf.base
import pytest
from omegaconf import OmegaConf

from recipe import preflight as checks
from recipe.errors import PreflightError
from recipe.launch.compose import compose
from recipe.stage import checkpoints

ROOT = Path(__file__).parents[3]
SETS = 2_000
COMMANDS = 100

HOSTILE = (
    *(
        "",
        " ",
        "\n",
        "a\nb",
        "\0",
        "a\0b",
        "../evil",
        "..",
        ".",
        "/",
        "a/b",
        "~",
        "~/x",
        "logs",
        "$(x)",
        "`x`",
        "; rm x",
    ),
    *("${oc.env:HOME}", "${nope}", "${", "${}", "${oc.decode:[}", "${oc.env:NOT_THERE}", "${trainer}", "${.}", "???"),
    *(
        "\ud800",
        "é'\"\\",
        "{",
        "[",
        "a,b",
        "a=b",
        "#",
        "%s",
        "{0}",
        "nan",
        "inf",
        "-inf",
        "1e400",
        "abc",
        "null",
        "true",
    ),
    *("x" * 300, "x" * 5_000, "\x1b[31m", "\u202e", "\r", "0x10", "1_000", "１２", "-", "--", "=", "'", '"', "\\"),
)
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        3,
        7,
        64,
        -5,
        2**31,
        2**63,
        10**400,
        10**5_000,
        0.0,
        0.5,
        1.0,
        1.5,
        -0.5,
        1e-6,
        1e300,
    ),
    *(
        math.nan,
        math.inf,
        -math.inf,
        [],
        {},
        [1, 2],
        ["a"],
        [[]],
        [[[[1]]]],
        {"a": 1},
        {"a": {"b": [None]}},
        [None],
        [True],
    ),
)
MISSPELT = (lambda k: k + "s", lambda k: k[:-1], lambda k: k.replace("_", ""), lambda k: k[::-1], lambda k: k.upper())


def number(low: float = -math.inf, high: float = math.inf, above: bool = False) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return low <= value <= high and not (above and value == low) and math.isfinite(value)

    return fits


def whole(low: int, null: bool = False) -> Callable[[Any], bool]:
    return lambda value: (null and value is None) or (type(value) is int and low <= value < 2**32)


def one_of(*choices: Any) -> Callable[[Any], bool]:
    return lambda value: any(value is choice or (type(value) is str and value == choice) for choice in choices)


def safe_name(value: Any) -> bool:
    return (
        isinstance(value, str)
        and value not in ("logs", "aside", ".", "..")
        and not set(value) & set("/\0\n ~$")
        and value != ""
    )


def safe_path(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != "" and value.isprintable() and not value.startswith("~")


SWITCH = one_of(True, False)
POLICY = {
    "max_steps_per_turn": whole(1),
    "max_format_errors_per_turn": whole(0),
    "max_result_chars": whole(1, null=True),
    "environments.bfcl.augment": SWITCH,
    "environments.bfcl.at_step_limit": one_of("judge", "official"),
    "environments.bfcl.empty_gold": one_of("state", "official"),
    "environments.bfcl.withheld": one_of("refused", "official"),
}
OPTIMIZER = {
    "lr": number(0),
    "weight_decay": number(0),
    "clip_grad": number(0, above=True),
    "lr_warmup_steps_ratio": number(0, 1),
}
RIGHT: dict[str, Callable[[Any], bool]] = {
    "preflight_only": SWITCH,
    "paths.run": safe_path,
    "paths.stage": safe_path,
    "stage.name": safe_name,
    "stage.previous": lambda value: value is None or safe_name(value),
    "stage.poll_interval": number(0, above=True),
    "stage.old_log_probs_every": whole(1),
    "stage.handover": one_of("last", "best"),
    "stage.adapter": one_of("new", "continue"),
    "stage.over_budget": one_of("keep", "leave_out"),
    "stage.max_lost_share": number(0, 1),
    "stage.max_gen_batches": whole(1),
    **{f"stage.alarms.{name}": number(0) for name in ("malformed", "truncated", "lost", "alike", "turns")},
    "stage.gate": lambda value: value is None or "kind" in value,
    "interaction.protocol": one_of("think_xml", "hermes", "llama3_json", "python_calls", "toolbench"),
    "interaction.docs": one_of("json", "signature"),
    "interaction.max_tokens_per_reply": whole(1, null=True),
    "interaction.engine_timeout": number(0, above=True),
    "interaction.overlong.train": SWITCH,
    "interaction.overlong.penalty": number(0),
    "interaction.overlong.window": number(0, 1, above=True),
    **{f"interaction.{split}.{name}": fits for split in ("train", "val") for name, fits in POLICY.items()},
    "launcher.needs.memory_gb": number(0),
    "launcher.needs.disk_gb": number(0),
    "launcher.prefork": SWITCH,
    "algorithm.credit.gamma_token": number(0, 1),
    "algorithm.credit.lam_token": number(0, 1),
    "algorithm.credit.whiten": SWITCH,
    "algorithm.gamma": number(0, 1),
    "algorithm.lam": number(0, 1),
    "algorithm.adv_estimator": lambda value: isinstance(value, str) and value.isidentifier() and value != "abc",
    "algorithm.use_kl_in_reward": SWITCH,
    "algorithm.kl_ctrl.type": one_of("fixed", "adaptive"),
    "algorithm.kl_ctrl.kl_coef": number(0),
    "algorithm.filter_groups.enable": SWITCH,
    "data.train_batch_size": whole(1),
    "data.max_prompt_length": whole(1),
    "data.max_response_length": whole(1),
    "data.shuffle": SWITCH,
    "data.seed": whole(0, null=True),
    "data.truncation": one_of("error", "left", "right", "middle"),
    "actor_rollout_ref.actor.ppo_mini_batch_size": whole(1),
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": whole(1, null=True),
    "actor_rollout_ref.actor.ppo_epochs": whole(1),
    "actor_rollout_ref.actor.use_kl_loss": SWITCH,
    "actor_rollout_ref.actor.kl_loss_coef": number(0),
    "actor_rollout_ref.actor.kl_loss_type": one_of("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3"),
    "actor_rollout_ref.actor.entropy_coeff": number(),
    "actor_rollout_ref.actor.clip_ratio_low": number(0),
    "actor_rollout_ref.actor.clip_ratio_high": number(0),
    "actor_rollout_ref.actor.strategy": one_of("fsdp", "fsdp2", "fsdp_turbo"),
    "actor_rollout_ref.actor.policy_loss.loss_mode": lambda value: (
        isinstance(value, str) and value.isidentifier() and value != "abc"
    ),
    **{f"actor_rollout_ref.actor.optim.{name}": fits for name, fits in OPTIMIZER.items()},
    **{f"critic.optim.{name}": fits for name, fits in OPTIMIZER.items()},
    "actor_rollout_ref.rollout.n": whole(1),
    "actor_rollout_ref.rollout.temperature": number(0, above=True),
    "actor_rollout_ref.rollout.top_k": whole(-1),
    "actor_rollout_ref.rollout.top_p": number(0, 1, above=True),
    "actor_rollout_ref.rollout.val_kwargs.temperature": number(0),
    "actor_rollout_ref.rollout.val_kwargs.n": whole(1),
    "actor_rollout_ref.rollout.seed": whole(0),
    "actor_rollout_ref.rollout.dtype": one_of("auto", "half", "float16", "bfloat16", "float", "float32"),
    "actor_rollout_ref.rollout.gpu_memory_utilization": number(0, 1, above=True),
    "actor_rollout_ref.rollout.max_model_len": whole(1, null=True),
    "actor_rollout_ref.rollout.tensor_model_parallel_size": whole(1),
    "actor_rollout_ref.rollout.enforce_eager": SWITCH,
    "actor_rollout_ref.model.lora_rank": whole(0),
    "actor_rollout_ref.model.lora_alpha": whole(1),
    "trainer.total_epochs": whole(1),
    "trainer.save_freq": whole(-1),
    "trainer.test_freq": whole(-1),
    "trainer.resume_mode": one_of("auto", "disable", "resume_path"),
    "trainer.n_gpus_per_node": whole(1),
    "trainer.nnodes": whole(1),
    "trainer.val_before_train": SWITCH,
    "trainer.logger": lambda value: (
        set(value if isinstance(value, list) else [value]) <= {"console", "file", "tensorboard"}
    ),
}
"""What may stand under a key, said once more."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No settings from outside, an empty working directory, and each of OmegaConf's 130 references parsed only once."""
    for name in ("MODEL", "RUN", "SEED", "TRAIN_BATCH_SIZE", "MINI_BATCH_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HARDWARE", "tiny")
    monkeypatch.chdir(tmp_path)
    threshold = gc.get_threshold()
    gc.freeze()  # looking for garbage in all that was imported takes nearly half of the time
    gc.set_threshold(100_000, 20, 100)
    monkeypatch.setattr(omegaconf.base, "parse", functools.lru_cache(None)(omegaconf.base.parse))
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()
    assert list(tmp_path.iterdir()) == [], "something was written"


def hydra_text(value: Any) -> str:
    """A value as a careful user would write it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("\\'", "\\\\'").replace("'", "\\'") + ("\\'" if value.endswith("\\") else "'")
    if isinstance(value, list):
        return f"[{','.join(map(hydra_text, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{name}:{hydra_text(item)}' for name, item in value.items())}}}"
    return "9" * 5_001 if value == 10**5_000 else repr(value)


def leaves(node: Any, path: str = "") -> list[str]:
    if not isinstance(node, dict) or not node:
        return [path]
    return [
        path,
        *(leaf for name, item in node.items() for leaf in leaves(item, f"{path}.{name}" if path else str(name))),
    ][0 if path else 1 :]


def any_override(draw: random.Random, keys: list[str]) -> tuple[str, str, Any]:
    """A command line's word, the key it names, and the value as it should arrive; `...` where that is not known."""
    key = draw.choice(sorted(RIGHT)) if draw.random() < 0.6 else draw.choice(keys)
    roll = draw.random()
    if roll < 0.08:
        key = draw.choice(MISSPELT)(key)
        return f"{key}={hydra_text(draw.choice(VALUES))}", key, ...
    if roll < 0.14:
        name = draw.choice(
            ("made_up", "foo.bar", f"{key}.made_up", f"{key.rpartition('.')[0]}.made_up", "trainer.total_epoch")
        )
        return f"{draw.choice(('+', '++'))}{name}={hydra_text(draw.choice(VALUES))}", name, ...
    if roll < 0.17:
        return f"{draw.choice(('~', '+'))}{key}", key, ...
    if roll < 0.20:
        return draw.choice(HOSTILE) + draw.choice(("", key, f"{key}=1")), key, ...
    if roll < 0.23:
        group = draw.choice(("hardware", "algorithm", "algorithm@x", "data", "hydra/launcher", "critic"))
        return f"{group}={draw.choice(('cpu', 'gpu1', 'grpo', 'nope', *HOSTILE))}", group, ...
    if roll < 0.60:
        text = draw.choice(HOSTILE)
        return (f"{key}={text}", key, ...) if draw.random() < 0.5 else (f"{key}={hydra_text(text)}", key, ...)
    value = draw.choice(VALUES)
    return f"{key}={hydra_text(value)}", key, value


def outcome(overrides: list[str]) -> tuple[str, Any]:
    """What the command does before it looks at data, model or machine."""
    try:
        config = compose("stage1", overrides)
        checks.check_settings(config)
        checkpoints.check(config)
    except PreflightError as error:
        return "clear line", str(error)
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {error}"
    return "passed", config


def problem_of_line(line: str, words: list[str], keys: list[str]) -> str | None:
    """What a person would have against a message."""
    if any(len(part) > 400 or not part.isprintable() for part in line.split("\n")):
        return "too long or not printable"
    heads = [*keys, *(word.partition("=")[0].lstrip("+~") for word in words), *RIGHT]
    parents = [head.rpartition(".")[0] for head in heads if head.count(".") > 1]
    if not any(head[:40] in line for head in (*heads, *parents) if head) and not line.startswith("'"):
        return "names no setting"
    return None


def test_a_random_command_line_is_one_clear_line_or_a_right_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(20261121)
    keys = leaves(OmegaConf.to_container(compose("stage1")))
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for _ in range(SETS):
        made = [any_override(draw, keys) for _ in range(draw.choice((1, 1, 1, 2, 3)))]
        words = [word for word, _, _ in made]
        kind, result = outcome(words)
        if kind == "passed":
            plain: Any = OmegaConf.to_container(result, resolve=True)
            for word, key, value in made:
                found = functools.reduce(
                    lambda node, name: node.get(name) if isinstance(node, dict) else None, key.split("."), plain
                )
                last = [other for other in made if key.startswith(other[1]) or other[1].startswith(key)][-1][0] == word
                if key in RIGHT and not RIGHT[key](found):
                    kind = "wrongly passed"
                elif (
                    value is not ...
                    and last
                    and found not in (value, hydra_text(value))
                    and not isinstance(value, dict)
                ):
                    kind = "wrongly passed"
        elif kind == "clear line" and (against := problem_of_line(result, words, [key for _, key, _ in made])):
            kind = against
        counts[kind] += 1
        if kind not in ("passed", "clear line"):
            wrong.append(f"{kind}: {words!r:.300}: {str(result)[:300] if kind != 'wrongly passed' else ''}")
    with capsys.disabled():
        print(f"\n{SETS} random command lines: {dict(counts)}")
    assert not wrong, "\n".join(wrong[:40])
    assert counts["passed"] > SETS // 50 and counts["clear line"] > SETS // 2


SECTIONS = sorted({".".join(key.split(".")[:depth]) for key in RIGHT for depth in range(1, key.count(".") + 1)})


@pytest.mark.parametrize("value", ["null", "text", "[]"])
def test_a_whole_section_that_is_replaced_is_a_clear_line(value: str) -> None:
    for key in (*SECTIONS, "trainer.v1"):
        kind, line = outcome([f"{key}={value}"])
        assert kind == "clear line", (key, line)
        assert problem_of_line(line, [key], [key]) is None, line


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(RIGHT))
def test_every_value_outside_its_kind_is_refused_by_name(key: str) -> None:
    for value in (*VALUES, *HOSTILE):
        kind, result = outcome([f"{key}={hydra_text(value)}"])
        assert kind != "traceback", (value, result)
        if kind == "passed":
            found = functools.reduce(
                lambda node, name: node[name], key.split("."), OmegaConf.to_container(result, resolve=True)
            )
            assert RIGHT[key](found), (value, found)


@pytest.mark.slow
def test_a_hundred_random_commands_end_with_a_line_and_a_status() -> None:
    draw = random.Random(7)
    keys = leaves(OmegaConf.to_container(compose("stage1")))
    for _ in range(COMMANDS):
        words = [any_override(draw, keys)[0] for _ in range(draw.choice((1, 2)))]
        if any("\0" in word for word in words) or any(word.startswith("-") for word in words):
            continue  # no command line can have the one, and the other is an option
        answer = subprocess.run(
            [
                sys.executable,
                "-m",
                "recipe.train",
                "preflight_only=true",
                *(
                    os.fsencode(w.encode("utf-8", "surrogateescape") if w.isascii() else w.encode("utf-8", "replace"))
                    for w in words
                ),
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            timeout=60,
        )
        said = (answer.stdout + answer.stderr).decode(errors="replace")
        assert "Traceback" not in said, (words, said)
        assert answer.returncode != 0, (words, said)
        assert "cannot start: " in said, (words, said)
