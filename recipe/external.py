"""What verl imports in place of a user's VERL_USE_EXTERNAL_MODULES: the same modules, compiled from their text.

verl imports them as it is itself imported, in every process of a training. `recipe.stage.starts` sets both variables.
"""

import os

from interaction.user_file import imported

for name in os.environ["BFCL_EXTERNAL_MODULES"].split(","):
    imported(name)
