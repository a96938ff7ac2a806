"""`python -m bfcl_env.augmentation`: prints the table of hints for the documentation."""

from bfcl_env.augmentation.table import table

print(table(), end="")
