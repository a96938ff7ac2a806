"""A key, given in any way that a person may give one, stands in no file of a run and in no line on the screen."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf
from support.evaluation import gold_player, run, serving
from verl.utils.tracking import Tracking

from recipe.files import PreflightError
from recipe.preflight import check_settings
from recipe.settings import compose
from recipe.stage.starts import mask_prints, write_manifest, write_start

KEY = "hunter2/Zq9"
GIVEN = [
    f"+ray_kwargs.ray_init.runtime_env.env_vars.WANDB_API_KEY='{KEY}'",
    f"+reward.custom_reward_function.reward_kwargs.api_key='{KEY}'",
    f"+reward.custom_reward_function.reward_kwargs.judge=http://me:{KEY}@judge/v1",
    f"+reward.custom_reward_function.reward_kwargs.headers={{Authorization:'Bearer {KEY}'}}",
    f"++launcher.env.HF_TOKEN='{KEY}'",
    f"+interaction.environments.shop={{file:shop.py,password:'{KEY}'}}",
    f"+custom.secrets=['{KEY}']",
]


def test_a_start_writes_and_prints_no_key_and_a_refusal_repeats_none(tmp_path, monkeypatch, capsys):
    for name in ("train", "val"):
        (tmp_path / name).write_text("")
    folders = [f"paths.run={tmp_path}", f"data.train_files={tmp_path}/train", f"data.val_files={tmp_path}/val"]
    config = compose("stage1", ["hardware=tiny", *folders, *GIVEN])
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(tmp_path / "metrics" / "1.jsonl"))
    monkeypatch.setattr(sys, "argv", ["recipe.train", *GIVEN])
    write_start(config, GIVEN)
    (tmp_path / "manifest.json").write_bytes(b"\xff{")  # damaged: set aside
    write_manifest(config)
    write_manifest(config)
    assert "set aside as" in capsys.readouterr().out
    starts = json.loads((tmp_path / "manifest.json").read_text())["starts"]
    assert [len(start["arguments"]) for start in starts] == [len(GIVEN)] * 2
    monkeypatch.setattr(Tracking, "__init__", Tracking.__init__)
    tracked = []
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **given: tracked.append(given["config"])))
    mask_prints(verl := SimpleNamespace())
    content = OmegaConf.to_container(config, resolve=True)
    verl.pprint(content)
    verl.print(f"ray init kwargs: {config.ray_kwargs} {config}")
    Tracking("project", "run", ["wandb"], config=content)
    assert capsys.readouterr().out.count("WANDB_API_KEY") == 3
    assert len(tracked) == 1 and "hunter2" not in str(tracked)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 4 and not [path for path in written if b"hunter2" in path.read_bytes()]
    kept = OmegaConf.load(Path(config.paths.stage) / "config" / "resolved.yaml")
    changed = {name for name in config if kept[name] != config[name]}
    assert changed == {"ray_kwargs", "reward", "launcher", "interaction", "custom"}, "the rest is as it was"
    for given in (
        f"interaction.user={{kind:endpoint,url:'http://u:{KEY}{'x' * 90}@host/v1',api_key:'{KEY}'}}",
        f"reward.custom_reward_function.reward_kwargs.api_key={KEY}",
    ):
        with pytest.raises(PreflightError) as refused:
            check_settings(compose("stage1", ["hardware=tiny", given]))
        assert "hunter2" not in str(refused.value), given


def test_an_evaluation_keeps_no_key_and_goes_on_with_another(tmp_path, capsys):
    with serving(gold_player("base")) as server:
        for key in (KEY.replace("/", ""), "hunter2another"):
            status, found = run(server.url.replace("://", f"://me:{key}@"), tmp_path, limit=1)
            assert (status, found["overall"]["acc"]["mean"]) == (0, 1.0)
    with serving(gold_player("base"), [404]) as server:
        assert run(server.url.replace("://", "://me:hunter2@"), tmp_path / "none", limit=1)[0] == 1
    said = capsys.readouterr()
    assert "hunter2" not in said.out + said.err
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and "hunter2" in path.read_text()]
