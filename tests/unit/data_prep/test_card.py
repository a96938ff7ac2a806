"""The data card says what the manifest says, in a form that the hub reads, and takes nobody's README away."""

from huggingface_hub import DatasetCard

from data_prep.build import Options, build
from data_prep.card import data_card, write_card

KINDS = {"a_train.parquet": "train", "a_val.parquet": "val", "a_sft.parquet": "sft"}


def manifest(**change):
    files = {name: {"rows": number, "sha256": f"{number:064x}"} for number, name in enumerate(KINDS)}
    return {"command": "python -m data_prep --out DIR", "protocol": "hermes", "docs": "json", "files": files, **change}


def test_a_built_folder_has_a_card_of_its_files_and_a_readme_of_somebody_elses_is_kept(tmp_path):
    made = build(tmp_path, Options(tiny=True))
    card = DatasetCard.load(tmp_path / "README.md")
    paths = {one["path"] for config in card.data.configs for one in config["data_files"]}
    assert paths == set(made["files"]) == {path.name for path in tmp_path.glob("*.parquet")}
    assert all(entry["sha256"] in card.text for entry in made["files"].values()) and made["command"] in card.text
    assert "no clean score on BFCL's multi-turn categories" in card.text
    (tmp_path / "README.md").write_text("# Mine\n")
    write_card(tmp_path, made, dict.fromkeys(made["files"], "val"), ["bfcl"])
    assert (tmp_path / "README.md").read_text() == "# Mine\n"


def test_a_licence_is_stated_only_where_all_rows_have_it():
    licences = {("tau",): "mit", ("bfcl", "bfcl_single"): "apache-2.0", ("bfcl", "tau"): None, ("mine",): None}
    for known, licence in licences.items():
        card = DatasetCard(data_card(manifest(), KINDS, known))
        assert card.data.license == licence
        assert ("state their source and licence" in card.text) is ("mine" in known)


def test_names_of_a_users_are_no_markup_and_no_metadata():
    for name in ("a|b", "<script>", "x`y`", "---\nlicense: mit", "a\n## b"):
        given = manifest(command=f"python -m data_prep --environment {name}")
        given["files"] = {name: {"rows": 3, "sha256": "0"}}
        card = DatasetCard(data_card(given, {name: "train"}, [name]))
        markup = "\n".join(line for line in card.text.splitlines() if not line.startswith("    "))  # else it is code
        assert card.data.license is None and "<script>" not in markup
        rows = [line for line in card.text.splitlines() if line.startswith("|")]
        assert len(rows) == 3 and "\n## b" not in card.text
