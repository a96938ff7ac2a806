"""The handler for BFCL's own command, inside BFCL's own inference loop and score, played by gold.

`bfcl` imports the clients of all vendors, which are not installed here. The loop itself needs five small packages and
uses them for decorators and other languages only, so stand-ins for these are enough to run it as it is. It leaves files
and evaluates calls (gold's), so it runs in a process of its own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bfcl_env import Call
from bfcl_env.leaderboard import handler as bfcl_handler
from bfcl_env.leaderboard.handler import ProtocolMethods, call_text
from bfcl_env.leaderboard.official import CALL_OF_NOTHING, scenarios_by_id
from bfcl_env.source import function_docs
from interaction import Conversation, get_protocol
from interaction.protocol import PROTOCOLS

PLAYED = """
import json, sys
from types import SimpleNamespace
from unittest.mock import MagicMock
for name in ("tenacity", "tree_sitter", "tree_sitter_java", "tree_sitter_javascript"):
    sys.modules[name] = MagicMock()
same = lambda item: item
sys.modules["overrides"] = SimpleNamespace(final=same, override=same, EnforceOverrides=object)
from bfcl_eval.utils import load_dataset_entry, load_ground_truth_entry
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import is_empty_execute_response
from bfcl_env.leaderboard.handler import handler_class, model_name
from bfcl_env.leaderboard.official import scenarios_by_id

def texts_of(scenario, protocol):
    for turn in scenario.turns:
        if turn.gold:
            yield protocol.render_calls("gold", turn.gold)
        yield protocol.render_answer("done", "done")

class Gold:
    def create(self, model, messages, **_):
        self.seen = messages
        message = SimpleNamespace(content=next(self.texts))
        usage = SimpleNamespace(prompt_tokens=1, completion_tokens=1)
        return SimpleNamespace(choices=[SimpleNamespace(message=message)], usage=usage)

gold = Gold()
for number, (category, name) in enumerate(json.loads(sys.argv[1])):
    handler = handler_class()("m", 0.0, model_name(name), False)
    handler.model_path_or_id = "m"
    handler.client = SimpleNamespace(chat=SimpleNamespace(completions=gold))
    answers = {item["id"]: item["ground_truth"] for item in load_ground_truth_entry(category)}
    size = int(sys.argv[2])
    for entry in load_dataset_entry(category)[number * size : (number + 1) * size]:  # BFCL keeps states by entry
        gold.texts = texts_of(scenarios_by_id()[entry["id"]], handler.protocol)
        result, _ = handler.inference(entry, False, True)
        decoded = []
        for turn in result:
            steps = [handler.decode_execute(step, False) for step in turn]
            decoded.append([step for step in steps if not is_empty_execute_response(step)])
        assert len(decoded) == len(answers[entry["id"]])
        found = multi_turn_checker(decoded, answers[entry["id"]], entry, category, "m")
        print("RESULT " + json.dumps({"id": entry["id"], "valid": found["valid"], "messages": gold.seen}))
"""


def test_gold_passes_in_bfcls_own_loop_and_reads_what_training_shows(tmp_path):
    kinds = {"think_xml": "miss_func", "hermes": "base", "llama3_json": "long_context"}
    kinds |= {"python_calls": "miss_param", "toolbench": "base"}
    assert {*kinds} == {*PROTOCOLS}
    each, pairs = 4, [(f"multi_turn_{kind}", name) for name, kind in kinds.items()]
    environment = {**os.environ, "BFCL_PROJECT_ROOT": str(tmp_path)}
    command = [sys.executable, "-c", PLAYED, json.dumps(pairs), str(each)]
    root = Path(bfcl_handler.__file__).parents[2]
    played = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=root)
    assert played.returncode == 0, played.stderr[-3000:]
    results = [json.loads(line[7:]) for line in played.stdout.splitlines() if line.startswith("RESULT ")]
    assert [item["valid"] for item in results] == [True] * each * len(pairs)
    names = [name for _, name in pairs for _ in range(each)]
    for item, name in zip(results, names, strict=True):
        scenario, protocol = scenarios_by_id()[item["id"]], get_protocol(name)
        with Conversation(scenario, protocol, environments={"bfcl": {"withheld": "official"}}) as conversation:
            messages = conversation.start()
            for said in [message["content"] for message in item["messages"] if message["role"] == "assistant"]:
                messages = [*messages, {"role": "assistant", "content": said}, *conversation.reply(said).messages]
        assert item["messages"] == messages[: len(item["messages"])]


def test_bfcls_executor_gets_known_functions_and_literals_only():
    methods = type("Methods", (ProtocolMethods,), {"registry_name": "bfcl-grpo-think-xml"})()
    assert call_text(Call("cd", {"folder": "a'b"})) == 'cd(folder="a\'b")'
    names = "__import__('os').system", "exec", "cd()or cd"
    for call in (*(Call(name, {}) for name in names), Call("cd", {"folder=open('x','w'), a": 1})):
        assert call_text(call) == CALL_OF_NOTHING
    assert all(call_text(Call(name, {})) == f"{name}()" for docs in function_docs().values() for name in docs)
    with pytest.raises(ValueError, match="Format error"):
        methods.decode_execute("no tags", False)
    assert methods.decode_execute("<think>a</think><answer>b</answer>", False) == []
    said = '<think>a</think><tool_call>[{"name":"nowhere","arguments":{}},{"name":"pwd","arguments":{}}]</tool_call>'
    response = {"model_responses": said, "model_responses_decoded": methods.decode_execute(said, False)}
    assert response["model_responses_decoded"] == [CALL_OF_NOTHING, "pwd()"]
    results = ["Error during execution: name 'unknown_function' is not defined", "ok"]
    data = methods._add_execution_results_prompting({"message": []}, results, response)
    assert data["message"][0]["content"] == 'Results: ["Error during execution: name \'nowhere\' is not defined","ok"]'
