"""A plan written out as an ordinary checkpoint, which plain transformers loads to the same logits.

Block slot i of the new model gets the weights of the plan's i-th visit, whichever model they are from; everything else
is that of the model at hand. The configuration is the one the model shows while the plan is in place: layer counts
updated, per-layer lists in visit order. It works for plans over one model too: pruned, re-ordered, deepened.

A layer that is visited twice is written twice: a checkpoint cannot share weights between slots. Groups and halves have
no place in an ordinary model and are refused. What is written is loaded again and compared before it gets its name, so
that a folder which is there is right.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import cached_file

from layerwise.errors import CheckpointError, LayerwiseError, ModelError, PlanError, UnsupportedModel
from layerwise.plan import Plan
from layerwise.stack import Stack, weight_hash
from layerwise.stack.executors.config_view import configuration_in_order
from layerwise.stack.inputs import evaluating, example_inputs, main_tensor
from layerwise.stack.precision import in_float32
from layerwise.stack.rounding import Agreement, compare

FILE = "plan.json"
"""What the plan was, and whose weights, beside the weights."""

# What says how inputs become tensors; the tokenizer writes its own files.
PREPROCESSING = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")

# What configurations of backbones derive from the number of their layers, and would contradict with another number.
STAGES = frozenset({"stage_names", "out_features", "out_indices"})


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a written model comes from: its plan, and the weight hash of each model by its name in the plan.

    The model at hand, which lent all that is not a layer, is called `shell`. `parameters` counts the new model's, and
    `gap` is how far its logits are from those of the plan, over the batch it was checked on: the largest difference of
    a token's logits by its norm, beside the norm of its logits.
    """

    plan: str
    models: Mapping[str, str]
    weights: Mapping[str, str]
    parameters: int
    gap: float


def save(
    stack: Stack,
    plan: Plan | str,
    folder: Path | str,
    *,
    inputs: Mapping[str, Tensor] | None = None,
    overwrite: bool = False,
) -> Origin:
    """Write `stack` under `plan` to `folder` as a Hugging Face model, and prove that it loads to the same logits.

    The proof is run on `inputs`, by default on a small seeded batch. The folder appears whole or not at all; one that
    is there is replaced only if `overwrite` is set and it holds a model. The tokenizer goes along where the stack has
    one, and so does the configuration of an image processor where its files are at hand.

    Raises `PlanError` for a plan with groups or halves, `UnsupportedModel` for a model that is not of transformers or
    whose configuration cannot say what the plan does, and `CheckpointError` for a folder that is in the way.
    """
    plan = Plan.parse(plan)
    stack.check(plan)
    _refuse_inexpressible(plan)
    if not isinstance(stack.model, PreTrainedModel):
        raise UnsupportedModel(
            f"{type(stack.model).__name__} is not a transformers model, so there is no checkpoint that could hold it"
        )
    batch = example_inputs(stack.model) if inputs is None else dict(inputs)
    if batch is None:
        raise ModelError(
            f"{type(stack.model).__name__} takes inputs that layerwise cannot make up; pass a batch to check the "
            "checkpoint on: save(stack, plan, folder, inputs=...)"
        )
    folder = Path(folder)
    _refuse_in_the_way(folder, overwrite)
    with _draft(folder) as draft:
        written = _assembled(stack, plan)
        written.save_pretrained(draft)
        gap = _proved(stack, plan, written, draft, batch)
        origin = _origin(stack, plan, written.num_parameters(), gap)
        (draft / FILE).write_text(json.dumps(asdict(origin), indent=1) + "\n", encoding="utf-8")
        _bring_along(stack, draft)
    return origin


def _refuse_inexpressible(plan: Plan) -> None:
    steps = plan.steps()
    if plan.has_sublayers():
        half = next(step.name for step in steps if step.sublayer is not None)
        raise PlanError(
            f"a checkpoint holds whole layers, and the plan runs {half}: run it in place with stack.under, or leave "
            "the halves out"
        )
    if any(step.opens or step.closes for step in steps):
        flat = " ".join(step.name for step in steps)
        raise PlanError(
            "a checkpoint runs its layers one after another, and the plan has a group: run it in place with "
            f"stack.under, or write its layers in turn, as in {Plan.parse(flat)}"
        )


def _refuse_in_the_way(folder: Path, overwrite: bool) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} is there and is not a model, so it stays; choose another folder")
    if not overwrite:
        raise CheckpointError(f"{folder} holds a model already; choose another folder, or replace it with --overwrite")


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` that takes its name if all goes well, and is gone if not."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise CheckpointError(
            f"cannot write to {folder.parent} ({error.strerror}); choose a folder on a disk that can be written"
        ) from error
    try:
        yield draft
        draft.chmod(0o755)
        old = draft.with_name(f"{draft.name}-old")
        if folder.exists():
            os.replace(folder, old)
        os.replace(draft, folder)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _assembled(stack: Stack, plan: Plan) -> PreTrainedModel:
    """The model of the plan, sharing every weight that it can share."""
    model = stack.model
    assert isinstance(model, PreTrainedModel)
    settings = configuration_in_order(model, stack.path, plan.order(), stack.depth).to_dict()
    try:
        config = type(model.config).from_dict({key: settings[key] for key in settings.keys() - STAGES})
        config._attn_implementation = model.config._attn_implementation
        with torch.device("meta"):
            made = type(model)(config)
        made.to(stack.dtype).load_state_dict(_weights(stack, plan), assign=True)
    except Exception as error:  # a model may refuse a configuration in any way
        raise UnsupportedModel(
            f"the configuration of {type(model).__name__} cannot say what {plan} does, so no checkpoint can hold it "
            f"({_reason(error)}); run the plan in place with stack.under"
        ) from error
    made.tie_weights()
    if model.can_generate():
        made.generation_config = model.generation_config
    return made.eval()


def _weights(stack: Stack, plan: Plan) -> dict[str, Tensor]:
    """The state dictionary of the model of the plan; a layer visited again is a copy."""
    prefix = f"{stack.path}."
    weights = {name: value for name, value in stack.model.state_dict().items() if not name.startswith(prefix)}
    seen: set[tuple[int, str | None]] = set()
    for slot, step in enumerate(plan.steps()):
        again = (step.layer, step.source) in seen
        seen.add((step.layer, step.source))
        for name, value in stack.block(step.layer, step.source).state_dict().items():
            weights[f"{prefix}{slot}.{name}"] = value.clone() if again else value
    return weights


def _proved(stack: Stack, plan: Plan, written: PreTrainedModel, draft: Path, inputs: Mapping[str, Tensor]) -> float:
    """How far the logits of the folder are from those of the plan, which is refused if it is not rounding.

    The folder is loaded as a user would load it, and must hold as many parameters as were written. Half precision
    rounds too much to decide: the logits are those of both models in float32.
    """
    try:
        agreement, parameters = _compared(stack, plan, written, draft, inputs)
    except LayerwiseError:
        raise
    except Exception as error:  # a model may fail in any way under a configuration that nobody had in mind
        raise UnsupportedModel(
            f"{type(written).__name__} was written, and does not run when it is loaded again ({_reason(error)}): its "
            f"configuration cannot say what {plan} does; run it in place with stack.under"
        ) from error
    if parameters != written.num_parameters() or not agreement.holds:
        raise UnsupportedModel(
            f"{type(written).__name__} was written and loaded again, and its logits and the plan's are {agreement}: "
            "its configuration cannot say what the plan does; run it in place with stack.under"
        )
    return agreement.gap


def _compared(
    stack: Stack, plan: Plan, written: PreTrainedModel, draft: Path, inputs: Mapping[str, Tensor]
) -> tuple[Agreement, int]:
    """How the logits of the folder agree with those of the plan, and how many parameters it holds."""
    loaded = _loaded(stack, plan, written, draft)
    copy = Stack(loaded, stack.path)

    def both(inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor, int]:
        captured = stack.capture(**inputs)
        expected = main_tensor(stack.finish(stack.run(plan, captured), captured.inputs))
        return main_tensor(loaded(**inputs)), expected, captured.state.shape[-1]

    with evaluating(stack.model), torch.inference_mode():
        actual, expected, width = in_float32(stack, inputs, both, copy)
    return compare(actual, expected, width, len(plan.steps())), loaded.num_parameters()


def _reason(error: Exception) -> str:
    lines = " ".join(line.strip() for line in str(error).strip().splitlines()[:2])
    return f"{type(error).__name__}: {lines}"


def _loaded(stack: Stack, plan: Plan, written: PreTrainedModel, draft: Path) -> PreTrainedModel:
    """The model of the folder, each tensor in the dtype in which the stack holds it.

    Some tensors are in no checkpoint (rotary frequencies), and are rounded only in a model that was rounded whole.
    """
    dtypes = _dtypes(stack, plan)
    loaded: PreTrainedModel = type(written).from_pretrained(
        draft,
        dtype=reduce(torch.promote_types, (dtypes[name] for name, _ in written.named_parameters())),
        use_safetensors=True,
        attn_implementation=written.config._attn_implementation,
    )
    for name, tensor in _stored_tensors(loaded):
        tensor.data = tensor.data.to(dtypes.get(name, tensor.dtype))
    return loaded.to(stack.device).eval()


def _dtypes(stack: Stack, plan: Plan) -> dict[str, torch.dtype]:
    """The dtype in which the stack holds every parameter and buffer of the model of the plan, by its name there."""
    prefix = f"{stack.path}."
    dtypes = {name: tensor.dtype for name, tensor in _stored_tensors(stack.model) if not name.startswith(prefix)}
    for slot, step in enumerate(plan.steps()):
        block = stack.block(step.layer, step.source)
        dtypes.update({f"{prefix}{slot}.{name}": tensor.dtype for name, tensor in _stored_tensors(block)})
    return dtypes


def _stored_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return chain(module.named_parameters(), module.named_buffers())


def _origin(stack: Stack, plan: Plan, parameters: int, gap: float) -> Origin:
    host = next(iter(stack.sources.values()), stack)
    models = {"shell": host} | {name: stack.sources[name] for name in sorted(plan.sources())}
    hashes: dict[int, str] = {}
    for each in models.values():
        hashes.setdefault(id(each.model), weight_hash(each.model))
    return Origin(
        str(plan),
        {name: each.source.name for name, each in models.items()},
        {name: hashes[id(each.model)] for name, each in models.items()},
        parameters,
        gap,
    )


def _bring_along(stack: Stack, draft: Path) -> None:
    """What belongs to a model beside its weights: its tokenizer, and how images become tensors."""
    if stack.tokenizer is not None:
        stack.tokenizer.save_pretrained(draft)
    host = next(iter(stack.sources.values()), stack)
    if isinstance(host.model, PreTrainedModel):
        location = host.model.config._name_or_path or host.source.name
        for name in PREPROCESSING:
            cached = cached_file(
                location, name, local_files_only=True, _raise_exceptions_for_missing_entries=False,
                _raise_exceptions_for_connection_errors=False, _raise_exceptions_for_gated_repo=False,
            )  # fmt: skip
            if cached is not None:
                shutil.copyfile(cached, draft / name)
