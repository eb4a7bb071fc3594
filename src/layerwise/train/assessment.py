"""The assessment of trained models: every model surveyed once, every row of the robustness report made from that.

A survey is kept beside the model it is of (`survey-<key>.npz`, where the key stands for the data, the questions and how
the model is computed with), so an assessment that was stopped goes on with the next model, and one that is asked again
computes nothing. Models are opened one at a time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader

from layerwise.data.splits import Splits
from layerwise.measure import robustness as rows
from layerwise.measure.contrasts.contrast import MEASURE as CONTRAST
from layerwise.measure.contrasts.contrast import renewed
from layerwise.measure.contrasts.positions import CLAIMS as OF_POSITIONS
from layerwise.measure.contrasts.positions import positions
from layerwise.measure.contrasts.shuffled import CLAIMS, NULLS, shuffled
from layerwise.measure.place_probe import STREAM, probed
from layerwise.measure.places import NO_UMAP, branch_norms, embedding, umap_installed
from layerwise.measure.seeds import over_seeds
from layerwise.measure.statistics import Numbers, wilson
from layerwise.measure.survey import Condition, Questions, Survey, survey
from layerwise.plan.samplers import Draws, Shuffle
from layerwise.results import Run
from layerwise.results.pedigree import RETRAINED, Pedigree, refined_at
from layerwise.results.rows import Note, Score
from layerwise.stack.inputs import evaluating
from layerwise.train.trained import Trained, open_trained


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model to assess: its arm and seed, and the folder it is opened from and its survey is kept in."""

    arm: str
    seed: int
    folder: Path
    keep: Path

    @property
    def label(self) -> str:
        """As a score's subject has it."""
        return f"{self.arm}/{self.seed}"


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who is told: `say` receives sentences, `progress` the model in work and how far its survey is."""

    say: Callable[[str], None]
    progress: Callable[[str, int, int], None]


def assess(
    candidates: Sequence[Candidate],
    splits: Splits,
    questions: Questions,
    run: Run,
    watcher: Watcher,
    *,
    open_model: Callable[[Path], Trained] = open_trained,
    how: str = "",
) -> bool:
    """Survey every candidate on the test split and store the rows of a robustness run; see `layerwise.measure.survey`.

    `how` says how the models are opened and computed with; surveys that were made otherwise are not these. Returns
    whether any model was surveyed that had not been. Models refined at a reduced depth (arms `retrained-6`)
    are asked only what they were refined for, and are one arm.
    """
    surveys: dict[str, dict[int, Survey]] = {}
    inside: dict[str, Candidate] = {}
    placed: list[Score] = []
    anew = False
    for candidate in candidates:
        found, made = _surveyed(candidate, _key(splits, questions, how), splits, questions, watcher, open_model)
        anew = anew or made
        arm = candidate.arm if refined_at(candidate.arm) is None else RETRAINED
        seen = surveys.setdefault(arm, {})
        seen[candidate.seed] = _united(seen.get(candidate.seed), found)
        if arm != RETRAINED:
            inside.setdefault(arm, candidate)
        placed += _position_rows(candidate.label, found.positions)
    _store(run, surveys, splits, questions)
    run.store.replace_scores("position", placed + _means(placed))
    if questions.layers and (anew or _can_look_further(run, inside)):
        models = ((arm, open_model(candidate.folder)) for arm, candidate in inside.items())
        _look_inside(run, models, splits, questions, watcher)
    return anew


def _can_look_further(run: Run, arms: Iterable[str]) -> bool:
    """Whether an arm was not looked into, or UMAP was missing and is there now."""
    seen = {row.task for row in run.store.scores("branches")}
    return seen != set(arms) or (NO_UMAP in run.store.notes("embedding") and umap_installed())


def discard_surveys(candidates: Iterable[Candidate]) -> None:
    """Forget what is kept of `candidates`, so that they are asked anew."""
    for candidate in candidates:
        for path in candidate.keep.glob("survey-*.npz"):
            path.unlink()


def training_rows(pedigrees: Mapping[str, Pedigree]) -> list[Score]:
    """Rows of measure `training`: the losses that were noted, and what each training took, by `arm/seed`."""
    found = []
    for label, pedigree in pedigrees.items():
        taken = {
            "steps": pedigree.steps,
            "epochs": pedigree.epochs,
            "seconds": pedigree.seconds,
            "best_step": pedigree.best_step,
            "examples": pedigree.examples,
            **pedigree.figures,
        }
        found += [Score("training", label, "all", name, float(value)) for name, value in taken.items()]
        noted = {(moment.step, moment.kind): moment.loss for moment in pedigree.history}
        found += [
            Score("training", label, f"step {step}", f"{kind}_loss", loss) for (step, kind), loss in noted.items()
        ]
    return found


def _key(splits: Splits, questions: Questions, how: str) -> str:
    content = json.dumps([splits.digest, asdict(questions), how], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:8]


def _surveyed(
    candidate: Candidate,
    key: str,
    splits: Splits,
    questions: Questions,
    watcher: Watcher,
    open_model: Callable[[Path], Trained],
) -> tuple[Survey, bool]:
    """The survey kept beside the candidate's model, and whether it was made only now."""
    path = candidate.keep / f"survey-{key}.npz"
    if path.is_file():
        return Survey.read(path), False
    model = open_model(candidate.folder)
    found = _survey(model, candidate, splits, questions, watcher)
    found = replace(
        found, positions=_positions(model, splits, questions), probed=_probed(model, candidate, splits, questions)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    found.save(path)
    return found, True


def _survey(model: Trained, candidate: Candidate, splits: Splits, questions: Questions, watcher: Watcher) -> Survey:
    only = None
    count = refined_at(candidate.arm)
    if count is not None:
        only = [Condition(count, "even", True)] + ([Condition(count, "even", False)] if count > 1 else [])
    return survey(
        model.stack,
        splits.test,
        splits.collate,
        questions,
        only=only,
        tell=lambda done, total: watcher.progress(candidate.label, done, total),
    )


def _united(first: Survey | None, second: Survey) -> Survey:
    """Two surveys of one arm and seed: those of models refined at several depths are one."""
    if first is None:
        return second
    return Survey(
        second.depth, {**first.outcomes, **second.outcomes}, first.orders, {**first.identical, **second.identical}
    )


def _store(run: Run, surveys: Mapping[str, Mapping[int, Survey]], splits: Splits, questions: Questions) -> None:
    text = not splits.classes
    chance = 0.0 if text else splits.chance
    run.store.replace_scores(
        rows.MEASURE,
        rows.robustness(surveys, chance=chance, classes=len(splits.classes), leads="nll" if text else "accuracy"),
    )
    run.store.replace_scores("orders", rows.orders(surveys))
    run.store.replace_scores("identity", rows.identity(surveys))
    whole = {arm: found for arm, found in surveys.items() if arm != RETRAINED}
    run.store.replace_scores("contribution", rows.contribution(whole))
    decisive = list(positions(whole))
    if not text:  # what is published is accuracy of classification
        decisive += shuffled(whole, chance=chance, batch=questions.batch(len(splits.test)))
    stored = run.store.scores(CONTRAST)
    run.store.replace_scores(CONTRAST, renewed(stored, decisive, (*CLAIMS, *OF_POSITIONS)))


def _positions(model: Trained, splits: Splits, questions: Questions) -> dict[int, Numbers]:
    """How often a layer's output tells its position, over fresh random orders: by position, as in `Survey`."""
    if model.prediction is None:
        return {}
    stack, prediction = model.stack, model.prediction
    draws = Draws(Shuffle(), stack.depth, questions.seed, stream=STREAM)
    size = questions.batch(len(splits.test))
    found: dict[int, list[tuple[int, int]]] = {place: [] for place in range(stack.depth)}
    with evaluating(stack.model), torch.inference_mode():
        for number, batch in enumerate(DataLoader(splits.test, batch_size=size, collate_fn=splits.collate)):
            inputs = {name: tensor.to(stack.device) for name, tensor in batch.items() if name != "labels"}
            with stack.under(draws.at(number), single_pass=True):
                stack.model(**inputs)
            for place, hit in prediction.hits().items():
                found[place].append((int(hit.sum()), len(hit)))
    return {place: np.array(answers, dtype=np.float64).T for place, answers in found.items()}


def _probed(model: Trained, candidate: Candidate, splits: Splits, questions: Questions) -> dict[int, Numbers]:
    """The same of a probe, for arms that were trained in order; of the others it is not asked."""
    if candidate.arm not in NULLS or not questions.layers:
        return {}
    return probed(model.stack, splits.validation, splits.test, splits.collate, questions)


def _position_rows(label: str, answers: Mapping[int, Numbers]) -> list[Score]:
    """Rows of measure `position` of one model; none of one that predicts nothing."""
    if not answers:
        return []
    counts = {place: (int(right.sum()), int(asked.sum())) for place, (right, asked) in answers.items()}
    found = [_proportion(label, str(place), right, asked) for place, (right, asked) in counts.items()]
    right, asked = (sum(of) for of in zip(*counts.values(), strict=True))
    return [*found, _proportion(label, "all", right, asked)]


def _proportion(subject: str, task: str, right: int, count: int) -> Score:
    share = wilson(right, count)
    low, high = float(share.low), float(share.high)
    return Score("position", subject, task, "accuracy", float(share.value), low, high, documents=count)


def _means(placed: Sequence[Score]) -> list[Score]:
    """The rows of arms: means over seeds, and what guessing would give."""
    found = []
    arms = dict.fromkeys(row.subject.rpartition("/")[0] for row in placed)
    for arm in arms:
        tasks = dict.fromkeys(row.task for row in placed)
        for task in tasks:
            own = [row for row in placed if row.task == task and row.subject.rpartition("/")[0] == arm]
            values = [row.value for row in own]
            low, high = over_seeds(values, "accuracy") if len(values) > 1 else (own[0].low, own[0].high)
            found.append(Score("position", arm, task, "accuracy", float(np.mean(values)), low, high))
            found.append(Score("position", arm, task, "accuracy@chance", 1 / (len(tasks) - 1)))
    return found


def _look_inside(
    run: Run, models: Iterable[tuple[str, Trained]], splits: Splits, questions: Questions, watcher: Watcher
) -> None:
    """Branch norms of one model of every arm, and where the outputs of its middle layer lie."""
    norms: list[Score] = []
    points: list[Score] = []
    notes: dict[str, list[Note]] = {"branches": [], "embedding": []}
    for arm, model in models:
        watcher.say(f"inside {arm}: branch norms by position, and UMAP of the middle layer")
        found, said = branch_norms(model.stack, arm, splits.test, splits.collate, seed=questions.seed)
        norms, notes["branches"] = norms + found, notes["branches"] + said
        found, said = embedding(model.stack, arm, splits.test, splits.collate, seed=questions.seed)
        points, notes["embedding"] = points + found, notes["embedding"] + said
    run.store.replace_scores("branches", norms)
    run.store.replace_scores("embedding", points)
    for measure, said in notes.items():
        run.store.replace_notes(measure, dict.fromkeys(note.text for note in said))
