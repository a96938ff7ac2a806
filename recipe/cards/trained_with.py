"""Where an evaluation asks a model otherwise than its training did. It is said and not refused: it may be meant.

What a stage trained with stands in the configuration beside its export, `<stage>/config/resolved.yaml`. A folder that
was copied away, or published, has its card: the protocol, and how functions are described. Of any other model nothing
is known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interaction.environment import DEFAULT, read_options
from interaction.policy import TURNS, TurnPolicy
from recipe.cards.lineage import Stage, lineage
from recipe.cards.origin import CARD, metadata
from recipe.evaluation.store import Settings
from recipe.typed import one_line, shown

TAGGED = {"protocol": "think_xml", "docs": "json"}
"""What a card's tags say: `protocol:hermes`."""

STEPS, LIMIT = "max_steps_per_turn", "at_step_limit"
NOT_PLAYED = ("split",)
"""Settings of an environment that say which tasks there are, and not how they are played."""


@dataclass(frozen=True, slots=True)
class Differing:
    """A setting that is not the same in both."""

    name: str
    trained: str
    evaluated: str
    equal: str
    """What on the command line of the evaluation makes them equal."""
    rule: bool = False
    """Whether it is one of the source's rules, by which an evaluation plays whatever the training did."""


def notes(settings: Settings, model: Path, context: int | None) -> list[str]:
    """What a reader of the evaluation has to know: a line for each setting, then one for the rules; none if all agree.

    Args:
        model: the folder of the model, or of its adapter.
        context: tokens that the server holds; None where that is not known.
    """
    try:
        stage = trained(model)
        return [] if stage is None else _lines(shown(stage.name, quote=False), [*differing(settings, stage, context)])
    except Exception as error:  # whatever stands in those files, the evaluation does without
        return [f"how it was trained cannot be read: {one_line(f'{type(error).__name__}: {error}')}"]


def _lines(name: str, found: list[Differing]) -> list[str]:
    asked, rules = [item for item in found if not item.rule], [item for item in found if item.rule]
    lines = []
    if asked:
        lines.append(f"NOTE this is not how {name} was trained, and may be why the model does worse:")
        lines += [
            f"  {item.name}: trained with {item.trained}, evaluated with {item.evaluated}; the same: {item.equal}"
            for item in asked
        ]
    if rules:
        said = "; ".join(f"{item.name} {item.evaluated}, not {item.trained} ({item.equal})" for item in rules)
        lines.append(f"rules of the evaluation that are not those of {name}: {said}")
    return lines


def trained(model: Path) -> Stage | None:
    """The stage that made `<stage>/hf`, `adapter` or a checkpoint, or what the card of a lone folder says of it."""
    for folder in list(model.absolute().parents)[:4]:
        if (folder / "config" / "resolved.yaml").is_file():
            return lineage(folder)[1][-1]
    tags = metadata(model / CARD).get("tags")
    pairs = [str(tag).partition(":") for tag in tags] if isinstance(tags, list) else []
    said = {name: value for name, _, value in pairs if name in TAGGED and value}
    return Stage("the model, by its card,", {"interaction": said}, (), None, {}, None) if said else None


def differing(settings: Settings, stage: Stage, context: int | None) -> Iterator[Differing]:
    """Every setting that is known of the training and is another one in the evaluation."""
    own = stage.setting("interaction")
    own = own if isinstance(own, Mapping) else {}
    for name, evaluated in (("protocol", settings.protocol), ("docs", settings.docs)):
        if name in own and own[name] != evaluated:
            yield Differing(name, _shown(own[name]), evaluated, f"--{name} {_shown(own[name])}")
    if own.get("max_tokens_per_reply", settings.max_tokens) != settings.max_tokens:
        yield _of_a_message(own["max_tokens_per_reply"], settings.max_tokens)
    if not isinstance(own.get("train"), Mapping) or not _plays(stage, settings.environment):
        return
    yield from _options(settings, own["train"])
    yield from _turns(settings, own["train"])
    if (room := _room(stage)) is not None and context is not None and context != room:
        flag = f"-- --max-model-len {room}"
        yield Differing("tokens of an episode", str(room), str(context), flag, rule=True)


def _of_a_message(given: Any, evaluated: int | None) -> Differing:
    before, now = ["whatever is left" if value is None else _shown(value) for value in (given, evaluated)]
    equal = "leave out --max-tokens" if given is None else f"--max-tokens {before}"
    return Differing("tokens of a message", before, now, equal)


def _plays(stage: Stage, environment: str) -> bool:
    """Whether tasks of the environment were trained on; where the data are gone, that is assumed."""
    sources = [source.partition("/")[0] for file in stage.data if not file.held_out for source in file.rows]
    return environment in sources or not sources


def _options(settings: Settings, train: Mapping[str, Any]) -> Iterator[Differing]:
    """Those of the environment. BFCL's are its leaderboard's unless given; another's change what the model reads."""
    now = read_options(settings.environment, settings.rules())
    try:
        before = read_options(settings.environment, _given(train, settings.environment))
    except ValueError:  # settings of a release that had others
        return
    for name in now:
        if name not in NOT_PLAYED and before[name] != now[name]:
            equal = f"--option {name}={_shown(before[name])}"
            yield Differing(name, _shown(before[name]), _shown(now[name]), equal, settings.environment == DEFAULT)


def _turns(settings: Settings, train: Mapping[str, Any]) -> Iterator[Differing]:
    """The turn policy. By BFCL's rules the message after the last one ends the episode: it is not counted here."""
    defaults = {name: getattr(TurnPolicy(), name) for name in TURNS}
    now = defaults | settings.turn_policy()
    before = {name: train.get(name, value) for name, value in defaults.items()}
    official = settings.rules().get(LIMIT) == "official"
    was_official = _given(train, settings.environment).get(LIMIT) == "official"
    now[STEPS] -= official
    if was_official and isinstance(before[STEPS], int):
        before[STEPS] -= 1
    for name in defaults:
        if before[name] != now[name]:
            old, new = ["no limit" if one is None else _shown(one) for one in (before[name], now[name])]
            equal = f"--turn-policy {name}={_shown(train.get(name, defaults[name]))}"
            if name == STEPS and official != was_official:  # the number is one under the training's rule
                equal = f"--option {LIMIT}={'official' if was_official else 'judge'} {equal}"
            yield Differing(name, old, new, equal, rule=True)


def _given(train: Mapping[str, Any], environment: str) -> Mapping[str, Any]:
    """What the training's turn policy says of one environment."""
    sections = train.get("environments")
    given = sections.get(environment) if isinstance(sections, Mapping) else None
    return given if isinstance(given, Mapping) else {}


def _room(stage: Stage) -> int | None:
    """Tokens of the longest episode in training: of prompt and response, as far as the engine holds them."""
    prompt, response = stage.setting("data.max_prompt_length"), stage.setting("data.max_response_length")
    whole = stage.setting("actor_rollout_ref.rollout.max_model_len")
    if type(prompt) is not int or type(response) is not int:
        return None
    return min(prompt + response, whole) if type(whole) is int else prompt + response


def _shown(value: Any) -> str:
    """As YAML and a command line have it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else shown(value, quote=False)
