"""What is said of a stage that is done, where other training files are named than it was trained on."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from recipe.stage.same_rows import other_data


def said(stage: Path, files: str | list[str]) -> str | None:
    return other_data(OmegaConf.create({"data": {"train_files": files}}), stage)


def left(stage: Path, text: str) -> Path:
    (stage / "config").mkdir(exist_ok=True)
    (stage / "config" / "resolved.yaml").write_text(text)
    return stage


def test_other_files_are_named_and_the_same_are_not_wherever_a_link_leads(tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    rows.write_text("")
    (tmp_path / "link.parquet").symlink_to(rows)
    left(tmp_path, f"data: {{train_files: {rows}}}")
    for same in (str(rows), [str(rows)], str(tmp_path / "link.parquet"), f"{tmp_path}/x/../rows.parquet"):
        assert said(tmp_path, same) is None
    for other in ("other.parquet", [str(rows), "other.parquet"]):
        line = said(tmp_path, other)
        assert line is not None and f"trained on {rows}, not on " in line
        assert line.endswith("other.parquet: that takes a new run, RUN=another-name")


@pytest.mark.parametrize("text", ["", "[", "7", "data: 7", "data: {}", "data: {train_files: null}", "a: ${b}"])
def test_of_a_configuration_that_says_nothing_of_it_nothing_is_said(tmp_path: Path, text: str) -> None:
    assert said(tmp_path, "rows.parquet") is None
    assert said(left(tmp_path, text), "rows.parquet") is None
