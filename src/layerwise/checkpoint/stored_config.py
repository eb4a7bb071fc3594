"""Change the configuration of a stored checkpoint to the layer order of a plan, with its class in transformers."""

from __future__ import annotations

import copy
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from layerwise.bounded import describe_error
from layerwise.checkpoint.layer_names import UnresolvedNamesError, stack_prefix
from layerwise.plan.config_order import (
    COUNTS,
    PER_LAYER_WIDTH,
    computed_per_layer,
    in_visit_order,
    is_count,
    output_in_order,
)

# Settings that backbones derive from their number of layers.
STAGES = frozenset({"stage_names", "out_features", "out_indices"})

# Settings that code the kind of a layer by its number.
INDEX_CODED = re.compile(
    r"dense_(replace|layers)|sparse_step|only_layers|layer_(freq|start|end|indices|ids|idxs|step|interval)|moe_layers"
    r"|_(interval|period|offset|idxs|indices)$|every_n|_layers?_(freq|indices)|window_layers|window_pattern"
    r"|shared_layers|rescale_every|inverse_layer"
)

PREDICTING = re.compile(r"nextn|(^|[._])mtp([._]|$)")
"""Matches names of tensors and settings for multi-token prediction."""

# Words in tensor names for parts with separate configurations.
_PARTS = {
    "text_config": ("text", "language"),
    "vision_config": ("vision", "visual", "image"),
    "audio_config": ("audio", "speech"),
}


@dataclass(frozen=True, slots=True)
class VisitConfig:
    """The prefix and depth of the stored layers, and the `text` of `config.json` under the plan.

    `index_coded` lists settings that may define the kind of a layer by its number. `listed` is true if a setting lists
    one value per layer.
    """

    prefix: str
    depth: int
    text: str
    index_coded: tuple[str, ...]
    listed: bool


def visit_config(
    settings: Mapping[str, Any], groups: Mapping[str, int], order: Sequence[int], path: str | None
) -> VisitConfig:
    """Find the layers among the `groups` of tensor names, and return the configuration with the layers in `order`.

    If `order` has a layer that does not exist, the order of layers is unchanged, since the plan is rejected later.
    Raises `UnresolvedNamesError` if transformers has no configuration class for the model, or if several groups could
    be the layers.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = settings.get("model_type")
    if kind not in CONFIG_MAPPING or "AutoConfig" in (settings.get("auto_map") or {}):
        raise UnresolvedNamesError(f"transformers has no configuration class for models of type {kind}")
    try:
        config = CONFIG_MAPPING[kind].from_dict(dict(settings))
        configs = list(_configs(config))
        depths = sorted({value for each in configs for value in _counts(each).values()})
        behind = max([1, *(int(value) for each in configs for _, value in _predicting_settings(each))])
        prefix, depth = stack_prefix(groups, depths, path, behind)
        owner = _owner(config, prefix, depth)
        if max(order) >= depth:
            order = range(depth)
        if getattr(owner, PER_LAYER_WIDTH, None):
            raise UnresolvedNamesError(
                "tensors outside its layers have one entry per layer, which must follow the plan"
            )
        coded = tuple(name for name, value in vars(owner).items() if value and INDEX_CODED.search(name))
        reordered = _reorder(owner, prefix, order, depth)
        coded += tuple(name for name in _lists_of_length(owner, depth) if name not in reordered)
        made = rebuild_config(config, type(config), order, depth)
        if not predicts_further(groups, prefix, order, depth):
            drop_predicting_layers(made)
        (again,) = (each for each, old in zip(_configs(made), configs, strict=True) if old is owner)
    except UnresolvedNamesError:
        raise
    except Exception as error:  # a configuration class may fail in any way on untested values
        raise UnresolvedNamesError(describe_error(error)) from error
    coded += tuple(name for name, value in reordered.items() if getattr(again, name) != value)
    listed = any(isinstance(value, list | tuple) for value in reordered.values())
    return VisitConfig(prefix, depth, config_text(made), coded, listed)


def rebuild_config(config: Any, kind: Any, order: Sequence[int], depth: int) -> Any:
    """Rebuild `config`, whose layers are already in `order`, as class `kind`, as if it were read from a file.

    A backbone still returns the outputs of the same layers; for a layer that runs several times, the last output.
    """
    settings = config.to_dict()
    kept = {key: settings[key] for key in settings.keys() - STAGES}
    outputs, stages = settings.get("out_indices") or (), settings.get("stage_names") or ()
    if len(stages) == depth + 1:
        indices = {output_in_order(order, range(depth + 1)[index]) for index in outputs} - {None}
        if indices - {len(order)}:
            kept["out_indices"] = sorted(indices)
    return kind.from_dict(kept)


def config_text(config: Any) -> str:
    config = copy.deepcopy(config)
    vars(config).pop("transformers_weights", None)
    if hasattr(config, "validate"):
        config.validate()
    text: str = config.to_json_string(use_diff=True)
    return text


def _configs(config: Any) -> Iterator[Any]:
    yield config
    for value in vars(config).values():
        if hasattr(value, "to_diff_dict"):
            yield from _configs(value)


def _owner(config: Any, prefix: str, depth: int) -> Any:
    counting = [each for each in _configs(config) if any(is_count(*i, prefix, depth) for i in _counts(each).items())]
    parts = {id(value): name for each in _configs(config) for name, value in vars(each).items() if value is not each}
    words = {part: re.search("|".join(_PARTS[part]), prefix) for part in _PARTS}
    named = [each for each in counting if words.get(parts.get(id(each), ""))]
    owners = (
        counting if len(counting) == 1 else named or [each for each in counting if each is config.get_text_config()]
    )
    if len(owners) != 1:
        raise UnresolvedNamesError(f"{len(counting)} parts of the configuration have {depth} layers, instead of one")
    return owners[0]


def predicts_further(groups: Mapping[str, int], prefix: str, order: Sequence[int], depth: int) -> bool:
    return any(PREDICTING.search(each) for each in groups) or (
        groups.get(prefix, 0) > depth and list(order) == list(range(depth))
    )


def drop_predicting_layers(config: Any) -> None:
    for each in _configs(config):
        vars(each).update({name: type(value)() for name, value in _predicting_settings(each)})


def _predicting_settings(config: Any) -> list[tuple[str, int]]:
    return [(n, v) for n, v in vars(config).items() if PREDICTING.search(n) and type(v) in (int, bool) and v]


def _lists_of_length(config: Any, depth: int) -> Iterator[str]:
    return (name for name, value in vars(config).items() if isinstance(value, list | tuple) and len(value) == depth)


def _counts(config: Any) -> dict[str, int]:
    names = [name for name in COUNTS if name in vars(config) or isinstance(getattr(type(config), name, None), property)]
    return {name: value for name in names if type(value := getattr(config, name, None)) is int}


def _reorder(config: Any, prefix: str, order: Sequence[int], depth: int) -> dict[str, Any]:
    own = in_visit_order(vars(config), prefix, order, depth)
    computed = {name: getattr(config, name, None) for name in computed_per_layer(cast(Hashable, type(config)))}
    vars(config).update(own)
    return {**in_visit_order(computed, prefix, order, depth), **own}
