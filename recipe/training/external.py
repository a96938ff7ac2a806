"""What verl imports in place of the modules that VERL_USE_EXTERNAL_MODULES named: these, compiled from their text."""

import os

from interaction.user_file import imported

for name in os.environ["BFCL_EXTERNAL_MODULES"].split(","):
    imported(name)
