"""The configuration in visit order has only the original's attributes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from layerwise.stack.executors.config_view import visit_order


class Settings:
    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


@pytest.mark.parametrize("kind", [Settings, SimpleNamespace])
def test_settings_are_read_where_the_configuration_has_them_and_nowhere_else(kind: Any) -> None:
    model: Any = nn.Module()
    model.layers = nn.ModuleList(nn.Identity() for _ in range(3))
    model.config = kind(num_hidden_layers=3, use_cache=True)
    with visit_order(model, "layers", (2, 0), 3, {"use_cache": False, "sliding_window": 7}):
        assert model.config.num_hidden_layers == 2
        assert model.config.use_cache is False
        assert not hasattr(model.config, "sliding_window")
        assert getattr(model.config, "sliding_window", None) is None
    assert vars(model.config) == {"num_hidden_layers": 3, "use_cache": True}
