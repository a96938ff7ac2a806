"""The data card says what the manifest says, in a form that the hub reads, and takes nobody's README away."""

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import DatasetCard

from data_prep.build import Options, build
from data_prep.card import data_card, write_card

KINDS = {"a_train.parquet": "train", "a_val.parquet": "val", "a_sft.parquet": "sft"}


def manifest(**change: Any) -> dict[str, Any]:
    files = {name: {"rows": number, "sha256": f"{number:064x}"} for number, name in enumerate(KINDS)}
    return {"command": "python -m data_prep --out DIR", "protocol": "hermes", "docs": "json", "files": files, **change}


def test_a_built_folder_has_a_card_of_its_files(tmp_path: Path) -> None:
    made = build(tmp_path, Options(tiny=True))
    card = DatasetCard.load(tmp_path / "README.md")
    assert card.data.license == "apache-2.0" and card.data.task_categories == ["text-generation"]
    paths = {one["path"] for config in card.data.configs for one in config["data_files"]}
    assert paths == set(made["files"]) == {path.name for path in tmp_path.glob("*.parquet")}
    assert all(entry["sha256"] in card.text for entry in made["files"].values()) and made["command"] in card.text
    assert "no clean score on BFCL's multi-turn categories" in card.text


@pytest.mark.parametrize(
    ("known", "licence"),
    [(["tau"], "mit"), (["bfcl", "bfcl_single"], "apache-2.0"), (["bfcl", "tau"], None), (["mine"], None)],
)
def test_a_licence_is_stated_only_where_all_rows_have_it(known: list[str], licence: str | None) -> None:
    card = DatasetCard(data_card(manifest(), KINDS, known))
    assert card.data.license == licence
    assert ("state their source and licence" in card.text) is ("mine" in known)


@pytest.mark.parametrize("name", ["a|b", "<script>", "x`y`", "---\nlicense: mit", "a\n## b"])
def test_names_of_a_users_are_no_markup_and_no_metadata(name: str) -> None:
    given = manifest(command=f"python -m data_prep --environment {name}")
    given["files"] = {name: {"rows": 3, "sha256": "0"}}
    card = DatasetCard(data_card(given, {name: "train"}, [name]))
    markup = "\n".join(
        line for line in card.text.splitlines() if not line.startswith("    ")
    )  # the rest is a code block
    assert card.data.license is None and "<script>" not in markup
    rows = [line for line in card.text.splitlines() if line.startswith("|")]
    assert len(rows) == 3 and "\n## b" not in card.text


@pytest.mark.parametrize("kept", ["# Mine\n", "", None])
def test_a_readme_of_somebody_elses_is_kept(tmp_path: Path, kept: str | None) -> None:
    path = tmp_path / "README.md"
    path.mkdir() if kept is None else path.write_text(kept)
    assert write_card(tmp_path, manifest(), KINDS, ["bfcl"]) is False
    assert path.is_dir() if kept is None else path.read_text() == kept
