"""Linear probes of surface and linguistic features in hidden states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.data.suites.probing import ProbedFeature, ProbedText
from layerwise.errors import MeasureError, UnsupportedModelError
from layerwise.measure.activations.padding import pad_ids
from layerwise.measure.stats.float64 import to_float64_cpu
from layerwise.measure.stats.statistics import Numbers, student_interval, wilson
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.vocabulary import ALL, PROBING, RANDOM_INIT, SHUFFLED
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating
from layerwise.stack.weights import make_random_init

FOLDS = 5
BATCH = 64
PENALTY = 0.1
"""Ridge penalty divided by the number of examples, which is the mean eigenvalue of standardized states."""

Labels = NDArray[np.bool_]
Groups = NDArray[np.intp]
States = Sequence[Sequence[Tensor]]
"""For each sentence, its hidden states before the first layer and after each layer, (tokens, hidden) each."""

SIDES = {"linguistic": 1.0, "surface": -1.0}


def _hit_row(metric: str, values: Numbers, groups: Groups, **columns: Any) -> Score:
    above, below = (np.bincount(groups, weights=each) for each in (values, np.ones_like(values)))
    estimate = student_interval(above, below)
    value, low, high = estimate.row()
    if metric == "accuracy":
        _, low, high = _share_interval(value, float(np.squeeze(estimate.error)), len(below))
    return Score(PROBING, metric, value, low, high, documents=len(below), tokens=len(values), **columns)


def _share_interval(share: float, error: float, groups: int) -> tuple[float, float, float]:
    # Wilson's interval of the number of units that would have this error.
    units = share * (1 - share) / error**2 if error > 0 else float(groups)
    return wilson(share * units, units).row()


def probing(
    stack: Stack, text: ProbedText, *, seed: int = 0, progress: Callable[[float], None] | None = None
) -> list[Score]:
    """Cross-validate linear probes of surface and linguistic features on every hidden state.

    The probes are ridge regressions on standardized states: the state of a word's last token, or the mean over a
    sentence. They are evaluated in five folds over groups, which are the forms of a word or a sentence.

        accuracy          with Wilson's interval over groups; baselines are labels `shuffled` by group (Hewitt and Liang
                          2019) and a randomly initialized model
        accuracy_above    accuracy minus that of the randomly initialized model, paired
        difference        mean `accuracy_above` of linguistic features minus that of surface features

    Raises:
        MeasureError: If the tokenizer does not return the offsets of tokens.
    """
    models: dict[str | None, Stack] = {None: stack}
    with suppress(UnsupportedModelError):
        models[RANDOM_INIT] = make_random_init(stack, seed)
    encoded = _encode(stack, text)
    ends = [
        _last_tokens(words, offsets) for words, offsets in zip(text.sentences, encoded["offset_mapping"], strict=True)
    ]
    states = {name: _run_sentences(each, encoded["input_ids"]) for name, each in models.items()}
    rows: list[Score] = []
    total = len(text.features) * (stack.depth + 1)
    for number, feature in enumerate(text.features):
        labels = np.array([unit.label for unit in feature.units])
        names, groups = np.unique([unit.group for unit in feature.units], return_inverse=True)
        order = Random(f"{seed}/folds/{feature.name}").sample(range(len(names)), len(names))
        folds = np.argsort(order)[groups] % FOLDS
        shuffled = _shuffled(labels, groups, Random(f"{seed}/shuffled/{feature.name}"))
        for layer in range(stack.depth + 1):
            columns: dict[str, Any] = {"state": layer, "task": feature.name, "kind": feature.side}
            features = _read_units(states[None], ends, layer, feature)
            trained = _probe(features, labels, folds)
            rows.append(_hit_row("accuracy", trained, groups, **columns))
            control = _probe(features, shuffled, folds)
            rows.append(_hit_row("accuracy", control, groups, **columns, against=SHUFFLED))
            if RANDOM_INIT in states:
                untrained = _probe(_read_units(states[RANDOM_INIT], ends, layer, feature), labels, folds)
                rows.append(_hit_row("accuracy", untrained, groups, **columns, against=RANDOM_INIT))
                rows.append(_hit_row("accuracy_above", trained - untrained, groups, **columns, against=RANDOM_INIT))
            if progress is not None:
                progress((number * (stack.depth + 1) + layer + 1) / total)
    return [*rows, *_differences(rows)]


def _encode(stack: Stack, text: ProbedText) -> Any:
    tokenizer = stack.tokenizer
    if tokenizer is None or not tokenizer.is_fast:
        raise MeasureError(
            f"Probing needs the offsets of tokens, which the tokenizer of {stack.source.name} does not return. "
            "Pass a fast tokenizer with --tokenizer."
        )
    sentences = [f"{' '.join(words)}." for words in text.sentences]
    return tokenizer(sentences, return_offsets_mapping=True, verbose=False)


def _run_sentences(stack: Stack, sentences: Sequence[Sequence[int]]) -> States:
    states: list[list[Tensor]] = []
    with evaluating(stack.model), torch.inference_mode():
        for start in range(0, len(sentences), BATCH):
            ids = sentences[start : start + BATCH]
            captured = stack.capture(**pad_ids(ids, stack.device))
            batch = [to_float64_cpu(each) for each in stack.states(Plan.identity(stack.depth), captured)]
            states += [[state[row, : len(each)] for state in batch] for row, each in enumerate(ids)]
    return states


def _read_units(states: States, ends: Sequence[Sequence[int]], layer: int, feature: ProbedFeature) -> Numbers:
    rows = []
    for unit in feature.units:
        state = states[unit.sentence][layer]
        rows.append(state.mean(dim=0) if unit.word is None else state[ends[unit.sentence][unit.word]])
    read: Numbers = torch.stack(rows).numpy()
    return read


def _last_tokens(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[int]:
    """Return the index of the last token of each word in a text whose words are separated by one space.

    >>> _last_tokens(["a", "file"], [(0, 1), (1, 4), (4, 6), (6, 7)])
    [0, 2]
    """
    last, start = [], 0
    for word in words:
        end = start + len(word)
        last.append(max(token for token, (first, stop) in enumerate(offsets) if first < end and stop > start))
        start = end + 1
    return last


def _probe(states: Numbers, labels: Labels, folds: Groups) -> Numbers:
    from sklearn.linear_model import RidgeClassifier
    from sklearn.preprocessing import StandardScaler

    right = np.zeros(len(labels))
    for fold in range(FOLDS):
        fitted, held_out = folds != fold, folds == fold
        scaler = StandardScaler().fit(states[fitted])
        probe = RidgeClassifier(alpha=PENALTY * int(fitted.sum()))
        probe.fit(scaler.transform(states[fitted]), labels[fitted])
        right[held_out] = probe.predict(scaler.transform(states[held_out])) == labels[held_out]
    return right


def _shuffled(labels: Labels, groups: Groups, chance: Random) -> Labels:
    members = [np.flatnonzero(groups == group) for group in range(int(groups.max()) + 1)]
    result = labels.copy()
    if all(len(set(labels[group].tolist())) == 1 for group in members):
        by_group = [bool(labels[group[0]]) for group in members]
        chance.shuffle(by_group)
        for group, label in zip(members, by_group, strict=True):
            result[group] = label
        return result
    pool = labels.tolist()
    chance.shuffle(pool)
    return np.array(pool)


def _differences(rows: Sequence[Score]) -> Iterator[Score]:
    above: dict[int, list[Score]] = {}
    for row in rows:
        if row.metric == "accuracy_above" and row.state is not None:
            above.setdefault(row.state, []).append(row)
    for state, of_state in above.items():
        counts = {side: sum(row.kind == side for row in of_state) for side in SIDES}
        shares: Mapping[str, float] = {side: sign / counts[side] for side, sign in SIDES.items()}
        value = sum(shares[str(row.kind)] * row.value for row in of_state)
        reach = sum((shares[str(row.kind)] * ((row.high or 0.0) - row.value)) ** 2 for row in of_state) ** 0.5
        yield Score(PROBING, "difference", value, value - reach, value + reach, state=state, task=ALL)
