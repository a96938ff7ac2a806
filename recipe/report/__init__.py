"""What happened in a run: a table for the terminal, and one HTML page that opens without a network.

`tables` reads numbers, `rise` says how sure they are, `losses` reads those of a warm start, `validation` and `held_out`
those of held-out tasks; `curves` and `validation_curves` draw them, as `plots` says. `times` says where the time went,
`slowest` which episodes took most of it, `episodes` chooses which rollouts are shown, `page` puts all into one file,
which `render` makes from a template. `differing` has the settings in which several runs differ, `index` lists all runs
of a folder.

With --compare a table of pass rates: `sources` finds votes, evaluations and runs, `votes` reads files of votes,
`pass_rate` has the formulas, `pass_rate_page` makes text, CSV and page, in the words of `pass_rate_words`.
"""

from recipe.report.episodes import read_records
from recipe.report.page import write
from recipe.report.rise import Rise
from recipe.report.tables import rise, stage_dirs, stage_rows, table, values_of
from recipe.report.validation import validations

__all__ = ["Rise", "read_records", "rise", "stage_dirs", "stage_rows", "table", "validations", "values_of", "write"]
