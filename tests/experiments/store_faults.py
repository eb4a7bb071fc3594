"""A process that is killed at a write of its store: the fault that every experiment goes on after."""

from __future__ import annotations

from typing import Any

import pytest

from layerwise.results import Store


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL; what a transaction had not ended is undone."""


class Writes:
    """Kills the process that makes the write after `left` more; `None` lets all of them pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        for name in ("add_losses", "add_plans", "replace_scores", "replace_notes"):
            monkeypatch.setattr(Store, name, self._killing(getattr(Store, name)))

    def _killing(self, write: Any) -> Any:
        def killed(store: Store, *arguments: Any) -> None:
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise Killed
            write(store, *arguments)

        return killed
