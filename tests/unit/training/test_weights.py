"""Weights get from the process that trains to engines as they are, whatever their shapes and types."""

import asyncio
import threading

import torch

from recipe.training import weights

WEIGHTS = {
    "embed": torch.randn(33, 7),
    "head.weight": torch.randn(5, 3, dtype=torch.bfloat16),
    "scalar": torch.tensor(3.5),
    "turned": torch.arange(12.0).view(3, 4).T,
    "none": torch.empty(0, 4),
    "a name with ünïcode and a \n": torch.ones(2, dtype=torch.bool),
}


def send(trainers, engines):
    """What each engine has received, every process a thread of its own."""
    actors = [weights.GlooCheckpointEngine(1, is_master=rank == 0) for rank in range(trainers)]
    players = [weights.GlooCheckpointEngine(1) for _ in range(engines)]
    another = weights.GlooCheckpointEngine(1, is_master=True)  # of another run on the same node
    places = [one.prepare() for one in (*actors, *players, another)]
    assert places[-1] and not any(places[1:-1])
    topology = weights.GlooCheckpointEngine.build_topology(trainers, engines, places)
    received = [{} for _ in players]
    walked = []

    async def act(one, number, settings):
        one.init_process_group(**{name: values[number] for name, values in settings.items()})
        if one in actors:
            seen = iter(WEIGHTS.items())
            await one.send_weights(seen)
            walked.append(len(list(seen)))  # what is left of them
        else:
            async for name, weight in one.receive_weights():
                received[number][name] = weight
        one.finalize()

    sides = zip((actors, players), topology, strict=True)
    roles = [(one, number, settings) for side, settings in sides for number, one in enumerate(side)]
    threads = [threading.Thread(target=lambda *it: asyncio.run(act(*it)), args=role, daemon=True) for role in roles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert walked == [0] * trainers, "a process that trains has to walk through all weights: they are gathered from all"
    assert not any(one.group or hasattr(one, "store") for one in (*actors, *players)), "the next are sent anew"
    return received


def test_every_engine_gets_every_weight_as_it_is(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(weights.ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    monkeypatch.setattr(weights, "get_device_name", lambda: "cpu")
    for trainers, engines in ((1, 1), (3, 2)):
        for received in send(trainers, engines):
            assert list(received) == list(WEIGHTS)
            for name, weight in WEIGHTS.items():
                torch.testing.assert_close(received[name], weight, rtol=0, atol=0)
