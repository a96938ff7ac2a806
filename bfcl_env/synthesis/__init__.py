"""Generated tasks in BFCL's form: `generate`, `python -m bfcl_env.synthesis`."""

from bfcl_env.synthesis.generate import generate
from bfcl_env.synthesis.propose import Shape

__all__ = ["Shape", "generate"]
