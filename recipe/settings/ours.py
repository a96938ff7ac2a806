"""The settings of this recipe, as base.yaml and the hardware profiles have them."""

from dataclasses import dataclass, field
from typing import Literal

from interaction.policy import TurnPolicy
from recipe.settings.gates import Gate
from recipe.settings.kinds import (
    FolderName,
    NamesOrNone,
    Natural,
    NotNegative,
    PartAbove0,
    PlayedUser,
    Positive,
    ReadPath,
    RunName,
    Scalar,
    Share,
    Text,
    Variable,
    Whole,
    WrittenPath,
)
from recipe.typed import STRICT


@dataclass(frozen=True)
class Alarms:
    """`stage.alarms`: shares."""

    __pydantic_config__ = STRICT
    malformed: NotNegative
    truncated: NotNegative
    lost: NotNegative
    alike: NotNegative
    turns: NotNegative


@dataclass(frozen=True)
class Tiny:
    """`stage.tiny`: what the profile of the tiny policy makes of a stage."""

    __pydantic_config__ = STRICT
    train_file: Text | None = None
    """For the tiny policy: name of the file with the training rows, in paths.data and without .parquet."""
    val_file: Text | None = None
    """For the tiny policy, of tau: the same of the held-out rows."""
    steps: Whole | None = None
    """For the tiny policy: steps of the stage."""
    rows: Whole | None = None
    """For the tiny policy: rows of a batch; without it 4."""
    loss_agg_mode: Text | None = None
    """For the tiny policy: actor_rollout_ref.actor.loss_agg_mode of an algorithm that is about it; the profile has one
    of its own."""


@dataclass(frozen=True)
class Stage:
    """`stage`."""

    __pydantic_config__ = STRICT
    name: FolderName
    previous: FolderName | None
    poll_interval: Positive
    old_log_probs_every: Whole
    gate: Gate | None
    handover: Literal["last", "best"]
    handover_metric: Text
    adapter: Literal["new", "continue"]
    over_budget: Literal["keep", "leave_out"]
    max_lost_share: Share
    max_gen_batches: Whole
    alarms: Alarms
    warm_start: FolderName | None
    before: bool
    group_size: Whole
    tiny: Tiny = field(default_factory=Tiny)


@dataclass(frozen=True)
class Environment:
    """`environment`."""

    __pydantic_config__ = STRICT
    guard: NamesOrNone


@dataclass(frozen=True)
class Overlong:
    """`interaction.overlong`."""

    __pydantic_config__ = STRICT
    train: bool
    penalty: NotNegative
    window: PartAbove0


@dataclass(frozen=True)
class Interaction:
    """`interaction`."""

    __pydantic_config__ = STRICT
    protocol: Text
    docs: Text
    max_tokens_per_reply: Whole | None
    engine_timeout: Positive
    record_dir: WrittenPath | None
    record_tokens: bool
    environments: dict[FolderName, ReadPath]
    user: PlayedUser
    overlong: Overlong
    train: TurnPolicy
    val: TurnPolicy


@dataclass(frozen=True)
class Offline:
    """`offline`."""

    __pydantic_config__ = STRICT
    files: NamesOrNone
    rewards: Literal["steps", "final"]
    old_log_probs: Literal["start", "step"]


@dataclass(frozen=True)
class Paths:
    """`paths`."""

    __pydantic_config__ = STRICT
    run: WrittenPath
    stage: WrittenPath
    data: ReadPath
    tiny_policy: ReadPath | None = None
    """On the profile of the tiny policy: it, where no other model is named."""


@dataclass(frozen=True)
class Needs:
    """`launcher.needs`."""

    __pydantic_config__ = STRICT
    memory_gb: NotNegative
    """Memory of the machine that has to be free before a start, in GB."""
    disk_gb: NotNegative
    """Disk that has to be free before a start, in GB; raised to what the checkpoints take."""
    gpu_memory_gb: Positive | None = None
    """Memory of one card in GB, where nvidia-smi does not answer."""


@dataclass(frozen=True)
class Launcher:
    """`launcher`."""

    __pydantic_config__ = STRICT
    env: dict[Variable, Scalar]
    needs: Needs
    prefork: bool = False
    """Import the large libraries once a stage instead of once a process (CPU profile)."""
    check_gpu_memory: bool = True
    """Refuse to start what does not fit the cards by estimate (docs/memory.md)."""


@dataclass(frozen=True)
class Credit:
    """`algorithm.credit`."""

    __pydantic_config__ = STRICT
    gamma_token: Share
    lam_token: Share
    whiten: bool


@dataclass(frozen=True)
class SftStage:
    """`stage` of the warm start."""

    __pydantic_config__ = STRICT
    name: FolderName
    tiny_knows: Literal["bfcl", "lines"] = "bfcl"
    """What the tiny policy's tokenizer is made of: BFCL's texts, or the lines of `data.train_files`."""


@dataclass(frozen=True)
class SftLauncher:
    """`launcher` of the warm start."""

    __pydantic_config__ = STRICT
    env: dict[Variable, Scalar]


@dataclass(frozen=True)
class FromEnvironment:
    """The environment variables that the configurations read."""

    __pydantic_config__ = STRICT
    TRAIN_BATCH_SIZE: Whole | None = None
    """Prompts of a step: data.train_batch_size."""
    MINI_BATCH_SIZE: Whole | None = None
    """Prompts of an optimizer step: actor_rollout_ref.actor.ppo_mini_batch_size; it divides TRAIN_BATCH_SIZE."""
    SEED: Natural | None = None
    """Order of the rows and sampling: data.seed and actor_rollout_ref.rollout.seed."""
    MODEL: ReadPath | None = None
    """Start model, a Hugging Face folder or a hub id: actor_rollout_ref.model.path; of run_sft.sh model.path."""
    RUN: RunName | None = None
    """Results go to outputs/<RUN>: paths.run."""
