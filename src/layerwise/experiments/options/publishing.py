"""Options of a training whose finished models go to the Hugging Face hub."""

from __future__ import annotations

from dataclasses import dataclass

from layerwise.experiments.option import option


@dataclass(frozen=True, kw_only=True)
class PublishingOptions:
    """The repository that finished models are uploaded to."""

    push: str | None = option(
        None, metavar="ORG/NAME", rare=True,
    )  # fmt: skip
    private: bool = option(False, "Make that a private repository.", rare=True, needs="push")

    def check_repository(self) -> None:
        """Raise `CheckpointError` for a name that no repository can have."""
        if self.push is not None:
            from layerwise.checkpoint.push import check_repository

            check_repository(self.push)
