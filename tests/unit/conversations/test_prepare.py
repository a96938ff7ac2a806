"""From the files that a configuration names to those that verl reads: what is held out, left out, refused and said."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from omegaconf import DictConfig

from recipe.conversations.prepare import arrange, folder_of, for_verl, read_sides, write
from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.errors import PreflightError
from recipe.settings import compose

Prepare = Callable[..., DictConfig]


def talks(count: int, words: int = 1, name: str = "q") -> list[dict[str, Any]]:
    return [
        {
            "messages": [
                {"role": "user", "content": f"{name}{number} " + "again " * words},
                {"role": "assistant", "content": f"answer {number}"},
            ]
        }
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make_tiny_policy(folder)
    return folder


@pytest.fixture
def prepared(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Prepares files of these rows, by name; returns the configuration that verl gets."""
    monkeypatch.delenv("MODEL", raising=False)

    def prepare(files: dict[str, Sequence[dict[str, Any]]], *overrides: str) -> DictConfig:
        for name, rows in files.items():
            (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        given = ["sft_hardware=tiny", f"paths.run={tmp_path}/run", f"paths.stage={tmp_path}/run", f"model.path={model}"]
        given += [item.replace("HERE", str(tmp_path)) for item in ("data.train_files=HERE/train.jsonl", *overrides)]
        config = compose("sft", given, group="sft_hardware")
        write(arrange(read_sides(config, "make it"), config), folder_of(config))
        return for_verl(config)

    return prepare


def messages_of(path: str) -> list[list[dict[str, str]]]:
    return parquet.read_table(path).column("messages").to_pylist()


def test_without_a_validation_verl_gets_the_conversations_and_is_not_asked_to_validate(prepared: Prepare) -> None:
    rows = talks(10)
    config = prepared({"train.jsonl": rows}, "trainer.test_freq=3")
    assert messages_of(config.data.train_files) == [row["messages"] for row in rows]
    assert config.data.val_files is None and config.trainer.test_freq == -1
    assert not (folder_of(config) / "val.parquet").exists()


def test_a_share_is_held_out_of_several_files_and_is_gone_from_training(
    prepared: Prepare, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"train.jsonl": talks(20), "more.jsonl": talks(20, name="r")}
    config = prepared(files, "data.train_files=[HERE/train.jsonl,HERE/more.jsonl]", "data.val_share=0.25")
    train, val = messages_of(config.data.train_files), messages_of(config.data.val_files)
    assert (len(train), len(val)) == (30, 10) and not [item for item in val if item in train]
    assert sorted(map(str, train + val)) == sorted(str(row["messages"]) for rows in files.values() for row in rows)
    assert config.trainer.test_freq == "after_each_epoch"
    counts = json.loads((folder_of(config) / "counts.json").read_text())
    assert (counts["train"], counts["val"], counts["val_messages"]) == (30, 10, 10)
    assert "30 conversations to train on, with 30 messages of the model; 10 to validate on" in capsys.readouterr().out
    other = prepared(files, "data.train_files=[HERE/train.jsonl,HERE/more.jsonl]", "data.val_share=0.25")
    assert messages_of(other.data.val_files) == val, "the same again"


def test_files_to_validate_on_are_read_as_those_to_train_on_are(prepared: Prepare) -> None:
    config = prepared({"train.jsonl": talks(8), "val.jsonl": talks(3, name="v")}, "data.val_files=HERE/val.jsonl")
    assert len(messages_of(config.data.train_files)) == 8 and len(messages_of(config.data.val_files)) == 3
    assert not prepared({"train.jsonl": talks(8)}).data.val_files, "an earlier start's is gone"


def test_what_is_too_long_is_counted_and_said(prepared: Prepare, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"train.jsonl": [*talks(8), *talks(2, words=400, name="long")]}
    with pytest.raises(PreflightError, match=r"data.train_files: 2 of 10 conversations have more than data.max_length"):
        prepared(files, "data.max_length=200")
    config = prepared(files, "data.max_length=200", "data.truncation=drop")
    assert len(messages_of(config.data.train_files)) == 8 and config.data.truncation == "error"
    counts = json.loads((folder_of(config) / "counts.json").read_text())
    assert counts["left_out"] == 2 and all(tokens > 200 for tokens in counts["too_long"].values())
    said = capsys.readouterr().out
    assert "NOTE       2 of 10 conversations have more than data.max_length=200 tokens" in said
    assert "0 cut, 2 left out (data.truncation=drop)" in said
    config = prepared(files, "data.max_length=200", "data.truncation=right")
    assert len(messages_of(config.data.train_files)) == 10 and config.data.truncation == "right"
    assert "cut at that token (data.truncation=right)" in capsys.readouterr().out


REFUSED = [
    (["data.val_share=0.5", "data.val_files=HERE/train.jsonl"], "Set one of the two"),
    (["data.val_files=HERE/train.jsonl"], "8 of the 8 conversations of data.val_files are also in data.train_files"),
    (["data.train_batch_size=9"], "data.train_batch_size=9 is more than the 8 conversations to train on"),
    (["data.train_batch_size=8", "data.val_share=0.2"], "more than the 6 conversations to train on"),
    (["trainer.total_training_steps=9", "trainer.total_epochs=2"], "more than the 8 steps of trainer.total_epochs=2"),
    (["data.use_dynamic_bsz=true", "data.max_token_len_per_gpu=99"], "more than data.max_token_len_per_gpu=99"),
    (["data.max_length=3", "data.truncation=messages"], "no conversation fits data.max_length=3"),
    (["data.custom_cls.path=mine.py", "data.val_share=0.5"], "Set data.val_files"),
]


@pytest.mark.parametrize(("overrides", "words"), REFUSED)
def test_what_cannot_be_trained_is_refused_with_what_to_set(
    overrides: list[str], words: str, prepared: Prepare, tmp_path: Path
) -> None:
    with pytest.raises(PreflightError) as error:
        prepared({"train.jsonl": talks(8)}, *overrides)
    assert words in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_one_query_alone_cannot_be_parted(prepared: Prepare) -> None:
    rows = [{**row, "query_id": "7"} for row in talks(8)]
    with pytest.raises(PreflightError, match="data.val_share=0.5: all 8 conversations are of one query"):
        prepared({"train.jsonl": rows}, "data.val_share=0.5")


def test_a_data_set_class_of_ones_own_gets_the_files_as_they_are(prepared: Prepare, tmp_path: Path) -> None:
    config = prepared({"train.jsonl": talks(8)}, "data.custom_cls.path=mine.py", "data.custom_cls.name=Mine")
    assert (
        config.data.train_files == f"{tmp_path}/train.jsonl"
        and not folder_of(config).joinpath("train.parquet").exists()
    )
