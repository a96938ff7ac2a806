"""The environment of docs/your_tools.md in a real training, and in the report.

In one batch with BFCL's and with one whose user is asked.

One start of all processes, two steps: about two minutes on two cores.
"""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from support.own_environment import write_example
from support.phone import write_phone
from support.short_training import ROOT, episodes, train

from data_prep.__main__ import main as prepare_data
from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.stage.metrics_log import read_steps


@pytest.mark.slow
def test_it_trains_beside_bfcl_and_stands_in_the_report(tmp_path: Path) -> None:
    own = write_example(tmp_path)
    assert prepare_data(["--out", str(tmp_path / "bfcl"), "--tiny"]) == 0
    assert prepare_data(["--environment", str(own), "--out", str(tmp_path / "own"), "--docs", "signature"]) == 0
    phone = write_phone(tmp_path)
    asked = ["--environment", str(phone), "--out", str(tmp_path / "phone"), "--docs", "signature"]
    assert prepare_data([*asked, "--option", "greeting=Be short."]) == 0
    make_tiny_policy(tmp_path / "model")
    parts = {
        tmp_path / "own" / "inventory_train.parquet": 2,
        tmp_path / "bfcl" / "tiny_base.parquet": 1,
        tmp_path / "phone" / f"{phone.stem}_train.parquet": 1,
    }
    mixed = pa.concat_tables([parquet.read_table(path).slice(0, rows) for path, rows in parts.items()])
    parquet.write_table(mixed, tmp_path / "mixed.parquet")
    stage = train(
        tmp_path,
        f"paths.data={tmp_path}/bfcl",
        f"data.train_files={tmp_path}/mixed.parquet",
        f"data.val_files={tmp_path}/own/inventory_val.parquet",
        f"+interaction.environments.inventory={own}",
        f"+interaction.environments.{phone.stem}={phone}",
        f"+interaction.train.environments.{phone.stem}.greeting=Be short.",
        "interaction.user={kind: scripted, lines: [My line is dead., Goodbye.]}",
        "stage.max_lost_share=1.0",
    )
    assert {1, 2} <= {*read_steps(stage)} <= {0, 1, 2}
    lines = episodes(stage)
    assert len(lines) == 2 * 4 * 2
    assert {line["episode"]["environment"] for line in lines} == {"inventory", "bfcl", phone.stem}
    heard = [line["episode"] for line in lines if line["environment"] == phone.stem]
    assert all([turn["user"] for turn in episode["turns"]] == ["My line is dead."] for episode in heard)
    assert all(episode["options"] == {"greeting": "Be short."} for episode in heard)
    held_out = [json.loads(line) for line in next(stage.glob("rollouts/val/*.jsonl")).read_text().splitlines()]
    assert {line["part"] for line in held_out} == {"dev", "test"}
    report = subprocess.run(
        [sys.executable, "-m", "recipe.report", str(tmp_path / "run")], cwd=ROOT, capture_output=True, text=True
    )
    assert report.returncode == 0, report.stderr
    assert "move_" in (tmp_path / "run" / "report.html").read_text()
