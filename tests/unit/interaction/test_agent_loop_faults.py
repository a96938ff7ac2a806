"""Faults, put into the agent loop inside verl's own worker: what is lost, what is kept, and who is blamed.

verl's worker class and replay buffer run as they are; TransferQueue is a dictionary, the reward worker a function.
"""

import asyncio
import math
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf
from support.gold_episode import GOLD, SCENARIO, tokenizer
from support.queue import Queue
from verl.experimental.agent_loop import agent_loop
from verl.trainer.ppo.v1 import agent_loop_tq, replay_buffer
from verl.workers.rollout.replica import TokenOutput

from interaction.agent_loop import _ENVIRONMENT, ConversationAgentLoop, require_sound
from interaction.conversation import Conversation
from recipe.settings import CONFIG_DIR
from rewards.progress import compute_score

N = 4


@pytest.fixture(autouse=True)
def every_episode_ends():
    assert ConversationAgentLoop.live == 0
    yield
    assert ConversationAgentLoop.live == 0, "an episode is still being played"


class Engines:
    """A script for each rollout, handed out in the order in which rollouts first ask."""

    def __init__(self, engine, scripts):
        self.waiting = [engine(tokenizer(), script) for script in scripts]
        self.taken = {}
        self.most = 0

    async def generate(self, **kwargs):
        task = asyncio.current_task()
        if task not in self.taken:
            self.taken[task] = self.waiting.pop(0)
        self.most = max(self.most, ConversationAgentLoop.live)
        return await self.taken[task].generate(**kwargs)


class Rows(Queue):
    """Keeps what the agent loop stores."""

    def __init__(self):
        super().__init__([])
        self.rows = {}

    async def async_kv_put(self, key, partition_id, tag):
        self.tags[partition_id].setdefault(key, {}).update(tag)

    async def async_kv_batch_put(self, keys, fields, tags, partition_id):
        for place, (key, tag) in enumerate(zip(keys, tags, strict=True)):
            await self.async_kv_put(key, partition_id, tag)
            self.rows[key] = fields[place]


@pytest.fixture
def queue(monkeypatch):
    queue = Rows()
    monkeypatch.setattr(agent_loop_tq, "tq", queue)
    monkeypatch.setattr(replay_buffer, "tq", queue)
    return queue


@pytest.fixture
def worker_for(config, queue):
    """verl's worker around an engine and a reward, without Ray."""
    worker_class = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class

    def make(engines, reward=compute_score):
        async def score(data):
            (extra_info,) = data.non_tensor_batch["tool_extra_fields"]
            result = reward("bfcl/miss_func", "", "[]", extra_info)
            return {"reward_score": result["score"], "reward_extra_info": result}

        worker = worker_class.__new__(worker_class)
        worker.config = config(n=N, engine_timeout=2)
        worker.rollout_config = worker.config.actor_rollout_ref.rollout
        worker.llm_client, worker.tokenizer, worker.processor = engines, tokenizer(), None
        worker.hf_model_type, worker.dataset_cls, worker.tools = "qwen2", SimpleNamespace, []
        worker.mm_processor_kwargs, worker.distillation_enabled = {}, False
        worker.reward_loop_worker_handles = [SimpleNamespace(compute_score=SimpleNamespace(remote=score))]
        for entry in OmegaConf.load(CONFIG_DIR / "agent_loops.yaml"):
            agent_loop._agent_loop_registry[entry.name] = entry
        return worker

    return make


PROMPT = {
    **{"agent_name": "conversation", "raw_prompt": [], "data_source": "bfcl/miss_func", "global_steps": 1},
    "extra_info": {"split": "train", "task_id": SCENARIO.id},
}
TRAJECTORY = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}


@pytest.fixture
def play(worker_for, queue, engine):
    """One training step's rollouts by these scripts, as verl starts them. Gives the stored rows by key."""

    def play(scripts, reward=compute_score):
        queue.rows.clear()
        engines = Engines(engine, scripts)
        worker = worker_for(engines, reward)

        async def run():
            for number in range(len(scripts) // N):
                uid = f"group{number}"
                queue.tags["train"][uid] = {"is_prompt": True, "status": "pending", "global_steps": 1}
                await worker._run_prompt({"uid": uid, **PROMPT}, {"temperature": 1.0}, TRAJECTORY)

        asyncio.run(run())
        assert engines.most == N
        return queue.rows

    return play


def buffer_of():
    """verl's replay buffer over the queue."""
    return replay_buffer.ReplayBuffer("sync", OmegaConf.create({}), None, "drop", OmegaConf.create({}))


def sample(buffer, groups=1):
    """What it gives the trainer."""
    return buffer.sample(global_steps=1, partition_id="train", batch_size=groups)[0]


DEAD = [ConnectionError("gone")] * 3 + GOLD


def test_a_fault_of_the_engine_is_played_again_and_counted_beside_its_siblings(play, engine, caplog, monkeypatch):
    for fault in (
        *(ConnectionError("gone"), [], [-1, 5], [max(tokenizer().get_vocab().values()) + 1, 5]),
        *(TokenOutput(token_ids=[5], stop_reason=b"aborted".decode()), TokenOutput(token_ids=[5] * 5000)),  # as sent
        *(TokenOutput(token_ids=[5, 6], log_probs=[-1.0]), TokenOutput(token_ids=[5], log_probs=[-1.0, -1.0])),
        *(TokenOutput(token_ids=[5], log_probs=[math.nan]), engine.HANGS),
    ):
        rows = play([[GOLD[0], fault, *GOLD]] + [GOLD] * (N - 1))
        assert len(rows) == N
        assert sorted(row["extra_fields"]["engine_faults"] for row in rows.values()) == [0] * (N - 1) + [1], fault
        assert {row["extra_fields"]["reward_extra_info"]["acc"] for row in rows.values()} == {1.0}, fault
    assert "interaction.engine_timeout=2" in caplog.text, "of the last one"
    require_sound(TokenOutput(token_ids=[0, 5], log_probs=[-1.0, -1.0]), last_id=5, max_tokens=2)
    closed, close = [], Conversation.close
    monkeypatch.setattr(Conversation, "close", lambda one: closed.append(one.done) or close(one))
    rows = play([DEAD[1:]] + [GOLD] * (N - 1))
    _ENVIRONMENT.submit(int).result()
    assert closed.count(False) == 2, "an attempt that is lost leaves nothing open"
    assert sorted(row["extra_fields"]["engine_faults"] for row in rows.values()) == [0] * (N - 1) + [2]


def test_a_lost_rollout_leaves_its_siblings_and_a_lost_group_the_others(play):
    rows = play([DEAD] * (N + 1) + [GOLD] * (N - 1))
    buffer = buffer_of()
    assert sorted(sample(buffer, groups=2).keys) == sorted(rows) and len(rows) == N - 1
    assert {key.split("_")[0] for key in rows} == {"group1"}
    assert not any(row["rm_scores"].sum() == 0 for row in rows.values()), "a dead engine is never a reward of 0"
    assert not buffer.failure_keys["train"], "the agent loop has not raised"


def test_a_reward_that_raises_is_never_a_zero(play, caplog):
    calls = []

    def sometimes(*args):
        calls.append(args)
        if len(calls) == 1:
            raise ZeroDivisionError("my own mistake")
        return compute_score(*args)

    rows = play([GOLD] * N, sometimes)
    assert len(rows) == N - 1 and all(row["rm_scores"].sum() == 1 for row in rows.values())
    assert "my own mistake" in caplog.text, "with the traceback into the user's file"
    sample(buffer := buffer_of())
    assert len(buffer.failure_keys["train"]) == 1, "by which the trainer tells who failed"


async def test_a_rollout_that_is_cancelled_or_has_no_task_leaves_no_live_episode(worker_for, make_loop, engine, caplog):
    assert await make_loop(tokenizer(), None).run({}, extra_info={"split": "train", "task_id": "nothing"}) == []
    assert caplog.text.count("has no task 'nothing'\n") == 1, "a second attempt would change nothing"
    engines = Engines(engine, [[engine.HANGS]])
    row = {"session_id": 0, "uid": "u", **PROMPT}
    task = asyncio.create_task(worker_for(engines)._run_agent_loop({}, trajectory=TRAJECTORY, trace=False, **row))
    while not engines.taken:
        await asyncio.sleep(0.001)
    assert ConversationAgentLoop.live == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
