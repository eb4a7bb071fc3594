"""The configuration of a checkpoint in visit order, by its `config.json` and the class that transformers has for it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from layerwise.bounded import reason_of
from layerwise.checkpoint.layer_names import UnresolvedNames, stack_prefix
from layerwise.plan.config_order import COUNTS, WIDTH_OF_A_LAYER, computed_per_layer, in_visit_order, is_count

# What configurations of backbones derive from the number of their layers, and would contradict with another number.
STAGES = frozenset({"stage_names", "out_features", "out_indices"})

# Settings that say by the number of a layer of which kind it is, so that another order needs other values.
INDEX_CODED = re.compile(
    r"dense_(replace|layers)|sparse_step|only_layers|layer_(freq|start|end|indices|ids|idxs|step|interval)|moe_layers"
    r"|_(interval|period|offset|idxs|indices)$|every_n|_layers?_(freq|indices)|window_layers|window_pattern"
    r"|shared_layers|rescale_every|inverse_layer"
)


@dataclass(frozen=True, slots=True)
class VisitConfig:
    """A stored stack (prefix, depth) and its `config.json` for the visits.

    `index_coded`: settings that may give a layer's kind by number. `listed`: the configuration lists the kinds.
    """

    prefix: str
    depth: int
    text: str
    index_coded: tuple[str, ...]
    listed: bool

    @property
    def quantisation(self) -> Any | None:
        """How the tensors of the new model are quantised, by its configuration."""
        return json.loads(self.text).get("quantization_config")


def visit_config(
    settings: Mapping[str, Any], groups: Mapping[str, int], order: Sequence[int], path: str | None
) -> VisitConfig:
    """The configuration `settings` of a model whose stack is one of `groups`, for the visits `order` of its layers.

    Where `order` names a layer that there is not, the text stays that of the model: whoever knows the plan refuses it.
    Raises `UnresolvedNames` where transformers has no class for it, and where it does not say which stack is meant.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = settings.get("model_type")
    if kind not in CONFIG_MAPPING or "AutoConfig" in (settings.get("auto_map") or {}):
        raise UnresolvedNames(f"transformers has no configuration of its own for models of type {kind}")
    try:
        config = CONFIG_MAPPING[kind].from_dict(dict(settings))
        configs = list(_configs(config))
        depths = sorted({value for each in configs for value in _counts(each).values()})
        prefix, depth = stack_prefix(groups, depths, path)
        owners = [each for each in configs if any(is_count(*item, prefix, depth) for item in _counts(each).items())]
        if len(owners) != 1:
            raise UnresolvedNames(f"{len(owners)} parts of the configuration count {depth} layers")
        if max(order) >= depth:
            order = range(depth)
        if getattr(owners[0], WIDTH_OF_A_LAYER, None):
            raise UnresolvedNames("tensors around its layers hold something of each of them, which follows the plan")
        coded = tuple(name for name, value in vars(owners[0]).items() if value and INDEX_CODED.search(name))
        wanted = _reorder(owners[0], prefix, order, depth)
        coded += tuple(name for name in _as_long(owners[0], depth) if name not in wanted)
        made = remade(config, type(config))
        if isinstance(settings.get("quantization_config"), dict):
            made.quantization_config = _renumbered(settings["quantization_config"], prefix, order, depth)
        (again,) = (each for each, old in zip(_configs(made), configs, strict=True) if old is owners[0])
    except UnresolvedNames:
        raise
    except Exception as error:  # a class of configurations may fail in any way on values that nobody had in mind
        raise UnresolvedNames(reason_of(error)) from error
    coded += tuple(name for name, value in wanted.items() if getattr(again, name) != value)
    listed = any(isinstance(value, list | tuple) for value in wanted.values())
    return VisitConfig(prefix, depth, config_text(made), coded, listed)


def remade(config: Any, kind: Any) -> Any:
    """The configuration, of class `kind`, made anew of its values, as it is when it is read from a file."""
    settings = config.to_dict()
    return kind.from_dict({key: settings[key] for key in settings.keys() - STAGES})


def config_text(config: Any) -> str:
    """What `save_pretrained` writes of a configuration."""
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


def _as_long(config: Any, depth: int) -> Iterator[str]:
    return (name for name, value in vars(config).items() if isinstance(value, list | tuple) and len(value) == depth)


def _counts(config: Any) -> dict[str, int]:
    names = [name for name in COUNTS if name in vars(config) or isinstance(getattr(type(config), name, None), property)]
    return {name: value for name in names if type(value := getattr(config, name, None)) is int}


def _reorder(config: Any, prefix: str, order: Sequence[int], depth: int) -> dict[str, Any]:
    own = in_visit_order(vars(config), prefix, order, depth)
    computed = {name: getattr(config, name, None) for name in computed_per_layer(cast(Hashable, type(config)))}
    wanted = {**in_visit_order(computed, prefix, order, depth), **own}
    vars(config).update(own)
    return wanted


def _renumbered(value: Any, prefix: str, order: Sequence[int], depth: int) -> Any:
    if isinstance(value, dict):
        if any(_layer_in(key, prefix) is not None for key in value):
            raise UnresolvedNames("its quantisation says layer by layer how, which cannot be told for another order")
        return {key: _renumbered(each, prefix, order, depth) for key, each in value.items()}
    if not isinstance(value, list):
        return value
    slots: list[Any] = []
    for each in value:
        layer = _layer_in(each, prefix)
        if layer is None:
            slots.append(_renumbered(each, prefix, order, depth))
        elif int(layer[2]) < depth:
            slots += [f"{layer[1]}{slot}{layer[3]}" for slot, visited in enumerate(order) if visited == int(layer[2])]
    return slots


def _layer_in(text: Any, prefix: str) -> re.Match[str] | None:
    last = re.escape(prefix.rstrip(".").rpartition(".")[2])
    return re.fullmatch(rf"(.*(?:^|\.){last}\.)(\d+)((?:\..*)?)", text) if isinstance(text, str) else None
