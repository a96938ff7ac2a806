"""Users' files run as they stand: no bytecode beside them is read or written."""

import os
import py_compile
from types import SimpleNamespace

from support.own_environment import example
from verl.utils.import_utils import import_external_libs

from interaction.environment import load_tasks, named
from recipe import reward
from recipe.stage.starts import set_environment

FILES = {
    "lib/my_helper.py": "NUMBER = 1\n",
    "mine/my_reward.py": "from my_helper import NUMBER\ndef compute_score(**_): return NUMBER + 10\n",
    "lib/my_estimator.py": "import os\nos.environ['ESTIMATOR'] = '1'\n",
    "mine/inventory.py": example().replace('category: str = "move"', 'category: str = "go 1"'),
}


def test_a_file_rewritten_within_a_second_runs_its_new_text(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path / "lib")
    for path, text in ((tmp_path / name, text) for name, text in FILES.items()):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, (1e9, 1e9))
        py_compile.compile(str(path))
        path.write_text(text.replace("1", "2"))
        os.utime(path, (1e9, 1e9))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.pyc")}
    assert next(iter(load_tasks(named(str(tmp_path / "mine" / "inventory.py"))).values())).category == "go 2"
    assert reward.load(str(tmp_path / "mine" / "my_reward.py"), "compute_score")() == 22
    monkeypatch.setattr(os, "environ", {**os.environ, "VERL_USE_EXTERNAL_MODULES": "my_estimator"})
    set_environment(SimpleNamespace(paths=SimpleNamespace(stage=tmp_path), launcher=SimpleNamespace(env={})), 1)
    import_external_libs(os.environ["VERL_USE_EXTERNAL_MODULES"].split(","))
    assert os.environ["ESTIMATOR"] == "2"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.pyc")} == before and len(before) == len(FILES)
