"""BFCL's own executor and checker, as the yardstick for ours.

Only for calls that are trusted, such as gold and `mutants`: that executor evaluates text with the rights of the
process.

The executor keeps its instances in its module's namespace under a name made of model and task, so every run here takes
a model name of its own and removes the instances at its end.
"""

import itertools
import re
from dataclasses import dataclass
from typing import Any

from bfcl_env.proof.mutants import Turns
from bfcl_env.scenarios import Scenario
from bfcl_env.source import load_class
from bfcl_env.state import clone
from interaction.call import Call

_RUNS = itertools.count()


@dataclass(frozen=True, slots=True)
class OfficialVerdict:
    """What BFCL's checkers say at the end of one turn. All True for a turn without gold calls: BFCL skips it."""

    passed: bool
    state_matches: bool
    responses_match: bool


class OfficialEpisode:
    """One conversation on BFCL's executor, with BFCL's state and response check after every turn.

    BFCL stops at the first turn that fails; here the later turns are judged as well.

    Args:
        scenario: the task.
        share: keep what BFCL shares between all instances of a process: credit cards and bookings of long-context
            tasks, and the lists of tweets that were posted without tags or mentions.
    """

    def __init__(self, scenario: Scenario, share: bool = False) -> None:
        self.scenario = scenario
        self._share = share
        self._name = f"run{next(_RUNS)}"
        self._gold_name = f"{self._name}_ground_truth"
        self._config = scenario.initial_config
        self._turn = 0
        self._made = 0
        self._texts: list[str] = []
        for class_name in scenario.classes:
            load_class(class_name)  # With the check of the version.
        self._model = self._run([], self._name)[1]
        self._gold = self._run([], self._gold_name)[1]
        if "TravelAPI" in self._model and not share:
            for instance in (self._model["TravelAPI"], self._gold["TravelAPI"]):
                instance.credit_card_list = clone(instance.credit_card_list)
                instance.booking_record = clone(instance.booking_record)

    def __enter__(self) -> "OfficialEpisode":
        return self

    def __exit__(self, *exc_info: object) -> None:
        from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils

        for model in (self._name, self._gold_name):
            for class_name in self.scenario.classes:
                name = re.sub(r"[-./:]", "_", f"{model}_eval_{self.scenario.id}_{class_name}_instance")
                del vars(multi_turn_utils)[name]

    def execute(self, *calls: Call | str) -> list[str]:
        """The result texts of some calls, which may be given as text in Python syntax."""
        texts = self._texts_of([str(call) for call in calls], self._name)
        self._made += len(texts)
        self._texts += texts
        return texts

    def end_turn(self) -> OfficialVerdict:
        """Executes the turn's gold calls and judges."""
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import response_checker, state_checker

        gold = [str(call) for call in self.scenario.turns[self._turn].gold]
        wanted = self._texts_of(gold, self._gold_name)
        made, self._made = self._made, 0
        self._turn += 1
        if not gold:
            return OfficialVerdict(True, True, True)
        state = state_checker(self._model, self._gold)["valid"]
        responses = response_checker(self._texts, wanted, self._turn - 1)["valid"]
        return OfficialVerdict(made > 0 and state and responses, state, responses)

    def check(self, turns: Turns) -> bool:
        """BFCL's verdict on a whole conversation, by `multi_turn_checker`; only for an episode that was not stepped.

        Tweets share their lists here whatever `share` says.
        """
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

        entry = {
            "id": self.scenario.id,
            "initial_config": self._config,
            "involved_classes": list(self.scenario.classes),
        }
        decoded = [[[str(call)] for call in calls] for calls in turns]
        gold = [[str(call) for call in turn.gold] for turn in self.scenario.turns]
        return multi_turn_checker(decoded, gold, entry, self.scenario.category, self._name)["valid"]

    def _texts_of(self, calls: list[str], model: str) -> list[str]:
        if self._share or "TwitterAPI" not in self.scenario.classes:
            return self._run(calls, model)[0]
        texts = []
        post_tweet: Any = load_class("TwitterAPI").post_tweet  # type: ignore[attr-defined]
        for call in calls:
            post_tweet.__defaults__ = ([], [])
            texts += self._run([call], model)[0]
        return texts

    def _run(self, calls: list[str], model: str) -> tuple[list[str], dict[str, Any]]:
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

        scenario = self.scenario
        settings = {"long_context": scenario.long_context, "is_evaL_run": True}
        return execute_multi_turn_func_call(calls, self._config, list(scenario.classes), model, scenario.id, **settings)
