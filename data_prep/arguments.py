"""The command line of `python -m data_prep`. Imports nothing that takes time."""

import argparse
from pathlib import Path

from data_prep.pairs import key_value, weight
from data_prep.steptool import command as steptool


def parse(arguments: list[str] | None, description: str | None) -> argparse.Namespace:
    """The arguments. Ends the process with a line where they make no sense."""
    parser = _parser(description)
    options = parser.parse_args(arguments)
    steptool.check(parser, options)
    options.protocol = options.protocol or ("python_calls" if options.laptop else "think_xml")
    if options.max_result_chars is not None and options.max_result_chars < 1:
        parser.error(f"--max-result-chars is {options.max_result_chars}; give 1 or more, or leave it out for no cut")
    for name in ("rows", "val_rows"):
        number = getattr(options, name)
        if number is not None and (number < 1 or not options.mixture):
            parser.error(f"--{name.replace('_', '-')} {number}: give 1 or more, and --mixture")
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
    whose.add_argument("--json", dest="environment", type=_json_file, metavar="FILE", help="short for the latter")
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
    parser.add_argument(
        "--tau2-data", metavar="DIR", help="data/tau2 of a checkout of tau2-bench, in place of the pinned one"
    )
    parser.add_argument("--tiny", action="store_true", help="write the small files of the CPU demo instead")
    parser.add_argument(
        "--laptop",
        action="store_true",
        help="write those of the CPU profile: short tasks of bfcl and bfcl_single, or with --json those of the file",
    )
    parser.add_argument(
        "--leave-out",
        metavar="FILE[=REASON]",
        help="do not train on the tasks that this JSON lists, with a reason that has these words; docs/generated.md",
    )
    steptool.add_arguments(parser)
    return parser


def _json_file(name: str) -> str:
    if Path(name).suffix != ".json":
        raise argparse.ArgumentTypeError(f"{name} does not end in .json; a Python file is given with --environment")
    return name
