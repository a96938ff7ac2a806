"""The command line of `recipe.evaluate`, checked, and what it leads to: settings, and an endpoint."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from data_prep.choice import categories_of, full_names
from data_prep.pairs import key_value
from interaction.endpoint.client import SAMPLING, Endpoint, Named
from interaction.environment import DEFAULT, named, read_options, source_of, turn_policy
from interaction.policy import read_policy
from interaction.protocol import DOC_STYLES, PROTOCOLS
from interaction.users import make_user
from recipe.evaluation import plain, server
from recipe.evaluation.store import PARTS, Settings

Work = Callable[[Endpoint], Awaitable[Any]]

MAX_NODES = 60
"""Of a search by default: twice the messages that tau allows one episode."""

SAMPLING_OPTIONS = ("temperature", "top_p", "top_k", "repetition_penalty")

OPTIONS = Named(
    "--endpoint",
    "--served-name",
    "--api-key-env",
    "Add --leave-out {name}: then the server decides it, and settings.json says so. Results compare only where that is "
    "the same.",
)


def parse(arguments: list[str], description: str | None, **program: str) -> tuple[argparse.Namespace, list[str]]:
    """What was given, checked, and what goes to vLLM. Ends the process with a line where it makes no sense."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    own, flags = arguments[:at], arguments[at + 1 :]
    parser = _parser(description, {"prog": "python -m recipe.evaluate"} | program)
    given = parser.parse_args(own)
    if given.tau2_data is not None:
        os.environ["TAU2_DATA_DIR"] = given.tau2_data
    try:
        given.environment = named(given.environment)
    except ValueError as error:
        parser.error(f"argument --environment: {error}")
    given.option, given.user, given.turn_policy = dict(given.option), dict(given.user) or None, dict(given.turn_policy)
    for name, check in (
        ("option", partial(read_options, given.environment)),
        ("user", make_user),
        ("turn_policy", read_policy),
    ):
        try:
            check(getattr(given, name))
        except ValueError as error:
            parser.error(f"argument --{name.replace('_', '-')}: {error}")
    categories = categories_of(given.environment)
    _narrow(given, categories, parser)
    try:
        given.category = (
            categories if given.category in ([], ["all"]) else full_names(given.environment, given.category)
        )
    except ValueError as error:
        parser.error(f"argument --category: {error}")
    if flags and not given.model:
        parser.error(f"{' '.join(flags)}: what follows -- goes to vLLM, which only --model starts")
    if given.adapter and not given.model:
        parser.error(f"--adapter {given.adapter}: name the model it belongs to with --model")
    for name in given.leave_out:
        if getattr(given, name, None) is not None:
            parser.error(f"--leave-out {name} and --{name.replace('_', '-')} contradict each other; give one of them")
    if given.samples > 1 and not given.temperature and "temperature" not in given.leave_out:
        parser.error(f"--samples {given.samples} at --temperature 0 plays the same episode again; raise --temperature")
    _search(given, parser)
    if given.api_key_env and given.api_key_env not in os.environ:
        parser.error(f"--api-key-env {given.api_key_env}: there is no such environment variable")
    return given, flags


def _parser(description: str | None, program: dict[str, Any]) -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(**program, description=description, formatter_class=form)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", type=Path, metavar="PATH", help="Hugging Face folder to serve with vLLM")
    source.add_argument("--endpoint", metavar="URL", help="OpenAI-compatible server, up to and with /v1")
    source.add_argument("--records", type=Path, nargs="+", metavar="RUN", help="run folders or JSONL files to judge")
    parser.add_argument(
        "--adapter", type=Path, metavar="PATH", help="with --model, its base: a LoRA adapter of a stage"
    )
    parser.add_argument("--served-name", metavar="NAME", help="model name at the endpoint (default: the only one)")
    parser.add_argument("--api-key-env", metavar="VAR", help="environment variable that holds the endpoint's key")
    parser.add_argument("--hardware", choices=server.PROFILES, help="profile for --model (default: as in training)")
    parser.add_argument(
        "--split",
        choices=tuple(PARTS),
        default="val",
        help="which tasks; val is choose and report together (docs/evaluation.md)",
    )
    parser.add_argument(
        "--environment", default=DEFAULT, help="whose tasks are played: a name, or a Python or JSON file"
    )
    pairs: dict[str, Any] = {"action": "append", "default": [], "type": key_value, "metavar": "KEY=VALUE"}
    parser.add_argument("--option", **pairs, help="of the environment, as interaction.val.environments.NAME")
    parser.add_argument("--turn-policy", **pairs, help="how turns go, as interaction.val.KEY (default: BFCL's rules)")
    parser.add_argument("--user", **pairs, help="who plays the user where one is asked, as interaction.user")
    parser.add_argument("--tau2-data", metavar="DIR", help="data/tau2 of a checkout, in place of the pinned release")
    parser.add_argument("--domain", help="of tau: telecom, retail or airline (default: all)")
    parser.add_argument("--mode", choices=("solo", "user"), help="of tau: a ticket in place of the user, or a user")
    parser.add_argument(
        "--category", action="append", default=[], help="base, miss_func, ...; may be repeated (default: all)"
    )
    parser.add_argument("--protocol", choices=sorted(PROTOCOLS), default="think_xml")
    parser.add_argument("--docs", choices=DOC_STYLES, default="json", help="how functions are described")
    parser.add_argument("--samples", type=count, default=1, help="episodes of each task")
    parser.add_argument("--temperature", type=number(0), help="default: 0, greedy, as training's validation")
    parser.add_argument("--top-p", type=number(0, 1, above=True), help="default: 1, all tokens")
    parser.add_argument("--top-k", type=_top_k, help="default: -1, all tokens")
    parser.add_argument("--repetition-penalty", type=number(0, above=True), help="default: 1, none")
    parser.add_argument(
        "--leave-out",
        action="append",
        default=[],
        choices=SAMPLING,
        help="a sampling field that the endpoint does not take; may be repeated",
    )
    parser.add_argument(
        "--strategy", choices=("cot", "dfsdt"), default="cot", help="one branch, or ToolBench's depth-first search"
    )
    parser.add_argument(
        "--max-nodes", type=count, help=f"of dfsdt: messages of the model for each episode (default: {MAX_NODES})"
    )
    parser.add_argument("--max-tokens", type=count, help="of one message (default: what the context leaves)")
    parser.add_argument("--limit", type=count, help="only the first tasks of each category")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: outputs/evaluation/<model>-<split>")
    parser.add_argument("--concurrency", type=count, default=32, help="episodes at a time")
    parser.add_argument("--timeout", type=number(0, above=True), default=600.0, help="seconds for one message")
    parser.add_argument("--attempts", type=count, default=5, help="requests for one message before it is a fault")
    parser.add_argument(
        "--backoff", type=number(0), default=1.0, help="seconds before the second request, then doubled"
    )
    return parser


def _search(given: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Checks the settings of a search and gives it its budget."""
    if given.strategy == "cot":
        if given.max_nodes is not None:
            parser.error(f"--max-nodes {given.max_nodes} is the budget of a search; give it with --strategy dfsdt")
        return
    given.max_nodes = given.max_nodes or MAX_NODES
    if given.user and given.user["kind"] == "endpoint":
        parser.error(
            "--strategy dfsdt with --user kind=endpoint: a search plays the same turns again for each branch, and a "
            "model in the user's place would say something else each time; expected a user of kind scripted or "
            "replay, tasks without one (--mode solo), or --strategy cot"
        )


def _narrow(given: argparse.Namespace, categories: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """Sets the categories of a domain and a mode, which categories are named by: telecom_solo_mms, telecom_mms."""
    if given.domain is None and given.mode is None:
        return
    solo = {name for name in categories if "_solo" in name}
    fits = [
        name
        for name in categories
        if name.split("_")[0] == (given.domain or name.split("_")[0])
        and (given.mode is None or (name in solo) == (given.mode == "solo"))
    ]
    if not fits or not solo or given.category:
        parser.error(
            f"--domain {given.domain} --mode {given.mode}: environment {given.environment} has no such categories, or "
            f"--category is given too; it has {', '.join(categories)}"
        )
    given.category = fits


def count(value: str) -> int:
    """A whole number, 1 or more."""
    if not value.isdecimal() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is not a whole number, 1 or more")
    return int(value)


def number(low: float, high: float = math.inf, above: bool = False) -> Callable[[str], float]:
    """A number from `low` (with `above`: more than it) to `high`."""

    def read(value: str) -> float:
        found = float(value)
        if not low <= found <= high or math.isinf(found) or (above and found == low):
            limits = f"{'more than' if above else 'at least'} {low:g}" + (
                "" if high == math.inf else f", at most {high:g}"
            )
            raise argparse.ArgumentTypeError(f"{value} is not {limits}")
        return found

    return read


def _top_k(value: str) -> int:
    if value != "-1" and (not value.isdecimal() or int(value) < 1):
        raise argparse.ArgumentTypeError(f"{value!r} is neither -1, for all tokens, nor a whole number, 1 or more")
    return int(value)


def settings_of(given: argparse.Namespace) -> Settings:
    """What decides the outcome. Raises ServerError if there is no model in the folder."""
    if given.model:
        server.check_model_folder(given.model)
        model = f"{given.model.resolve()} {server.fingerprint(given.model)}"
        if given.adapter:
            server.check_adapter_folder(given.adapter, given.model)
            model += f" with {given.adapter.resolve()} {server.fingerprint(given.adapter)}"
    else:
        model = given.served_name
    return Settings(
        model=model,
        endpoint=given.endpoint,
        split=given.split,
        categories=tuple(given.category),
        protocol=given.protocol,
        docs=given.docs,
        samples=given.samples,
        max_tokens=given.max_tokens,
        limit=given.limit,
        environment=given.environment,
        options=given.option,
        user=given.user,
        policy=turn_policy(given.environment, given.option) | given.turn_policy,
        source={} if given.environment == DEFAULT else source_of(given.environment),
        strategy=given.strategy,
        max_nodes=given.max_nodes,
        **_sampling(given),
    )


def _sampling(given: argparse.Namespace) -> dict[str, Any]:
    """The sampling settings that differ from training's validation."""
    chosen = {name: getattr(given, name) for name in SAMPLING_OPTIONS if getattr(given, name) is not None}
    return {"temperature": 0.0} | chosen | dict.fromkeys(given.leave_out)


def through(given: argparse.Namespace, flags: Sequence[str], settings: Settings, log: Path, work: Work) -> Any:
    """What `work` makes of the endpoint. Raises ServerError and EndpointRefusal if there is none."""

    async def asked(url: str, name: str, key: str, made_plain: plain.Plain) -> Any:
        how = (given.timeout, given.attempts, given.backoff)
        async with Endpoint(url, name, key, *how, settings.sampling(), made_plain, named=OPTIONS) as endpoint:
            return await work(endpoint)

    if given.endpoint:
        return asyncio.run(asked(given.endpoint, given.served_name, key_of(given), plain.generic))
    print(f"starting vLLM, log in {log}", flush=True)
    name, all_flags = server.SERVED_NAME, [*flags]
    if given.adapter:
        name, all_flags = server.ADAPTER_NAME, [*server.adapter_flags({server.ADAPTER_NAME: given.adapter}), *flags]
    with server.serve(given.model, log, given.hardware, all_flags) as url:
        return asyncio.run(asked(url, name, "EMPTY", plain.of_model(given.model, flags)))


def key_of(given: argparse.Namespace) -> str:
    """The endpoint's key."""
    return os.environ[given.api_key_env] if given.api_key_env else "EMPTY"
