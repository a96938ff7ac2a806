"""The simulation of `benchmarks/long_tail` done plainly: one clock for all, all looked at after every event."""

from dataclasses import dataclass
from math import inf

from benchmarks.long_tail.load import Load
from benchmarks.long_tail.modes import Mode

SOON = 1e-9
"""Seconds, or tokens, that are none."""


@dataclass
class Played:
    """An episode: away from its engine until `value`, or writing with `value` tokens to go, or in the queue."""

    number: int
    group: int
    handed: int
    between: float
    left: int
    engine: int
    state: str = "away"
    value: float = 0.0
    lost: bool = False


class Plain:
    """All of it."""

    def __init__(self, load: Load, mode: Mode, steps: int, seed: int) -> None:
        self.load, self.mode = load, mode
        self.between = (load.waits(mode.warmup + steps, seed) / load.messages + load.environment).reshape(-1)
        self.now = 0.0
        self.episodes: list[Played] = []
        self.queues: list[list[Played]] = [[] for _ in range(load.replicas)]
        self.reading = [0.0] * load.replicas

    def of(self, engine: int, state: str) -> list[Played]:
        return [one for one in self.at(engine) if one.state == state]

    def hand_out(self, prompts: int, step: int) -> None:
        for _ in range(prompts * self.load.rollouts):
            number = len(self.episodes)
            asked = [sum(map(self.asks, self.at(engine))) for engine in range(self.load.replicas)]
            engine, group = asked.index(min(asked)), number // self.load.rollouts
            new = Played(number, group, step, self.between[number], self.load.messages, engine, value=self.now)
            self.episodes.append(new)

    def at(self, engine: int) -> list[Played]:
        return [one for one in self.episodes if one.engine == engine]

    def asks(self, one: Played) -> bool:
        return one.state != "away" or (one.value <= self.now and one.left > 0)

    def begin(self, one: Played) -> None:
        one.state, one.value = "writing", self.load.tokens
        if one.lost:
            one.lost = False
            self.reading[one.engine] += self.load.reading

    def ask(self) -> None:
        due = [one for one in self.episodes if one.state == "away" and one.left and one.value <= self.now + SOON]
        for one in sorted(due, key=lambda one: (one.value, one.number)):
            if len(self.of(one.engine, "writing")) < self.load.concurrency:
                self.begin(one)
            else:
                one.state = "queued"
                self.queues[one.engine].append(one)

    def rate(self, engine: int) -> float:
        writing = len(self.of(engine, "writing"))
        return min(self.load.tokens_a_second_alone, self.load.tokens_a_second / writing)

    def go_on(self, end: float = inf) -> None:
        """To the next event, or to the end."""
        times = [one.value - self.now for one in self.episodes if one.state == "away" and one.value > self.now + SOON]
        for engine in range(self.load.replicas):
            if writing := self.of(engine, "writing"):
                least = min(one.value for one in writing) / self.rate(engine)
                times.append(self.reading[engine] if self.reading[engine] > SOON else least)
        passed = min(*times, end - self.now, inf)
        self.now += passed
        for engine in range(self.load.replicas):
            if self.reading[engine] > SOON:
                self.reading[engine] -= passed
            elif writing := self.of(engine, "writing"):
                got = passed * self.rate(engine)
                for one in writing:
                    one.value -= got
                for one in [one for one in writing if one.value <= SOON]:
                    one.left -= 1
                    one.state, one.value = "away", self.now + one.between
                    if self.queues[engine]:
                        self.begin(self.queues[engine].pop(0))

    def over(self, group: int) -> bool:
        return all(
            one.state == "away" and not one.left and one.value <= self.now + SOON
            for one in self.episodes
            if one.group == group
        )

    def step(self, step: int, trained: set[int]) -> tuple[float, list[int]]:
        """Seconds of playing, and the groups that are trained on."""
        for one in self.episodes:
            one.lost = one.left < self.load.messages and one.state != "writing"
        self.reading = [self.load.reading * len(self.of(engine, "writing")) for engine in range(self.load.replicas)]
        self.hand_out(self.load.prompts * (self.mode.warmup + 1 if step == 1 else 1), step)
        began = self.now
        while True:
            self.ask()
            handed = {one.group: one.handed for one in self.episodes if one.group not in trained}
            finished = [group for group in handed if self.over(group)]
            old = [group for group in handed if step - handed[group] + 1 >= self.mode.threshold]
            if len(finished) >= self.load.prompts and set(old) <= set(finished):
                chosen = sorted(finished, key=lambda group: handed[group])[: self.load.prompts]
                rollout = self.now - began
                if self.mode.beside:
                    end = self.now + self.load.log_probs + self.load.update
                    while self.now < end - SOON:
                        self.go_on(end)
                        self.ask()
                    self.now += self.load.weights
                else:
                    self.now += self.load.pause
                return rollout, chosen
            self.go_on()


def plainly(load: Load, mode: Mode, steps: int, seed: int) -> list[tuple[float, list[int]]]:
    """Of each step the seconds of playing, and the groups it was trained on."""
    run, trained, out = Plain(load, mode, steps, seed), set[int](), []
    for step in range(1, steps + 1):
        out.append(run.step(step, trained))
        trained.update(out[-1][1])
    return out
