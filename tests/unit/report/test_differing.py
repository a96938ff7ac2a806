"""Of several runs the settings in which they differ are named, and no others."""

from pathlib import Path

import pytest
import yaml
from support.runs import STAGE, a_run

from recipe import report
from recipe.report.differing import differing


def a_run_with(folder: Path, **settings: object) -> Path:
    run = a_run(folder, [0.5] * 10)
    (run / STAGE / "config").mkdir()
    content = {"paths": {"run": f"outputs/{folder.name}"}, "folder": f"outputs/{folder.name}/{STAGE}", **settings}
    (run / STAGE / "config" / "resolved.yaml").write_text(yaml.safe_dump(content))
    return run


def test_only_settings_that_differ_are_named_and_a_runs_own_folder_is_none(tmp_path: Path) -> None:
    launch = {"ray_init": {"runtime_env": {"py_executable": "x"}}}
    one = a_run_with(tmp_path / "one", seed=1, lr=1e-6, betas=[0.9, 0.95], gate=None, ray_kwargs=launch)
    launch = {"ray_init": {"runtime_env": {"py_executable": "y"}}}
    two = a_run_with(tmp_path / "two", seed=2, lr=1e-6, betas=[0.9, 0.99], gate={"min": 1}, ray_kwargs=launch)
    assert differing([one, two], [STAGE]) == [
        (STAGE, "betas", ["[0.9, 0.95]", "[0.9, 0.99]"]),
        (STAGE, "gate", ["null", ""]),
        (STAGE, "gate.min", ["", "1"]),
        (STAGE, "seed", ["1", "2"]),
    ]
    page = report.write(one, (two,)).read_text()
    assert "<td>betas</td>" in page and "<td>lr</td>" not in page
    assert "settings in which the runs differ" not in report.write(one).read_text(), "one run differs from nothing"


@pytest.mark.parametrize("damaged", [b"", b"a: [", b"\xff", b"[1, 2]", b"3", b"{" * 10_000, b"a: 2020-01-01 25:61:61"])
def test_a_damaged_configuration_is_none_and_makes_no_others_differ(tmp_path: Path, damaged: bytes) -> None:
    runs = [a_run_with(tmp_path / name, seed=seed) for name, seed in (("one", 1), ("two", 2), ("three", 1))]
    (runs[1] / STAGE / "config" / "resolved.yaml").write_bytes(damaged)
    assert differing(runs, [STAGE]) == []
    assert "No setting is known in which the runs differ" in report.write(runs[0], tuple(runs[1:])).read_text()


def test_values_are_text_and_no_longer_than_a_table_can_bear(tmp_path: Path) -> None:
    runs = [a_run_with(tmp_path / name, note=f"<img src=x>{name}" * 100) for name in ("one", "two")]
    ((_, _, values),) = differing(runs, [STAGE])
    assert all(len(value) == 200 for value in values)
    assert "<img" not in report.write(runs[0], (runs[1],)).read_text()
