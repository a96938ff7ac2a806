"""One played episode as verl stores it: token ids, mask, rewards on tokens; and as a line of a file."""

import json
import math
from pathlib import Path
from typing import Any

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from interaction.token_rewards import Span, check_step_scores, number_tokens, place, steps_of


class EpisodeOutput(AgentLoopOutput):
    """One trajectory with its record. The record goes to the reward and to a file, not into TransferQueue."""

    record_file: str | None = None
    """JSONL file to which the scored record is appended; None writes nothing."""
    record_header: dict[str, Any] = {}
    """Fields of the JSONL line beside score and episode: step, split, uid, ..."""
    spans: list[Span] = []
    """The model's steps among the tokens of the response, in order."""
    overlong_penalty: float | None = None
    """What the length costs (`interaction.overlong`), taken from the score and logged; None where that is off."""

    def as_dict(self) -> dict[str, Any]:
        """verl's form of the trajectory. verl calls this once, after the reward has been computed.

        The reward is put on tokens here (`interaction.token_rewards`), and two columns say which step
        (`step_ids`) and which user turn (`turn_ids`) a token belongs to, -1 for the environment's.

        Raises:
            ValueError: the score is not finite or the reward's `step_scores` are wrong. verl then counts the prompt as
                failed, and the sample is lost.
        """
        fields = super().as_dict()
        for name in ("record_file", "record_header", "spans", "overlong_penalty"):
            fields.pop(name, None)
        episode = fields["extra_fields"].pop("episode", None)
        # a list would break verl's metrics, which expect numbers
        step_scores = fields["extra_fields"].get("reward_extra_info", {}).pop("step_scores", None)
        if "scenario_id" in self.record_header:  # for a trainer that tells held-out tasks apart; verl skips texts
            info = fields["extra_fields"].setdefault("reward_extra_info", {})
            info["scenario_id"] = self.record_header["scenario_id"]
        if self.spans:
            ids = number_tokens(self.spans, self.response_mask)
            fields["step_ids"], fields["turn_ids"] = torch.tensor(ids.steps), torch.tensor(ids.turns)
        score = self.reward_score
        if score is not None and not math.isfinite(score):
            raise ValueError(f"the reward is {score}; trained on, it would make every weight NaN")
        if score is not None and self.spans:
            scores, spans = [score], self.spans[-1:]
            if step_scores is not None:
                steps = steps_of(episode) if episode is not None else len(self.spans)
                scores, spans = check_step_scores(step_scores, steps, score), self.spans
            if self.overlong_penalty is not None:  # the last step pays it
                scores = [*scores[:-1], scores[-1] - self.overlong_penalty]
                step_scores = scores if step_scores is not None else None
                score -= self.overlong_penalty
                info = fields["extra_fields"].setdefault("reward_extra_info", {})
                info["overlong_penalty"] = self.overlong_penalty
            fields["rm_scores"] = torch.tensor(place(scores, spans, self.response_mask), dtype=torch.float32)
        if self.record_file and episode is not None:
            info = fields["extra_fields"].get("reward_extra_info", {})
            reward = {k: v for k, v in info.items() if isinstance(v, int | float)}
            line = {**self.record_header, "score": score, "reward": reward, "episode": episode}
            if step_scores is not None:
                line["step_scores"] = step_scores
            path = Path(self.record_file)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:  # one write: appends of several workers do not mix
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        return fields
