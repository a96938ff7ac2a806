"""The notebook prints what it says that it prints."""

import contextlib
import io
import json
from pathlib import Path


def test_the_cells_of_the_notebook_print_what_is_stored():
    scope: dict = {}
    notebook = (Path(__file__).parents[2] / "docs" / "first_look.ipynb").read_text()
    cells = [cell for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "code"]
    assert len(cells) == 6
    for number, cell in enumerate(cells, 1):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), scope)
        stored = "".join(line for output in cell["outputs"] for line in output["text"])
        assert printed.getvalue() == stored, f"cell {number}"
