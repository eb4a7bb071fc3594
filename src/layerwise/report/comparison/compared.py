"""The runs of a comparison: what their models are called, and which runs can stand side by side.

Sweeps are compared with sweeps and diagnoses with diagnoses: their rows answer the same questions. Texts, numbers of
tokens and choices of plans may differ; what differs is said, and what a run did not measure is listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from layerwise.errors import RunError
from layerwise.report.data import ReportData
from layerwise.report.evidence import Evidence
from layerwise.report.page.groups import GROUPS
from layerwise.report.page.wording import listed
from layerwise.results.identity import MEASURED, model_name
from layerwise.results.vocabulary import DIAGNOSED

KINDS = {"sweep": "layerwise sweep", "diagnosis": "layerwise diagnose"}
"""The kinds of run that can be compared, each with the command that makes it."""
FEWEST = 2


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One run: what its model is called here, the folder of the run, its rows, and the colour of the model."""

    name: str
    folder: str
    evidence: Evidence
    slot: int

    @property
    def manifest(self) -> Mapping[str, object]:
        """What was measured, on what."""
        return self.evidence.data.manifest

    @property
    def model(self) -> str:
        """What is one model: its weights; where a run did not note them, the model as it was named to the run."""
        return str(self.manifest.get("weight_hash") or self.manifest.get("model") or self.folder)

    @property
    def parameters(self) -> int | None:
        """The parameters of the model, where the run has counted them."""
        rows = (score.value for score in self.evidence.scores("run") if score.metric == "parameters")
        count = next(rows, None)
        return None if count is None else int(count)

    @property
    def measured(self) -> tuple[str, ...]:
        """The families of plans, or the parts, that the run has rows of."""
        present = set(self.evidence.rows.where(measure=DIAGNOSED).axis("measure"))
        return (*self.evidence.families, *(name for name in DIAGNOSED if name in present))


@dataclass(frozen=True, slots=True)
class Compared:
    """Runs of one kind, in the order given: build it with `Compared.of`."""

    kind: str
    runs: tuple[ComparedRun, ...]

    @classmethod
    def of(cls, folders: Sequence[tuple[str, ReportData]]) -> Compared:
        """The runs of some folders. Raises `RunError` where they cannot stand side by side, and says why."""
        if len(folders) < FEWEST:
            given = "no run was given" if not folders else f"only {folders[0][0]} was given"
            raise RunError(f"a comparison takes two runs or more, and {given}; write layerwise compare RUN RUN ...")
        _refuse_twice(folders)
        read = [(folder, Evidence.of(data)) for folder, data in folders]
        kind = _one_kind({folder: _kind(folder, evidence) for folder, evidence in read})
        names = _names([(folder, data) for folder, data in folders])
        runs = (
            ComparedRun(name, folder, evidence, slot)
            for slot, (name, (folder, evidence)) in enumerate(zip(names, read, strict=True))
        )
        return cls(kind, tuple(runs))

    @property
    def names(self) -> tuple[str, ...]:
        """What the models are called."""
        return tuple(run.name for run in self.runs)

    @property
    def plural(self) -> str:
        """What kind of runs these are, in the plural."""
        return "sweeps" if self.kind == "sweep" else "diagnoses"

    @property
    def level(self) -> float:
        """The significance level of every verdict."""
        return self.runs[0].evidence.data.level

    @property
    def slots(self) -> dict[str, int]:
        """The colour of each model."""
        return {run.name: run.slot for run in self.runs}

    def missing(self) -> dict[str, tuple[str, ...]]:
        """What some run has measured and others have not: the families or parts, each with the models without it."""
        every = dict.fromkeys(name for run in self.runs for name in run.measured)
        without = {name: tuple(run.name for run in self.runs if name not in run.measured) for name in every}
        return {name: models for name, models in without.items() if models}

    def differences(self) -> tuple[str, ...]:
        """What the runs do not have in common besides their models, a sentence each."""
        sentences = []
        if len({run.manifest.get("corpus_hash") or run.manifest.get("corpus") for run in self.runs}) > 1:
            sentences.append(
                "The models were not measured on the same text, so a difference between them may be one between texts."
            )
        if len({run.manifest.get("tokens") for run in self.runs}) > 1:
            sentences.append(
                "The numbers of tokens differ: tokenizers cut a text differently, and a loss per token is of the"
                " tokens of its own model; with more of them smaller effects are found."
            )
        models = Counter(run.model for run in self.runs)
        again = [run.name for run in self.runs if models[run.model] > 1]
        if again:
            sentences.append(
                f"{listed(again)} are runs of one model and count as one: a claim holds in it where each of its runs"
                " that measured it says so."
            )
        return tuple(sentences)


def _refuse_twice(folders: Sequence[tuple[str, ReportData]]) -> None:
    """Raise `RunError` for two folders that hold one run: its evidence would count twice."""
    seen: dict[tuple[str, ...], str] = {}
    for folder, data in folders:
        identity = tuple(str(data.manifest.get(name)) for name in MEASURED)
        known = seen.setdefault(identity, folder) if data.manifest.get("weight_hash") else folder
        if known != folder or sum(other == folder for other, _ in folders) > 1:
            both = f"{folder} is named twice" if known == folder else f"{known} and {folder} hold the same run"
            raise RunError(f"{both}, and what it shows would count twice; name each run once")


def _kind(folder: str, evidence: Evidence) -> str:
    """Whether a run is a sweep or a diagnosis. Raises `RunError` for one of another kind."""
    present = [group.name for group in GROUPS if group.present(evidence)]
    comparable = [name for name in present if name in KINDS]
    if not comparable or len(comparable) < len(present):
        other = listed([name for name in present if name not in KINDS]) or "no kind that has rows"
        raise RunError(
            f"{folder} is a run of another kind ({other}); layerwise compare takes the runs of"
            f" {' or of '.join(KINDS.values())}"
        )
    return comparable[-1]


def _one_kind(kinds: Mapping[str, str]) -> str:
    (first, kind), *others = kinds.items()
    for folder, other in others:
        if other != kind:
            raise RunError(
                f"{first} is a {kind} and {folder} is a {other}, and they measure different things; compare sweeps"
                " with sweeps and diagnoses with diagnoses"
            )
    return kind


def _names(folders: Sequence[tuple[str, ReportData]]) -> list[str]:
    """The name of each model; with the folder of its run where two models have one name."""
    names = [model_name(str(data.manifest.get("model") or "unnamed model")) for _, data in folders]
    shown = [
        name if names.count(name) == 1 else f"{name} ({PurePath(folder).name})"
        for name, (folder, _) in zip(names, folders, strict=True)
    ]
    return [
        name if shown.count(name) == 1 else f"{plain} ({folder})"
        for name, plain, (folder, _) in zip(shown, names, folders, strict=True)
    ]
