"""When a stage ends and with which model: watches the metrics while it trains.

A gate that is reached does not end the stage in that step but makes the next one its last. verl decides on saving
before a step's metrics exist, and saves while the engine has given its memory back; its own last step saves, validates
and ends everything in the right order, for the price of one step.
"""

from collections.abc import Mapping
from pathlib import Path

from omegaconf import DictConfig

from recipe import gates
from recipe.stage import checkpoints
from recipe.stage.metrics_log import read_steps
from recipe.stage.notes import BEST_FILE


class StageEnd:
    """One launch of a stage.

    Args:
        planned: the last step if nothing ends the stage earlier.
        done: the step of the checkpoint that was resumed; 0 for a fresh start.
    """

    def __init__(self, config: DictConfig, planned: int, done: int) -> None:
        self.config = config
        self.planned = planned
        self.last = planned
        self.gate = checkpoints.gate_of(config)
        stage = Path(config.paths.stage)
        self._values = gates.values_until(read_steps(stage), self.gate.metric, done) if self.gate else []
        best = checkpoints.read_best(stage)
        if best and best.step > done:  # of a training that this one does not continue
            (stage / BEST_FILE).unlink()
        elif best and config.stage.handover == "best" and best.metric != config.stage.handover_metric:
            (stage / BEST_FILE).unlink()  # their values do not compare
            print(
                f"RESUME step {best.step} was the best by {best.metric}; stage.handover_metric is now "
                f"{config.stage.handover_metric}, so the best is chosen from the steps to come",
                flush=True,
            )
        checkpoints.note_target(config, planned, planned)
        self._leave_after(done)

    def __call__(self, step: int, metrics: Mapping[str, float]) -> int:
        """Take note of a step's metrics; returns the step that is now the last one."""
        metric = self.config.stage.handover_metric
        if self.config.stage.handover == "best":
            gates.check_logged("stage.handover_metric", metric, metrics)
            if metric in metrics and checkpoints.keep_best(self.config, step, float(metrics[metric])):
                print(f"{metric} {metrics[metric]:.3f} is the best so far: kept the model of step {step}", flush=True)
        if self.gate is not None:
            gates.check_logged("stage.gate.metric", self.gate.metric, metrics)
            if self.gate.metric in metrics:
                self._values.append(float(metrics[self.gate.metric]))
                self._leave_after(step)
        return self.last

    def _leave_after(self, step: int) -> None:
        """Make the next step the last one if the gate is reached after `step`."""
        reason = self.gate.reason_to_leave(self._values) if self.gate else None
        if reason and 0 < step and step + 1 < self.last:
            self.last = step + 1
            text = f"left at step {self.last} of {self.planned}: {reason}"
            checkpoints.note_target(self.config, self.last, self.planned, text)
            print(f"GATE {text}", flush=True)
