"""The leaderboard's own command with our protocols: BFCL's `bfcl`, which knows one more model for each protocol.

    BFCL_PROJECT_ROOT=out python -m bfcl_env.leaderboard.handler generate --model bfcl-grpo-think-xml \\
        --test-category multi_turn --local-model-path outputs/default/stage3_full/hf
    BFCL_PROJECT_ROOT=out python -m bfcl_env.leaderboard.handler evaluate --model bfcl-grpo-think-xml \\
        --test-category multi_turn

What the model reads comes from the protocol, as in training; what it writes is read by the protocol. Everything else,
turns, steps, execution and score, is BFCL's. So a message that cannot be read ends the turn here, without feedback.

BFCL evaluates the calls as text with the rights of this process. The text is therefore written here, from parsed calls:
names of BFCL's documented functions and literals, nothing a model has written as it stands.

`bfcl` imports the clients of all vendors; install bfcl-eval with its dependencies in an environment of its own, and
this package into it with --no-deps. Importing this module needs none of them.
"""

from __future__ import annotations

import json
import time
from typing import Any

from bfcl_env import Call, Scenario
from bfcl_env.execution import unknown_function_text
from bfcl_env.leaderboard.official import CALL_OF_NOTHING, as_python, plain_names, scenarios_by_id
from bfcl_env.source import function_owners
from interaction.plain_text import generic
from interaction.protocol import PROTOCOLS, Message, get_protocol

PREFIX = "bfcl-grpo-"


def model_name(protocol: str) -> str:
    """BFCL's name for a protocol's model. Without underscores: BFCL takes those in a folder's name for slashes."""
    return PREFIX + protocol.replace("_", "-")


class ProtocolMethods:
    """What BFCL's `OSSHandler` leaves to a model. Mixed into it by `handler_class`, which is the only way to use it."""

    registry_name: str
    temperature: float
    model_path_or_id: str
    client: Any

    @property
    def protocol(self) -> Any:
        return get_protocol(next(name for name in PROTOCOLS if model_name(name) == self.registry_name))

    # What the model reads.

    def _pre_query_processing_prompting(self, test_entry: dict[str, Any]) -> dict[str, Any]:
        scenario = scenarios_by_id().get(test_entry["id"])
        if scenario is None:
            raise ValueError(f"{test_entry['id']} is no multi-turn task; use --test-category multi_turn")
        return {"message": [], "function": [], "scenario": scenario, "turn": 0}

    def add_first_turn_message_prompting(
        self, inference_data: dict[str, Any], first_turn_message: list[Message]
    ) -> dict[str, Any]:
        scenario: Scenario = inference_data["scenario"]
        inference_data["message"] += self.protocol.opening(scenario.functions(0), scenario.turns[0].user)
        return inference_data

    def _add_next_turn_user_message_prompting(
        self, inference_data: dict[str, Any], user_message: list[Message]
    ) -> dict[str, Any]:
        """BFCL's message has the withheld functions as the text of a Python list; the protocol has its own way."""
        scenario: Scenario = inference_data["scenario"]
        inference_data["turn"] += 1
        turn = scenario.turns[inference_data["turn"]]
        shown = [item for item in scenario.functions(inference_data["turn"]) if item["name"] in turn.revealed]
        inference_data["message"] += self.protocol.user_turn(turn.user, shown)
        return inference_data

    def _add_execution_results_prompting(
        self, inference_data: dict[str, Any], execution_results: list[str], model_response_data: dict[str, Any]
    ) -> dict[str, Any]:
        calls = self.protocol.parse(model_response_data["model_responses"]).calls
        texts = [
            unknown_function_text(call.name) if written == CALL_OF_NOTHING else result
            for call, written, result in zip(
                calls, model_response_data["model_responses_decoded"], execution_results, strict=True
            )
        ]
        inference_data["message"] += self.protocol.results(texts)
        return inference_data

    # What the model writes.

    def _query_prompting(self, inference_data: dict[str, Any]) -> tuple[Any, float]:
        inference_data["inference_input_log"] = {"messages": inference_data["message"]}
        began = time.time()
        messages = [{**message, "content": generic(message["content"])} for message in inference_data["message"]]
        response = self.client.chat.completions.create(
            model=self.model_path_or_id, messages=messages, temperature=self.temperature, timeout=72000
        )
        return response, time.time() - began

    def _parse_query_response_prompting(self, api_response: Any) -> dict[str, Any]:
        return {
            "model_responses": api_response.choices[0].message.content or "",
            "input_token": api_response.usage.prompt_tokens,
            "output_token": api_response.usage.completion_tokens,
        }

    def decode_execute(self, result: str, has_tool_call_tag: bool) -> list[str]:
        """The calls as text, none for an answer. Raises ValueError for a message that cannot be read."""
        parsed = self.protocol.parse(result)
        if parsed.error is not None:
            raise ValueError(self.protocol.explain(parsed))
        return [call_text(call) for call in parsed.calls]

    def decode_ast(self, result: str, language: Any, has_tool_call_tag: bool) -> list[dict[str, Any]]:
        raise NotImplementedError("the protocols of this recipe are for the multi-turn categories")


def call_text(call: Call) -> str:
    """The call as Python: a documented function and literals, or CALL_OF_NOTHING."""
    if call.name not in function_owners() or not plain_names(call.arguments):
        return CALL_OF_NOTHING
    return as_python(call.name, json.loads(json.dumps(call.arguments)))  # nothing but JSON values


def handler_class() -> type:
    """The class for BFCL's table of models. Raises ImportError without bfcl-eval's own dependencies."""
    from bfcl_eval.model_handler.local_inference.base_oss_handler import OSSHandler

    return type("ProtocolHandler", (ProtocolMethods, OSSHandler), {})


def register() -> None:
    """Add a model for each protocol to BFCL's table. Raises ImportError as above."""
    from bfcl_eval.constants.model_config import MODEL_CONFIG_MAPPING, ModelConfig

    for name in PROTOCOLS:
        MODEL_CONFIG_MAPPING[model_name(name)] = ModelConfig(
            model_name=model_name(name),
            display_name=f"{model_name(name)} (Prompt)",
            url="",
            org="",
            license="apache-2.0",
            model_handler=handler_class(),
            is_fc_model=False,
        )


def main() -> None:
    """BFCL's command line."""
    try:
        register()
        from bfcl_eval.__main__ import cli
    except ImportError as error:
        raise SystemExit(
            f"{error}. BFCL's own command needs all of bfcl-eval's dependencies: install bfcl-eval==2026.3.23 in an "
            "environment of its own, and this package into it with `pip install --no-deps -e .`"
        ) from error
    cli()


if __name__ == "__main__":
    main()
