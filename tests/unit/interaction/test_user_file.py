"""Users' files run as they stand, whatever bytecode lies beside them: none of it is read or written."""

import os
import py_compile
from pathlib import Path
from types import SimpleNamespace

from support.own_environment import example
from verl.utils.import_utils import import_external_libs

from interaction.environment import load_tasks, named
from recipe import reward
from recipe.stage.starts import set_environment

SCORES = "from my_helper import NUMBER\nFOUND = []\ndef compute_score(**_): return NUMBER + 10\n"
FILES = {
    "my_helper.py": "NUMBER = 1\n",
    "my_reward.py": SCORES,
    "my_package/__init__.py": "",
    "my_package/scores.py": SCORES,
    "my_estimator.py": "import os\nos.environ['MY_ESTIMATOR'] = '1'\n",
    "inventory.py": example().replace('category: str = "move"', 'category: str = "go 1"'),
}


def test_a_file_rewritten_within_a_second_runs_its_new_text(tmp_path: Path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in FILES.items():
        (path := tmp_path / name).parent.mkdir(exist_ok=True)
        for content in (text, text.replace("1", "2")):
            path.write_text(content)
            os.utime(path, (1e9, 1e9))
            if content == text:
                py_compile.compile(str(path))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.pyc")}
    assert {task.category for task in load_tasks(named(str(tmp_path / "inventory.py"))).values()} == {"go 2"}
    for source in (str(tmp_path / "my_reward.py"), "pkg://my_package.scores"):
        assert reward.load(source, "compute_score")() == 22
    for name, value in {
        "VERL_USE_EXTERNAL_MODULES": "my_estimator",
        "BFCL_EXTERNAL_MODULES": "",
        "MY_ESTIMATOR": "",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    set_environment(SimpleNamespace(paths=SimpleNamespace(stage=tmp_path), launcher=SimpleNamespace(env={})), 1)
    import_external_libs(os.environ["VERL_USE_EXTERNAL_MODULES"].split(","))
    assert os.environ["MY_ESTIMATOR"] == "2"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.pyc")} == before and len(before) == len(FILES)
