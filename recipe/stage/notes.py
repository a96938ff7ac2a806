"""What a stage notes about itself, and how each note is read back. Paths are those inside a stage's folder.

Nothing here decides anything: `checkpoints` and `starts` write these notes and know what follows from them.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from recipe.files import STRICT, StateFile

Step = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Start:
    """`checkpoints/started_from.json`: what the checkpoints beside it began with."""

    __pydantic_config__ = STRICT
    stage: str
    model: str
    """A folder's absolute path, or a hub id. Earlier releases noted a hub id as if it were a path."""
    lora_rank: int | None = None
    lora_alpha: int | float | None = None
    weights: str | None = None
    """Sum of the model's noted sums: a stage exports another model under the same path when it is trained anew.
    Where both are known they decide, so that a folder may be moved, mounted elsewhere or reached through a link."""
    adapter: str | None = None
    """The same of the adapter that is trained further; None where a new one is trained, or none."""


@dataclass(frozen=True)
class LeftOut:
    """`checkpoints/left_out.json`: the training tasks that the checkpoints beside it never saw."""

    __pydantic_config__ = STRICT
    tasks: tuple[str, ...]
    """Each as `environment/id`, or as an id alone, of BFCL; earlier releases wrote all of them so."""


@dataclass(frozen=True)
class TrainedOn:
    """`checkpoints/trained_on.json`: the tasks, or stored trajectories, that the checkpoints beside it learn from."""

    __pydantic_config__ = STRICT
    rows: Step
    digest: str
    """In order, of the tasks' names, or of where each trajectory stands; other folders with the same have the same."""


@dataclass(frozen=True)
class Target:
    """`total_steps.json`: at which step the stage ends, noted when its trainer has read the data."""

    __pydantic_config__ = STRICT
    total_steps: Step
    planned: Step
    """The last step without a gate."""
    reason: str | None = None
    """Why the gate ended it earlier."""
    gate: str = "None"
    asked: dict[str, Any] | None = None
    """The settings from which the number of steps follows."""
    chose: tuple[dict[str, str], ...] | None = None
    """What validation had decided; None in notes of before it was kept."""


@dataclass(frozen=True)
class Best:
    """`best.json`: the best validated checkpoint so far; its model is in `best/`."""

    __pydantic_config__ = STRICT
    step: Step
    value: float
    metric: str
    model: str


@dataclass(frozen=True)
class Verdict:
    """How a stage's gate stands at its end."""

    __pydantic_config__ = STRICT
    passed: bool
    stops: bool
    """Whether the curriculum ends here."""
    text: str


@dataclass(frozen=True)
class Done:
    """`done.json`: the stage has reached its end, and `hf/` holds the model that it hands on."""

    __pydantic_config__ = STRICT
    global_step: Step
    model: str
    target: Step | None = None
    reason: str | None = None
    model_step: Step | None = None
    best: Best | None = None
    gate: Verdict | None = None
    chose: tuple[dict[str, str], ...] | None = None


@dataclass(frozen=True)
class KLCoefficient:
    """`kl_coefficient.json` of a checkpoint: the adaptive coefficient of the next step."""

    __pydantic_config__ = STRICT
    kl_coef: float


@dataclass(frozen=True)
class Adapter:
    """`actor/lora_train_meta.json` of a checkpoint, written by verl: how its LoRA weights are scaled."""

    __pydantic_config__ = STRICT
    r: Annotated[int, Field(ge=1)]
    lora_alpha: int
    task_type: str


@dataclass(frozen=True)
class Base:
    """`adapter/base.json`: the model that an adapter belongs to."""

    __pydantic_config__ = STRICT
    model: str
    """A folder's absolute path, or a hub id, as it was when the adapter was trained."""
    weights: str | None = None
    """Sum of the sums of its weights, which knows it wherever it is now; None where it has no safetensors."""


@dataclass(frozen=True)
class Queue:
    """`queue.json` of a checkpoint of a stage that plays on while it trains: its `transfer_queue/` is a part of it."""

    __pydantic_config__ = STRICT
    rollouts: int
    """Of a prompt (`actor_rollout_ref.rollout.n`)."""


STARTED, TARGET, BEST, DONE = StateFile(Start), StateFile(Target), StateFile(Best), StateFile(Done)
LEFT_OUT = StateFile(LeftOut)
TRAINED_ON = StateFile(TrainedOn)
KL_COEFFICIENT, ADAPTER, BASE = StateFile(KLCoefficient), StateFile(Adapter), StateFile(Base)
QUEUE = StateFile(Queue)

STARTED_FILE, LEFT_OUT_FILE = "started_from.json", "left_out.json"
TRAINED_ON_FILE = "trained_on.json"
MADE_WITH_FILE = "made_with.json"  # of a warm start: `recipe.sft`
TARGET_FILE, BEST_FILE, DONE_FILE = "total_steps.json", "best.json", "done.json"
KL_FILE = "kl_coefficient.json"
QUEUE_FILE, QUEUE_FOLDER = "queue.json", "transfer_queue"
BATCHES_FILE = (
    "batches.jsonl"  # which stored trajectories a step was trained on, a line each: `recipe.training.offline`
)
ADAPTER_FILE, BASE_FILE = "lora_train_meta.json", "base.json"
