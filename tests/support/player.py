"""Plays in another environment: python player.py HOW PACKAGE PLAYS RECORDS; run there, with that environment's Python.

HOW is a name of `PLAYERS`, PACKAGE the one that holds the environments ("" where they are top-level packages).
"""

import json
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from itertools import groupby
from typing import Any

Play = dict[str, Any]
PACKAGE = ""


def module(name: str) -> Any:
    return import_module(f"{PACKAGE}.{name}" if PACKAGE else name)


def reward_of(environment: str) -> Any:
    return module("rewards.outcome" if environment == "tau" else "rewards.progress").compute_score


def conversation(plays: list[Play]) -> Iterator[Any]:
    interaction, tasks = module("interaction"), module("interaction.environment").load_tasks
    for play in plays:
        task, protocol = tasks(play["environment"])[play["task_id"]], interaction.get_protocol("think_xml")
        with interaction.Conversation(task, protocol) as talk:
            talk.begin()
            for item in play["items"]:
                if not talk.done:
                    talk.hear(item["hear"]) if "hear" in item else talk.reply(item["text"])
            yield talk.record().to_dict()


def trl(plays: list[Play]) -> Iterator[Any]:
    """The methods of TRL's tools, found and called as its trainer does."""
    import inspect

    name, adapter = plays[0]["environment"], module("adapters.trl")
    ids = list(dict.fromkeys(play["task_id"] for play in plays))
    factories, rows = adapter.environments(name, reward_of(name), tasks=ids)
    pool = {title: factory() for title, factory in factories.items()}
    tools: dict[str, set[str]] = {}
    for title, environment in pool.items():
        found = inspect.getmembers(type(environment), predicate=inspect.isfunction)
        tools[title] = {tool for tool, _ in found if not tool.startswith("_") and tool != "reset"}
    by_task = {row["task_id"]: row for row in rows}
    for play in plays:
        row = by_task[play["task_id"]]
        environment = pool[row["environment"]]
        environment.reset(**{key: value for key, value in row.items() if key != "environment"})
        read = ""
        for item in play["items"]:
            calls = item["calls"] if "calls" in item else [["answer_user", {"text": item["answer"]}]]
            for tool, arguments in calls:
                if tool in tools[row["environment"]]:
                    read += getattr(environment, tool)(**arguments)
                elif f'"name": "{tool}"' in read:  # announced
                    read += environment.call_function(tool, arguments)
                # else TRL answers itself: Tool ... not found.
        record = environment._env.record().to_dict()
        assert adapter.earned([environment]) == [environment.reward]
        yield record


def trainer(plays: list[Play]) -> Iterator[Any]:
    """A step of TRL's own `GRPOTrainer` for each play, whose tiny model is made to write it: two rollouts, alike."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    import trl
    from datasets import Dataset
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    name, adapter = plays[0]["environment"], module("adapters.trl")
    vocabulary = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text("utf-8")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "head_dim": 4, "num_key_value_heads": 1}
    config = Qwen3Config(vocab_size=len(tokenizer), num_attention_heads=1, max_position_embeddings=10**6, **sizes)
    for play in plays:
        said = []
        for item in play["items"]:
            calls = item["calls"] if "calls" in item else [["answer_user", {"text": item["answer"]}]]
            bodies = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
            said.append("\n".join(f"<tool_call>\n{body}\n</tool_call>" for body in bodies) + "<|im_end|>")
        said.append("I am done.<|im_end|>")

        class Scripted(trl.GRPOTrainer):
            def _generate_single_turn(self, prompt_ids, *_, said=said, **__):  # type: ignore[no-untyped-def]
                ids = self._tokenizer(said.pop(0))["input_ids"]
                return [list(ids) for _ in prompt_ids], None

        factories, rows = adapter.environments(name, reward_of(name), tasks=[play["task_id"]])
        with TemporaryDirectory() as folder:
            settings = {"report_to": [], "logging_steps": 1, "max_steps": 1, "max_completion_length": 10**5}
            settings |= {"per_device_train_batch_size": 2, "num_generations": 2, "use_cpu": True, "bf16": False}
            given = {"args": trl.GRPOConfig(folder, **settings), "train_dataset": Dataset.from_list(rows)}
            given |= {"processing_class": tokenizer, "environment_factory": factories}
            made = Scripted(model=Qwen3ForCausalLM(config), reward_funcs=adapter.earned, **given)
            made.train()
        records = [environment._env.record().to_dict() for environment in made.environments]
        assert not said and verdict(records[0]) == verdict(records[1]) and len(records) == 2
        (logged,) = [line for line in made.state.log_history if "rewards/earned/mean" in line]
        assert abs(logged["rewards/earned/mean"] - made.environments[0].reward) < 1e-6, logged
        yield records[0]


def openenv(plays: list[Play]) -> Iterator[Any]:
    """The environment's server, on a port, and a client of OpenEnv's own."""
    import threading
    import time

    import uvicorn
    from openenv import GenericEnvClient

    adapter, name = module("adapters.openenv"), plays[0]["environment"]
    server = uvicorn.Server(uvicorn.Config(adapter.server(name, reward_of(name)), port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with GenericEnvClient(base_url=f"http://127.0.0.1:{port}").sync() as client:
            for play in plays:
                done = client.reset(task_id=play["task_id"]).done
                for item in play["items"]:
                    done = done or client.step({"text": item["text"]}).done
                yield client.state()["record"]
    finally:
        server.should_exit = True
        thread.join()


def scripted(said: list[str]) -> str:
    """The address of an OpenAI-compatible server that says one of these texts after the other."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            stream = json.loads(self.rfile.read(int(self.headers["Content-Length"]))).get("stream", False)
            kind, part = ("chat.completion.chunk", "delta") if stream else ("chat.completion", "message")
            choice = {"index": 0, part: {"role": "assistant", "content": said.pop(0)}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            reply = {"id": "1", "object": kind, "created": 0, "model": "m", "usage": usage, "choices": [choice]}
            text = json.dumps(reply)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
            self.end_headers()
            self.wfile.write((f"data: {text}\n\ndata: [DONE]\n\n" if stream else text).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"


def in_process() -> str:
    """The id of a harness as `null`, in this process: a program that starts for each message takes seconds."""
    import types

    import httpx
    import verifiers.v1 as vf
    from verifiers.v1.dialects.chat import message_to_wire
    from verifiers.v1.runtimes import ProgramResult

    class InProcess(vf.Harness[vf.HarnessConfig]):
        APPENDS_SYSTEM_PROMPT = SUPPORTS_RESUME = True
        EXECUTES_CODE = NEEDS_CONTAINER = False

        async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):  # type: ignore[no-untyped-def]
            system, prompt = self.resolve_prompt(data)
            messages = [{"role": "system", "content": system}, *map(message_to_wire, prompt)]
            async with httpx.AsyncClient(headers={"Authorization": f"Bearer {secret}"}) as client:
                body = {"model": ctx.model, "messages": messages}
                (await client.post(f"{endpoint}/chat/completions", json=body)).raise_for_status()
            return ProgramResult(0, "", "")

    made: Any = types.ModuleType("in_process")
    made.InProcess, made.__all__ = InProcess, ["InProcess"]
    sys.modules["in_process"] = made
    return "in_process"


def verifiers(plays: list[Play], harness: str | None = None, fails: bool = False) -> Iterator[Any]:
    """Episodes of verifiers' own `Env.run_episode`, with its interception, a server as the model, and our taskset.

    Where the server `fails`, no records: nothing is scored.
    """
    import asyncio
    import os

    import verifiers.v1 as vf
    from verifiers.v1.utils.loaders import load_environment, resolve_env_config

    name, said, tasks = plays[0]["environment"], list[str](), dict[str, Any]()
    os.environ["SCRIPTED_KEY"] = "none"
    harness = harness or in_process()
    for part in ("train", "dev", "test"):
        player = {"harness": {"id": harness}, "runtime": {"type": "subprocess"}}
        taskset = {"id": PACKAGE.replace("_", "-"), "environment": name, "part": part}
        reward = "clean" if name == "tau" else "progress"
        env = load_environment(resolve_env_config({"taskset": taskset, "player": player, "reward": reward}))
        tasks |= {task.data.id: task for task in env.taskset}
    client = vf.EvalClientConfig(base_url=scripted(said), api_key_var="SCRIPTED_KEY")

    async def played() -> list[Any]:
        records = []
        async with env.serving():
            for play in plays:
                said[:] = [] if fails else [item["text"] for item in play["items"]]
                episode = await env.run_episode(tasks[play["task_id"]], vf.ModelContext(model="m", client=client))
                (trace,) = episode.traces
                assert episode.ok is not fails and not said, (play["task_id"], episode.errors, trace.errors)
                if fails:
                    assert not trace.rewards and "episode" not in trace.info
                    continue
                assert trace.rewards[reward].score == trace.metrics["acc"] or name != "tau"
                records.append(trace.info["episode"])
        return records

    yield from asyncio.run(played())


PLAYERS: dict[str, Any] = {play.__name__: play for play in (conversation, trl, trainer, openenv, verifiers)}
PLAYERS |= {"null": partial(verifiers, harness="null"), "failing": partial(verifiers, fails=True)}


def verdict(record: Any) -> dict[str, Any]:
    """All of a record that does not depend on how long things took or on how the messages were written."""
    kept = ("user", "reached", "ended", "passed", "difference", "facts")
    turns = [{name: turn[name] for name in kept} for turn in record["turns"]]
    for made, turn in zip(turns, record["turns"], strict=True):
        made["calls"] = [call for step in turn["steps"] for call in step["calls"]]
    return {**{name: record[name] for name in ("task_id", "outcome", "stop_reason", "fault", "facts")}, "turns": turns}


def main(how: str, package: str, plays: str, records: str) -> None:
    global PACKAGE
    PACKAGE = package
    with open(plays, encoding="utf-8") as lines, open(records, "w", encoding="utf-8") as out:
        for _, group in groupby(map(json.loads, lines), key=lambda play: play["environment"]):
            for record in PLAYERS[how](list(group)):
                out.write(json.dumps(verdict(record)) + "\n")
    print(*sorted(name for name in ("torch", "verl", "vllm", "ray", "numpy") if name in sys.modules))


if __name__ == "__main__":
    main(*sys.argv[1:])
