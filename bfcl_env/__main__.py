"""`python -m bfcl_env validate`: check the installed data and classes against gold."""

import argparse
import sys
from pathlib import Path

from bfcl_env.proof.validate import main as validate
from bfcl_env.source import SourceError

parser = argparse.ArgumentParser(prog="python -m bfcl_env", description=__doc__)
parser.add_argument("command", choices=["validate"], help="play gold and trivial policies on all 800 scenarios")
parser.add_argument("--list", type=Path, metavar="FILE", help="write all suspicious entries as JSON, with reasons")
options = parser.parse_args()
try:
    sys.exit(validate(options.list))
except SourceError as error:
    sys.exit(str(error))
