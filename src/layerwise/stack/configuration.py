"""Read configurations of any type: those of transformers, dataclasses, mappings and namespaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any

from torch import nn

# Prefix of the model types that `layerwise.models` registers with transformers.
OWN_TYPES = "layerwise-"


def is_of_transformers(config: Any) -> bool:
    """Return whether `config` is a configuration of transformers, judging by its class."""
    return hasattr(type(config), "get_text_config")


def text_config_of(model: nn.Module) -> Any | None:
    """Return the part of a model's configuration that describes text.

    >>> own = nn.Identity()
    >>> own.config = {"vocab_size": 50}
    >>> text_config_of(own).vocab_size
    50
    """
    config: Any = getattr(model, "config", None)
    if config is None or is_of_transformers(config):
        return None if config is None else config.get_text_config()
    return SimpleNamespace(**settings_of(config))


def settings_of(config: Any) -> dict[str, Any]:
    if is_of_transformers(config):
        return dict(config.to_dict())
    if isinstance(config, Mapping):
        return {str(name): config[name] for name in config}
    if is_dataclass(config):
        return {each.name: getattr(config, each.name) for each in fields(config)}
    if isinstance(config, tuple):
        return dict(zip(getattr(config, "_fields", ()), config, strict=False))
    return dict(getattr(config, "__dict__", {}))


def setting(config: Any, name: str, default: Any = None) -> Any:
    if is_of_transformers(config):
        return getattr(config, name, default)
    return settings_of(config).get(name, default)
