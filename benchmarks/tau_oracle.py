"""inspect-evals' own telecom behind a pipe, for tau_differential.py: plays in, texts, states and scores out.

Runs in a Python that has inspect-evals with all its dependencies, which is not this repository's. A line in is a JSON
object {"task": id, "calls": [[side, name, arguments], ...], "states": bool}; a line out has for each call [kind, text]
and, if asked for, the digest of both databases after it, and at the end the score of the official scorer.

Calls take inspect_ai's way: validation by JSON schema, conversion, the tool itself, and nothing of its transcript.
Two things are made repeatable: the id of a bill that a refuelling makes, and the VPN details that an episode may break.
Files are read, and inspect_ai's type adapters made, once instead of each time, which is most of the time.
"""

import contextlib
import functools
import gzip
import hashlib
import json
import sys
import zlib
from typing import Any

from inspect_ai.model import ChatMessageAssistant, ModelName
from inspect_ai.model._call_tools import ToolParsingError, tool_params, validate_tool_input
from inspect_ai.scorer import CORRECT, Target
from inspect_ai.solver import TaskState
from inspect_ai.tool import ToolCall, ToolError
from inspect_ai.tool._tool_def import ToolDef
from inspect_ai.util import _store_model as store_module
from inspect_ai.util._store import Store, init_subtask_store
from inspect_evals.tau2.common.agents import StoredAgentState
from inspect_evals.tau2.common.metadata import Tau2MetaData
from inspect_evals.tau2.common.scorer import complete_if_all_complete, evaluate_required_actions
from inspect_evals.tau2.data_model.tasks import Task
from inspect_evals.tau2.environment import db as database_module
from inspect_evals.tau2.telecom import TelecomAgentTools as agent_module
from inspect_evals.tau2.telecom.environment import Environment, get_environment
from inspect_evals.tau2.telecom.scorer import env_assertions
from inspect_evals.tau2.telecom.solver import perform_action
from inspect_evals.tau2.telecom.TelecomUserTools import TelecomUserTools
from inspect_evals.tau2.telecom.tools import all_telecom_agent_tools
from inspect_evals.tau2.telecom.user_data_model import PerformanceLevel
from inspect_evals.tau2.telecom.user_tools import all_telecom_user_tools
from inspect_evals.tau2.utils import TAU2_DATA_DIR

TOOLS = {
    side: {each.name: each for each in (ToolDef(make()) for make in makers)}
    for side, makers in (("agent", all_telecom_agent_tools), ("user", all_telecom_user_tools))
}
SCORERS = (evaluate_required_actions(check_reward_basis=True), env_assertions())
INSTANCE = "play"


class RepeatableIds:
    """Stands for the module uuid: an id that follows from the customer and the number of bills."""

    @property
    def hex(self) -> str:
        caller = sys._getframe(1).f_locals
        seed = f"{caller['customer_id']}/{len(caller['customer'].bill_ids)}"
        return f"{zlib.crc32(seed.encode()):08x}"

    def uuid4(self) -> "RepeatableIds":
        return self


def finish(coroutine: Any) -> Any:
    """The value of a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise RuntimeError("the coroutine waits for something")


def call(side: str, name: str, arguments: dict[str, Any]) -> tuple[str, str]:
    """What became of a call, as one of: unknown, arguments, refused, exception, result."""
    tool = TOOLS[side].get(name)
    if tool is None:
        return "unknown", f"Tool {name} not found"
    if problem := validate_tool_input(arguments, tool.parameters):
        return "arguments", problem
    try:
        return "result", finish(tool.tool(**tool_params(arguments, tool.tool)))
    except ToolParsingError as error:
        return "arguments", error.message
    except ToolError as error:
        return "refused", error.message
    except Exception as error:
        return "exception", f"{type(error).__name__}: {error}"


def state(environment: Environment) -> str:
    databases = {
        "agent": environment.tools.db.model_dump(mode="json"),
        "user": environment.user_tools.db.model_dump(mode="json"),
    }
    return hashlib.sha256(json.dumps(databases, sort_keys=True).encode()).hexdigest()


def score(task: Task, calls: list[list[Any]]) -> float:
    """1 or 0, by the scorers that upstream's telecom uses."""
    metadata = Tau2MetaData(instance=INSTANCE, task=task).model_dump()
    messages = {
        side: [
            ChatMessageAssistant(content="", tool_calls=[ToolCall(id="1", function=name, arguments=arguments)])
            for caller, name, arguments in calls
            if caller == side
        ]
        for side in TOOLS
    }
    StoredAgentState(instance=INSTANCE).messages = messages["agent"]
    asked = TaskState(ModelName("none/none"), task.id, 0, "", messages["user"], metadata=metadata)
    return float(complete_if_all_complete([finish(each(asked, Target(""))) for each in SCORERS]).value == CORRECT)


def play(task: Task, request: dict[str, Any]) -> dict[str, Any]:
    init_subtask_store(Store())
    TelecomUserTools.model_fields["default_vpn_details"].default.server_performance = PerformanceLevel.EXCELLENT
    for action in task.initial_state.initialization_actions:
        perform_action(get_environment(), action)
    states = [state(get_environment())] if request["states"] else []
    results = []
    for side, name, arguments in request["calls"]:
        results.append(call(side, name, arguments))
        if request["states"]:
            states.append(state(get_environment()))
    return {"results": results, "states": states, "score": score(task, request["calls"])}


def main() -> None:
    agent_module.uuid = RepeatableIds()
    database_module.load_file = functools.cache(database_module.load_file)
    store_module.TypeAdapter = functools.cache(store_module.TypeAdapter)
    with gzip.open(TAU2_DATA_DIR / "domains" / "telecom" / "tasks.json.gz") as file:
        tasks = {raw["id"]: Task.model_validate(raw) for raw in json.load(file)}
    output, documents = sys.stdout, {}
    for side, tools in TOOLS.items():
        documents[side] = [
            {"name": each.name, "description": each.description, "parameters": parameters(each)}
            for each in tools.values()
        ]
    print(json.dumps(documents), file=output, flush=True)
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            request = json.loads(line)
            print(json.dumps(play(tasks[request["task"]], request)), file=output, flush=True)


def parameters(tool: ToolDef) -> dict[str, Any]:
    values: dict[str, Any] = tool.parameters.model_dump(exclude_none=True)
    return values


if __name__ == "__main__":
    main()
