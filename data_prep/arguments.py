"""The command line of `python -m data_prep`. Imports nothing that takes time."""

import argparse
from pathlib import Path
from typing import Any

import yaml

STEPTOOL = ("max_context", "max_response", "tokenizer", "skip_bad")


def parse(arguments: list[str] | None, description: str | None) -> argparse.Namespace:
    """The arguments. Ends the process with a line where one would do nothing, or cut all results away."""
    parser = _parser(description)
    options = parser.parse_args(arguments)
    given = [name for name, value in vars(options).items() if value != parser.get_default(name)]
    of_steptool, others = ({*given} & {*STEPTOOL}, {*given} - {*STEPTOOL, "steptool", "out"})
    if idle := sorted(of_steptool if options.steptool is None else others):
        how = "without" if options.steptool is None else "with"
        parser.error(f"--{idle[0].replace('_', '-')} does nothing {how} --steptool; leave it out")
    if of_steptool & {"max_context", "max_response"} and options.tokenizer is None:
        parser.error("--max-context and --max-response count tokens of --tokenizer: give one")
    options.protocol = options.protocol or ("python_calls" if options.laptop else "think_xml")
    for name in ("max_result_chars", "rows", "val_rows", "max_context", "max_response"):
        number = getattr(options, name)
        if number is not None and (number < 1 or (name.endswith("rows") and not options.mixture)):
            parser.error(f"--{name.replace('_', '-')} {number}: give 1 or more{', and --mixture' * ('rows' in name)}")
    return options


def _parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m data_prep", description=description)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the files; made if missing")
    parser.add_argument(
        "--protocol", help="wire format of the prompts (default: think_xml; python_calls with --laptop)"
    )
    parser.add_argument(
        "--docs",
        choices=["json", "signature"],
        help="how prompts document functions (default: json; signature with --tiny and --laptop)",
    )
    parser.add_argument(
        "--max-result-chars",
        type=int,
        metavar="N",
        help="cut results in SFT conversations, as training is set to (default: no cut; 300 with --tiny and --laptop)",
    )
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument(
        "--environment",
        default="bfcl",
        metavar="NAME|FILE",
        help="whose tasks; or a file of your own: Python (docs/your_tools.md), or JSON (docs/your_data.md)",
    )
    whose.add_argument("--json", dest="environment", metavar="FILE", help="short for the latter")
    parser.add_argument(
        "--categories",
        type=lambda text: tuple(filter(None, text.split(","))),
        default=(),
        metavar="A,B,...",
        help="only these of the environment's categories (default: all)",
    )
    parser.add_argument(
        "--mixture",
        nargs="+",
        default=[],
        type=weight,
        metavar="NAME=WEIGHT",
        help="rows of several environments by weight, in place of --environment: bfcl/base=2 bfcl_single=1",
    )
    for name, kind in (("--rows", "training"), ("--val-rows", "validation")):
        help_text = f"{kind} rows of the mixture (default: as many as the weights allow)"
        parser.add_argument(name, type=int, metavar="N", help=help_text)
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        type=key_value,
        metavar="KEY=VALUE",
        help="a setting of the environment's own that its prompts depend on; may be repeated",
    )
    parser.add_argument("--tiny", action="store_true", help="write the small files of the CPU demo instead")
    parser.add_argument(
        "--laptop",
        action="store_true",
        help="write those of the CPU profile: short tasks of bfcl and bfcl_single, or with --json those of the file",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of --laptop: draw other tasks (default: 1)")
    parser.add_argument(
        "--unplayed",
        action="store_true",
        help="call no tool that waits: tasks are not checked, and have no gold conversations",
    )
    parser.add_argument(
        "--leave-out",
        metavar="FILE[=REASON]",
        help="do not train on the tasks that this JSON lists, with a reason that has these words; docs/generated.md",
    )
    group = parser.add_argument_group("data of StepTool's", "one file, in place of an environment's tasks")
    group.add_argument("--steptool", type=Path, metavar="FILE", help="SFT JSON, or step CSV; docs/offline.md has both")
    for name, what in (("--max-context", "a row"), ("--max-response", "a message of the model")):
        text = f"most tokens of {what}; whole steps are dropped from the end (default: no limit)"
        group.add_argument(name, type=int, metavar="N", help=text)
    group.add_argument("--tokenizer", metavar="MODEL", help="a model's folder or hub id, whose tokens count")
    group.add_argument("--skip-bad", action="store_true", help="leave out rows that are wrong, and list them")
    return parser


def key_value(text: str) -> tuple[str, Any]:
    """KEY=VALUE, the value as YAML has it.

    Raises:
        argparse.ArgumentTypeError: it is not that.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise argparse.ArgumentTypeError(
            f"the value of {key} is no YAML: {' '.join(str(error).split())[:200]}"
        ) from error


def weight(text: str) -> tuple[str, float]:
    """NAME=WEIGHT; the name may hold `=`. Raises: ValueError."""
    name, _, number = text.rpartition("=")
    return name, float(number)
