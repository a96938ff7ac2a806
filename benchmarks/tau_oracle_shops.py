"""The other side of `tau_differential_shops.py`: plays calls on inspect-evals' own retail and airline.

Runs in an environment that has inspect-evals with its dependencies, and imports nothing of ours. One JSON line in, one
out: `{"domain", "calls"}` or, with a reward to be given, also `{"task", "said"}`. A call goes the way it goes in
inspect: schema check, conversion, tool. After each one, the records that differ from the file are reported as sorted
JSON; between plays they are put back.
"""

import asyncio
import functools
import json
import sys

from inspect_ai.model import ChatMessageUser
from inspect_ai.model._call_tools import tool_params, validate_tool_input
from inspect_ai.model._model import ModelName
from inspect_ai.scorer import CORRECT, Target
from inspect_ai.solver import TaskState
from inspect_ai.tool import ToolError
from inspect_ai.tool._tool import ToolParsingError
from inspect_ai.tool._tool_def import ToolDef
from inspect_ai.util._store import Store, init_subtask_store
from inspect_evals.tau2.airline import AirlineAgentTools as airline_module
from inspect_evals.tau2.airline import dataset as airline_dataset
from inspect_evals.tau2.airline import tools as airline_tools
from inspect_evals.tau2.common import scorer
from inspect_evals.tau2.retail import RetailAgentTools as retail_module
from inspect_evals.tau2.retail import dataset as retail_dataset
from inspect_evals.tau2.retail import tools as retail_tools


class Oracle:
    """One domain of inspect-evals, with its state."""

    def __init__(self, domain):
        module, tools, dataset, name = {
            "retail": (retail_module.RetailAgentTools, retail_tools, retail_dataset, "all_retail_tools"),
            "airline": (airline_module.AirlineAgentTools, airline_tools, airline_dataset, "all_airline_tools"),
        }[domain]
        self.domain = domain
        self.state = module()
        self.state.initialize()
        setattr(tools, f"get_{domain}_tools", lambda: self.state)
        self.tools = {made.name: made for made in (ToolDef(tool()) for tool in getattr(tools, name))}
        self.samples = {sample.id: sample for sample in dataset.read_dataset("differential")}
        self.db = self.state.db
        self.tables = [table for table in type(self.db).model_fields]
        self.base = {
            (table, key): (record.model_dump_json(), record.model_copy(deep=True))
            for table in self.tables
            for key, record in getattr(self.db, table).items()
        }
        self.touched = set()

    def changed(self):
        """Sorted JSON of each record that differs from the file; a flight's days are records."""
        found = {}
        for table in self.tables:
            for key, record in getattr(self.db, table).items():
                before = self.base.get((table, key))
                try:
                    if before is not None and record.model_dump_json() == before[0]:
                        continue
                except ValueError:  # half of a surrogate pair
                    pass
                self.touched.add((table, key))
                new, old = record.model_dump(), before and before[1].model_dump()
                if table == "flights":
                    pairs = {f"days/{key} {date}": (new["dates"][date], old["dates"][date]) for date in new["dates"]}
                else:
                    pairs = {f"{table}/{key}": (new, old)}
                for place, (value, was) in pairs.items():
                    text = json.dumps(value, sort_keys=True, default=str)
                    if was is None or text != json.dumps(was, sort_keys=True, default=str):
                        found[place] = text
        return found

    def restore(self):
        for table, key in self.touched:
            before = self.base.get((table, key))
            if before is None:
                del getattr(self.db, table)[key]
            else:
                getattr(self.db, table)[key] = before[1].model_copy(deep=True)
        self.touched.clear()

    async def call(self, name, arguments):
        """Text, and the class of what went wrong."""
        if name not in self.tools:
            return f"Error: Tool {name} not found", "ToolNotFound"
        definition = self.tools[name]
        if wrong := validate_tool_input(arguments, definition.parameters):
            return f"Error: {wrong}", "Validation"
        try:
            return str(await definition.tool(**tool_params(arguments, definition.tool))), None
        except (ToolError, ToolParsingError) as error:
            return f"Error: {error.message}", type(error).__name__
        except Exception as error:
            return f"Error: {error}", type(error).__name__

    async def reward(self, task, said):
        """The verdicts of inspect-evals' own scorers: database, communication."""
        sample = self.samples[task]
        state = TaskState(ModelName("none/none"), task, 0, "", [], metadata=sample.metadata)
        state.messages = [ChatMessageUser(content=text) for text in said]
        judges = (
            scorer.db_match(self.domain, testing_mock_predicted_db=self.state),
            scorer.score_communicated_info(),
        )
        return [(await judge(state, Target(""))).value == CORRECT for judge in judges]


def cached_expectation(original):
    """Gold's end state costs a second; it is upstream's, made once for each task."""
    made = {}

    @functools.wraps(original)
    def get(domain, actions):
        key = (domain, json.dumps([action.model_dump() for action in actions], sort_keys=True))
        if key not in made:
            expected = original(domain, actions)

            class Frozen:
                class db:
                    digest = expected.db.get_hash()

                    @classmethod
                    def get_hash(cls):
                        return cls.digest

            made[key] = Frozen
        return made[key]

    return get


async def play(oracle, request):
    rows = []
    for name, arguments in request["calls"]:
        text, error = await oracle.call(name, arguments)
        rows.append({"text": text, "error": error, "changed": oracle.changed()})
    answer = {"rows": rows}
    if request.get("hash"):
        answer["hash"] = oracle.db.get_hash()
    if "task" in request:
        answer["reward"] = await oracle.reward(request["task"], request["said"])
    oracle.restore()
    return answer


def main():
    init_subtask_store(Store())
    scorer.get_expected_db = cached_expectation(scorer.get_expected_db)
    oracles = {}
    for line in sys.stdin:
        request = json.loads(line)
        domain = request["domain"]
        if domain not in oracles:
            oracles[domain] = Oracle(domain)
        if request.get("docs"):
            answer = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters.model_dump(exclude_none=True),
                }
                for tool in oracles[domain].tools.values()
            ]
        else:
            answer = asyncio.run(play(oracles[domain], request))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
