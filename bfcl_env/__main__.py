"""`python -m bfcl_env validate`: check the installed data and classes against gold."""

import argparse
import sys

from bfcl_env.proof.validate import main as validate
from bfcl_env.source import SourceError

parser = argparse.ArgumentParser(prog="python -m bfcl_env", description=__doc__)
parser.add_argument("command", choices=["validate"], help="play gold and trivial policies on all 800 scenarios")
parser.add_argument("--all", action="store_true", help="list every suspicious entry, not only some of each reason")
options = parser.parse_args()
try:
    sys.exit(validate(options.all))
except SourceError as error:
    sys.exit(str(error))
