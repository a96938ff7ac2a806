"""The adapter that a stage trains further: which it is, and whether it fits the settings and the model under it.

verl loads it with the rank, the scale and the modules that its own files name, whatever the settings say; vLLM and our
notes go by the settings. So the two must say the same.
"""

import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe.errors import PreflightError
from recipe.files import Damaged
from recipe.stage.adapter import Adapter, other_base, read_adapter
from recipe.stage.starts import HUB_ID
from recipe.typed import shown

MODEL = "actor_rollout_ref.model"


def resolve_adapter(config: DictConfig) -> None:
    """The adapter to train further: `lora_adapter_path`, else with `stage.adapter=continue` that of the stage before.

    Without a start model its base becomes the start model. `~` is written out.

    Raises:
        PreflightError: it is not there, or is none.
    """
    model, stage = config.actor_rollout_ref.model, config.stage
    if model.lora_adapter_path is None and stage.get("adapter") == "continue" and stage.previous:
        model.lora_adapter_path = str(Path(config.paths.run) / stage.previous / "adapter")
        if not os.path.isdir(model.lora_adapter_path):
            raise PreflightError(
                f"stage.adapter=continue: {model.lora_adapter_path} is not there. Run the stage before it "
                f"({stage.previous}) with {MODEL}.lora_rank and the same RUN, or set stage.adapter=new."
            )
    if model.lora_adapter_path is None:
        return
    model.lora_adapter_path = os.path.expanduser(str(model.lora_adapter_path))
    adapter = _read(config)
    if model.path is None:
        base = adapter.base.model
        if not os.path.isdir(base) and not HUB_ID.fullmatch(base):
            raise PreflightError(
                f"the adapter in {adapter.folder} belongs to {base}, which is not there. Set MODEL to where it is now."
            )
        model.path = base


def check_adapter(config: DictConfig) -> None:
    """The adapter has the rank and the scale of the settings, and belongs to the start model. Reads its weights.

    After `resolve_adapter`, which leaves `lora_adapter_path` null where a new one is trained.

    Raises:
        PreflightError: not so.
    """
    model = config.actor_rollout_ref.model
    if model.lora_adapter_path is None:
        return
    adapter = _read(config)
    for key, has in (("lora_rank", adapter.rank), ("lora_alpha", adapter.alpha)):
        if model[key] != has:
            raise PreflightError(
                f"{MODEL}.{key}={model[key]}, and the adapter in {adapter.folder} has {has}, with which it would be "
                f"trained. Set {MODEL}.{key}={has}, or train a new one with stage.adapter=new."
            )
    if fault := other_base(adapter, str(model.path)):
        raise PreflightError(
            f"the adapter in {adapter.folder} is another model's: {fault}. Set MODEL to the model it belongs to, or "
            "train a new one with stage.adapter=new."
        )


def check_adapter_modules(config: DictConfig) -> None:
    """The adapter is on the modules that the settings name, and fits them. After `check_adapter`; imports peft.

    Raises:
        PreflightError: not so.
    """
    model = config.actor_rollout_ref.model
    if model.lora_adapter_path is None or (wanted := _wanted(model)) is None:
        return
    adapter = _read(config)
    found = adapter.shapes
    absent, surplus = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if absent or surplus:
        raise PreflightError(
            f"{MODEL}.target_modules={model.target_modules} (exclude_modules={model.exclude_modules}) are not the "
            f"modules of the adapter in {adapter.folder}, which lacks {len(absent)} of their tensors and has "
            f"{len(surplus)} others ({shown((absent + surplus)[0], quote=False)}, ...). Set {MODEL}.target_modules="
            f"{_modules(adapter)}, or train a new one with stage.adapter=new."
        )
    if other := next((name for name in sorted(wanted) if wanted[name] != found[name]), None):
        raise PreflightError(
            f"the adapter in {adapter.folder} is another model's: its {other} has the shape {shown(found[other])}, and "
            f"{model.path} takes {wanted[other]}. Set MODEL to the model it belongs to."
        )


def _read(config: DictConfig) -> Adapter:
    path = str(config.actor_rollout_ref.model.lora_adapter_path)
    try:
        return read_adapter(Path(path))
    except Damaged as error:
        raise PreflightError(
            f"{MODEL}.lora_adapter_path={path} is no adapter that can be trained further: {error}. If a stage left it, "
            f"delete {Path(path).parent / 'done.json'} and start that stage again: it exports it anew, without a step. "
            "Else set it to another one."
        ) from error


def _wanted(model: DictConfig) -> dict[str, tuple[int, ...]] | None:
    """Name -> shape of the tensors that verl would make for a new adapter; None for a class of the model's own."""
    import torch
    import transformers
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict

    settings = transformers.AutoConfig.from_pretrained(model.path)
    model_class = getattr(transformers, (settings.architectures or [""])[0], None)
    if model_class is None or hasattr(settings, "auto_map"):
        return None
    modules: Any = {key: model.get(key) for key in ("target_modules", "exclude_modules")}
    modules = OmegaConf.to_container(OmegaConf.create(modules), resolve=True)
    with torch.device("meta"):
        base = model_class(settings)
        try:
            made = get_peft_model(base, LoraConfig(r=model.lora_rank, task_type="CAUSAL_LM", **modules))
        except ValueError as error:
            raise PreflightError(f"{MODEL}.target_modules={model.target_modules} cannot be used: {error}") from error
    tensors = get_peft_model_state_dict(made, save_embedding_layers=False)
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _modules(adapter: Adapter) -> str:
    """The last parts of the names of an adapter's modules, as a setting: [q_proj,up_proj]."""
    names = sorted({name.split(".lora_")[0].rsplit(".", 1)[-1] for name in adapter.shapes})
    return shown(f"[{','.join(names)}]", quote=False)
