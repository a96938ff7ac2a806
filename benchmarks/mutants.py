"""Whether tests notice small wrong edits: mutants of cosmic-ray, drawn by a seed, judged by the tests that reach them.

    .venv/bin/pip install --no-deps -r requirements/mutants.txt
    .venv/bin/python -m benchmarks.mutants reach          # the suite once, under coverage: which tests reach a function
    .venv/bin/python -m benchmarks.mutants run SEED       # draws, and judges; started again it goes on where it stopped
    .venv/bin/python -m benchmarks.mutants table SEED     # caught and lived by room; docs/data/mutants/SEED.json

benchmarks/mutants.toml says which files are mutated. Each file gets mutants by its lines, each place in it one at most.
Annotations, what is raised, calls that only say something, and whether a class is frozen or a function cached are left
alone. The edits are made in a copy of HEAD. Of the mutants that live 40 are judged by all of tests/unit too, half of
them by each of two workers. A draw takes hours.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from multiprocessing import Pool
from pathlib import Path
from random import Random
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "benchmarks" / "mutants.toml"
OUT = Path(os.environ.get("MUTANTS", ROOT / "outputs" / "mutants"))
REACH, TABLES = OUT / "reach.json", ROOT / "docs" / "data" / "mutants"
HOSTILE = [f"tests/unit/interaction/test_{name}.py" for name in ("boundary", "hostile_environment")]
"""Tests whose code hangs and is stopped: under coverage their process is lost. They judge all of interaction/."""
ROOMS = ("rewards", "interaction", "bfcl_env", "tau_env", "data_prep", "recipe")
NUMBER, AGAIN, WORKERS = 320, 40, 2
NOT_HERE = "tests/unit/test_setup.py::test_our_recipe_is_found_from_another_folder"
"""The beginning of a test's name that fails in a copy, whose packages are those of the checkout."""
COVERAGE = """[run]
parallel = true
sigterm = true
patch = subprocess
context = ${PYTEST_CURRENT_TEST-}
data_file = %s
source = %s
"""
APART = "unshare --pid --mount --fork --kill-child --mount-proc sh -c".split() if os.geteuid() == 0 else []
APART += ['mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh"] if APART else []
"""An edit of what ends processes ends its own alone, where root judges."""
SAYS = re.compile(r"print|warn|warning|info|debug|error|exception|note|log|fail|exit|fill|aligned")
"""Functions whose calls only say something."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """As a plugin of pytest: lines that run now are this test's, also those of a process that it starts."""
    import coverage

    if os.environ.pop("COVERAGE_PROCESS_CONFIG", None):  # of the run's beginning, when no test had a name
        os.environ["COVERAGE_PROCESS_START"] = str(OUT / "coveragerc")
    if current := coverage.Coverage.current():
        current.switch_context(item.nodeid)
    return (yield)


def silent(tree: ast.Module) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Begin and end, as (line, column), of what is not to be mutated."""
    parts: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
            parts += [node.returns, *(one.annotation for one in given if one)]
            parts += [one for one in node.decorator_list if "cache" in ast.unparse(one)]
        elif isinstance(node, ast.AnnAssign | ast.Raise):
            parts += [getattr(node, "annotation", node)]
        elif isinstance(node, ast.ClassDef):
            parts += [one for one in node.decorator_list if "dataclass" in ast.unparse(one)]
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            parts += [node] if SAYS.fullmatch(name) else []
    return [((one.lineno, max(0, one.col_offset - 1)), (one.end_lineno, one.end_col_offset)) for one in parts if one]


def functions(tree: ast.Module) -> list[tuple[int, int]]:
    """First and last line of each function, inner ones first."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [(node.lineno, node.end_lineno or 0) for node in ast.walk(tree) if isinstance(node, kinds)]
    return sorted(found, key=lambda span: span[1] - span[0])


def reach() -> None:
    """Run the suite once; note the tests that come to each function, and their seconds."""
    OUT.mkdir(parents=True, exist_ok=True)
    for path in (*OUT.glob(".coverage*"), OUT / "seconds.jsonl"):
        path.unlink(missing_ok=True)
    settings, data, start = OUT / "coveragerc", OUT / ".coverage", [sys.executable, "-m", "coverage"]
    settings.write_text(COVERAGE % (data, ",".join(str(ROOT / name) for name in ROOMS)))
    given, environment = "-m pytest -q -p benchmarks.mutants".split(), {**os.environ, "PYTHONPATH": str(ROOT)}
    quiet = ["-n", "2", "--dist", "loadfile", *(f"--ignore={path}" for path in HOSTILE)]
    subprocess.run([*start, "run", f"--rcfile={settings}", *given, *quiet], cwd=ROOT, env=environment, check=True)
    subprocess.run([sys.executable, *given, *HOSTILE], cwd=ROOT, env=environment, check=True)
    subprocess.run([*start, "combine", f"--rcfile={settings}"], cwd=ROOT, check=True)
    from coverage import CoverageData

    found, known, of_file = CoverageData(str(data)), Counter[str](), defaultdict[str, set[str]](set)
    found.read()
    for name, spent in map(json.loads, (OUT / "seconds.jsonl").read_text().splitlines()):
        known[name] += spent
        of_file[name.partition("::")[0]].add(name)
    reached: dict[str, dict[str, list[str]]] = {}
    for file in sorted(name for name in found.measured_files() if name.endswith(".py")):
        path = str(Path(file).relative_to(ROOT))
        contexts = found.contexts_by_lineno(file)
        spans = reached.setdefault(path, {})
        for first, last in functions(ast.parse(Path(file).read_text())):
            names = {name for line in range(first + 1, last + 1) for name in contexts.get(line, ())}
            apart = [of_file[name.partition("::")[0]] for name in names if name[-1:] == ")"]  # of a process
            spans[f"{first}-{last}"] = sorted({*names & known.keys(), *chain.from_iterable(apart)})
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    REACH.write_text(json.dumps({"commit": commit, "seconds": known, "reached": reached}))


def pytest_runtest_logreport(report: Any) -> None:
    """As a plugin of pytest: how long each test takes."""
    if "PYTEST_XDIST_WORKER" not in os.environ and OUT.exists():
        with (OUT / "seconds.jsonl").open("a") as file:
            print(json.dumps([report.nodeid, report.duration]), file=file)


def judging(tree: Path) -> tuple[list[str], float]:
    """The tests that come to the function that a tree has edited, quick files first, and the seconds of the slowest."""
    given = subprocess.run(["git", "diff", "-U0"], cwd=tree, capture_output=True, text=True, check=True).stdout
    path, line = re.search(r"^\+\+\+ b/(.*)$", given, re.M)[1], int(re.search(r"^@@ -(\d+)", given, re.M)[1])
    known, files = json.loads(REACH.read_text()), Counter[str]()
    spans = known["reached"].get(path, {})
    inside = [span for span in spans if int(span.split("-")[0]) <= line <= int(span.split("-")[1])]
    tests = {*chain.from_iterable([spans[inside[0]]] if inside and spans[inside[0]] else spans.values())}
    if path.startswith("interaction/"):
        tests.update(name for name in known["seconds"] if name.startswith(tuple(HOSTILE)))
    for name in tests:
        files[name.partition("::")[0]] += known["seconds"][name]
    there = [name for name in known["seconds"] if name in tests]
    return sorted(there, key=lambda name: files[name.partition("::")[0]]), max([0, *files.values()])


def judge(everything: bool) -> int:
    """What cosmic-ray starts in the copy of the tree, with one edit in it: status 0 if no test fails or hangs."""
    tests, longest = ([], 100.0) if everything else judging(Path.cwd())
    given = [*APART, "env", f"PYTHONPATH={Path.cwd()}", sys.executable, "-m", "pytest", "-x", "-q", "--no-header"]
    given += ["-o", "faulthandler_exit_on_timeout=true", "-o", f"faulthandler_timeout={60 + 3 * longest}"]
    for names in (tests, {name.partition("::")[0]: 0 for name in tests}, ["tests/unit"]):
        if names and (status := subprocess.run([*given, "--deselect", NOT_HERE, *names]).returncode) not in (4, 5):
            break  # 4 and 5: there is no such test, as the edit gives tests other names
    return status


def drawn(items: list[Any], seed: int, number: int) -> list[Any]:
    """So many, spread over the files by their lines and over the places within each."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    places: dict[str, dict[Any, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for item in sorted(items, key=lambda item: (item.mutations[0].operator_name, item.mutations[0].occurrence)):
        places[str(item.mutations[0].module_path)][item.mutations[0].start_pos].append(item)
    texts = {path: Path(path).read_text() for path in sorted(places)}
    whole = sum(len(text.splitlines()) for text in texts.values())
    random, chosen, owed = Random(seed), [], Random(seed).random()
    for path, text in texts.items():
        quiet = silent(ast.parse(text))
        found = [place for place in sorted(places[path]) if not any(begin <= place < end for begin, end in quiet)]
        owed += number * len(text.splitlines()) / whole
        some = random.sample(found, min(int(owed), len(found)))
        owed -= int(owed)
        for place in some:
            for item in random.sample(kinds := places[path][place], len(kinds)):
                edit = item.mutations[0]
                with suppress(SyntaxError, AttributeError):  # most of {**x}, f(*, x), except (a.b, c)
                    operator = get_operator(edit.operator_name)(**edit.operator_args)
                    compile(mutate_code(text, operator, edit.occurrence), path, "exec")
                    chosen.append(item)
                    break
    return chosen


def run(seed: int, number: int, files: list[str]) -> None:
    """Draw, unless that is done, and judge what has no result yet: each worker its share, in a tree of its own."""
    subprocess.run([*APART, "true"], check=True)
    with Pool(WORKERS) as pool:
        pool.starmap(work, [(seed, number, files, worker) for worker in range(WORKERS)])


def work(seed: int, number: int, files: list[str], worker: int) -> None:
    """The share of one of the workers."""
    from cosmic_ray.commands import execute, init
    from cosmic_ray.config import load_config
    from cosmic_ray.modules import find_modules
    from cosmic_ray.work_db import use_db

    folder, os.environ["MUTANTS"] = OUT / str(seed) / str(worker), str(OUT)
    if not (tree := folder / "tree").exists():
        subprocess.run(["git", "clone", "-q", str(ROOT), str(tree)], check=True)
        for name in (".venv", "models"):
            (tree / name).symlink_to(ROOT / name)
    os.chdir(tree)
    subprocess.run(["git", "checkout", "-q", "."], check=True)  # a run that was killed leaves its edit
    of_reach = ["git", "diff", "--exit-code", json.loads(REACH.read_text())["commit"], "--", *ROOMS, "tests"]
    subprocess.run(of_reach, check=True)  # else another `reach` is due
    config = load_config(str(CONFIG))
    with use_db(folder / "session.sqlite") as session:
        if not session.num_work_items:
            with use_db(folder / "all.sqlite") as possible:
                init(sorted(find_modules(map(Path, files or config["module-path"]))), possible, {})
                session.add_work_items(drawn([*possible.work_items], seed, number)[worker::WORKERS])
        execute(session, config)
        lived = [item for item, result in session.completed_work_items if not result.is_killed]
    with use_db(folder / "again.sqlite") as session:
        if not session.num_work_items:
            lived.sort(key=lambda item: (str(item.mutations[0].module_path), item.mutations[0].start_pos))
            session.add_work_items(Random(seed).sample(lived, min(AGAIN // WORKERS, len(lived))))
        config["test-command"] += " --all"
        execute(session, config)


def table(seed: int) -> None:
    """Print what became of the mutants of a draw, by room; write those that no test caught."""
    from cosmic_ray.work_db import use_db

    nothing = json.loads((TABLES / "nothing.json").read_text()) if (TABLES / "nothing.json").exists() else {}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    lived, late, done = dict[str, Any](), dict[str, bool](), list[Any]()
    for worker in range(WORKERS):
        with use_db(OUT / str(seed) / str(worker) / "session.sqlite") as session:
            done += session.completed_work_items
        with use_db(OUT / str(seed) / str(worker) / "again.sqlite") as session:
            late |= {item.job_id: result.is_killed for item, result in session.completed_work_items}
    for item, result in done:
        place = item.mutations[0]
        edit = [line for line in (result.diff or "").splitlines() if re.match(r"[-+](?![-+])", line)]
        name = f"{place.module_path}: {' '.join(edit[-1:])}"
        caught = result.is_killed or late.get(item.job_id, False)
        what = "caught" if caught else "changes nothing" if (reason := nothing.get(name)) else "lived"
        counts[place.module_path.parts[0]][what] += 1
        if not caught:
            lived[name] = {"line": place.start_pos[0], "was": edit[:1], "all of tests/unit": item.job_id in late}
            lived[name]["changes nothing"] = reason
    print(f"{'room':<14}{'mutants':>9}{'caught':>9}{'lived':>9}{'nothing':>9}{'share':>9}")
    for room, found in [*sorted(counts.items()), ("all", sum(counts.values(), Counter()))]:
        whole, none = found.total(), found["changes nothing"]
        share = found["caught"] / max(1, whole - none)
        print(f"{room:<14}{whole:>9}{found['caught']:>9}{found['lived']:>9}{none:>9}{share:>9.3f}")
    commit = json.loads(REACH.read_text())["commit"]
    text = json.dumps(
        {"seed": seed, "commit": commit, "counts": counts, "not caught": lived}, indent=1, ensure_ascii=False
    )
    (TABLES / f"{seed}.json").write_text(text + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("reach", "run", "table", "judge"))
    parser.add_argument("seed", nargs="?", type=int, default=1)
    parser.add_argument("--number", type=int, default=NUMBER, help=f"of mutants (default: {NUMBER})")
    parser.add_argument("--files", nargs="*", metavar="PATH", help="of run: mutated in place of the configuration's")
    parser.add_argument("--all", action="store_true", help="of judge: by all of tests/unit")
    given = parser.parse_args()
    if given.what == "judge":
        return judge(given.all)
    if given.what == "reach":
        reach()
    elif given.what == "run":
        run(given.seed, given.number, given.files)
    else:
        table(given.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
