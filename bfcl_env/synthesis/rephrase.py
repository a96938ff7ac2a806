"""Have a language model put the requests of generated tasks in other words, and keep only what is still verified.

    python -m bfcl_env.synthesis.rephrase IN.json OUT.json --url http://127.0.0.1:8000/v1 [--story] [--no-solver]

What the model writes is data. A task is kept if its new words say every value that the old ones said and none that they
did not, share nothing with BFCL's held-out half, and a blind solver - another conversation, which sees functions and
words - makes calls that pass. Replies are kept in OUT.json.cache, so the same command goes on where it stopped.
"""

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from bfcl_env.entries.tasks import EntriesError, read
from bfcl_env.proof.grounding import leaves, says
from bfcl_env.scenarios import Scenario, scenario_of
from bfcl_env.synthesis.verify import overlap
from interaction import Conversation, get_protocol
from interaction.endpoint import ContextFull, Endpoint, EndpointFault, EndpointRefusal, side_by_side
from interaction.protocol import Message

LONGEST = 1500
"""Characters of one request."""
RULES = (
    "Keep every name, number and quoted text letter for letter, in the message where it stands. Add no fact, and leave "
    "none out. Text in square brackets stays as it is. Reply with a JSON list of as many strings, and nothing else."
)
TASKS = {
    "words": "A user wrote these messages to an assistant, as a JSON list. Put each as another person would. ",
    "story": "A user wrote these messages to an assistant, as a JSON list. Rewrite them as one story: think of who the "
    "user is and why they want this, and let it show in the words. ",
}


class Rejected(Exception):
    """The task is thrown away; the message is the reason."""


@dataclass
class Rephrasing:
    """What is asked of an endpoint, and what came of it.

    Attributes:
        endpoint: the model that writes, and solves.
        cache: file of replies.
        task: `words` or `story`.
        solve: whether a blind solver has to pass.
        rejected: reason -> tasks.
        tokens: prompt and completion tokens that were paid for, without those from the cache.
    """

    endpoint: Endpoint
    cache: Path
    task: str
    solve: bool
    rejected: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._known: dict[str, str] = {}
        if self.cache.exists():
            for line in self.cache.read_text("utf-8").splitlines():
                try:
                    self._known.update(json.loads(line))
                except (ValueError, TypeError):
                    continue  # cut off when a run was killed: asked again

    async def entry(self, entry: dict[str, Any]) -> dict[str, Any] | None:
        """The entry in other words; None, and counted, if it is not well made.

        Raises:
            EndpointRefusal: the server never will answer.
        """
        try:
            return await self._rewritten(entry)
        except Rejected as reason:
            self.rejected[str(reason)] += 1
        except EndpointFault:
            self.rejected["the server did not answer; the same command asks again"] += 1
        return None

    async def _rewritten(self, entry: dict[str, Any]) -> dict[str, Any]:
        old = [turn[0]["content"] for turn in entry["question"] if turn]
        said = await self._ask([{"role": "user", "content": TASKS[self.task] + RULES + "\n\n" + json.dumps(old)}])
        new = iter(_texts(said, len(old)))
        question = [[{"role": "user", "content": next(new)}] if turn else [] for turn in entry["question"]]
        changed = {**entry, "question": question, "words_by": self.endpoint.model}
        before, after = _scenario(entry), _scenario(changed)
        if not _same_values(before, after):
            raise Rejected("values are not those of the task")
        if found := overlap(after):
            raise Rejected(found)
        if self.solve and not await self._solved(after):
            raise Rejected("the solver does not pass")
        return changed

    async def _solved(self, scenario: Scenario) -> bool:
        with Conversation(scenario, get_protocol("python_calls", docs="signature")) as conversation:
            messages = conversation.start()
            while not conversation.done:
                said = await self._ask(messages)
                reply = conversation.reply(said)
                messages = [*messages, {"role": "assistant", "content": said}, *reply.messages]
            outcome = conversation.record().outcome
        return outcome is not None and outcome.passed

    async def _ask(self, messages: list[Message]) -> str:
        key = sha256(json.dumps([self.endpoint.model, messages]).encode()).hexdigest()
        if key not in self._known:
            try:
                said = await self.endpoint.complete(messages)
            except ContextFull:
                raise Rejected("does not fit the model's context") from None
            self.tokens.update(prompt=said.prompt_tokens, completion=said.completion_tokens)
            self._known[key] = said.text
            with open(self.cache, "a", encoding="utf-8") as file:
                print(json.dumps({key: said.text}), file=file)
        return self._known[key]


def _scenario(entry: dict[str, Any]) -> Scenario:
    return scenario_of(entry["id"].rpartition("_")[0], entry, entry["ground_truth"], 0)


def _texts(said: str, count: int) -> list[str]:
    """The list of texts in a model's reply."""
    try:
        texts = json.loads(said[said.index("[") : said.rindex("]") + 1])
    except (ValueError, RecursionError):
        raise Rejected("no JSON list") from None
    if not isinstance(texts, list) or len(texts) != count:
        raise Rejected("another number of messages")
    if not all(isinstance(text, str) and 0 < len(text.strip()) and len(text) <= LONGEST for text in texts):
        raise Rejected("a message is no text, or too long")
    return texts


def _same_values(before: Scenario, after: Scenario) -> bool:
    """Whether each turn says the values of gold's calls that it said before, and no others."""
    values = [value for turn in before.turns for call in turn.gold for value in leaves(call.arguments)]
    return all(
        says(old.user, value) == says(new.user, value)
        for old, new in zip(before.turns, after.turns, strict=True)
        for value in values
        if not isinstance(value, bool | None) and len(str(value)) > 1
    )


async def rephrase(entries: list[dict[str, Any]], work: Rephrasing, workers: int) -> list[dict[str, Any]]:
    """The entries that are still well made, in their order.

    Raises:
        EndpointRefusal: the server never will answer; what it has said before is in the cache.
    """
    waiting, made = iter(enumerate(entries)), dict[int, dict[str, Any]]()

    async def one() -> None:
        for number, entry in waiting:
            if (changed := await work.entry(entry)) is not None:
                made[number] = changed

    async with work.endpoint:
        await side_by_side(one, workers)
    return [made[number] for number in sorted(made)]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bfcl_env.synthesis.rephrase",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("read", type=Path, metavar="IN")
    parser.add_argument("write", type=Path, metavar="OUT")
    parser.add_argument("--url", required=True, help="of an OpenAI-compatible server, up to and with /v1")
    parser.add_argument("--model", help="its name there (default: the only one)")
    parser.add_argument("--api-key-env", metavar="NAME", help="environment variable with the key")
    parser.add_argument("--story", action="store_true", help="one story for all requests of a task")
    parser.add_argument("--no-solver", action="store_true", help="keep tasks that nobody has solved from their words")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--workers", type=int, default=8, help="requests at once")
    given = parser.parse_args()
    try:
        entries = read(given.read)
    except EntriesError as error:
        parser.error(str(error))
    key = os.environ.get(given.api_key_env, "") if given.api_key_env else "EMPTY"
    sampling = {"temperature": given.temperature, "max_tokens": 1024}
    cache = given.write.with_name(given.write.name + ".cache")
    cache.parent.mkdir(parents=True, exist_ok=True)
    try:
        endpoint = Endpoint(given.url, given.model, key, timeout=120, sampling=sampling, thoughts=True)
        work = Rephrasing(endpoint, cache, "story" if given.story else "words", not given.no_solver)
        made = asyncio.run(rephrase(entries, work, given.workers))
    except (EndpointRefusal, OSError) as error:
        sys.exit(f"{error}\nWhat was said before is kept in {cache}; the same command goes on.")
    given.write.write_text("".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in made), "utf-8")
    print(f"{given.write}: {len(made)} of {len(entries)} tasks")
    print(f"  {work.tokens['prompt']} tokens read, {work.tokens['completion']} written")
    for reason, count in work.rejected.most_common():
        print(f"  {count} thrown away: {reason}")


if __name__ == "__main__":
    main()
