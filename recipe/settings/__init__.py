"""What each setting may be: types and ranges, of ours and of those of verl's that this recipe is used with.

One reading for all of them (`reading.check_values`), before anything else looks: a wrong type or range, an unknown name
or a misspelt choice is one line that names the setting. What fits by itself and not beside another setting is looked at
afterwards, by the files in `recipe/preflight/`.
"""

from pathlib import Path

CONFIG_DIR = Path(__file__).parents[1] / "config"
"""The folder of the configurations: a YAML file for each stage, and the groups they choose from."""
