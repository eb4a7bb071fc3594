"""Batches of windows, stratified splits, and Parquet and YAML read within bounds."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from layerwise.bounded import MAX_UNPACK_RATIO, UnreadableError
from layerwise.data import records
from layerwise.data.batches import IGNORED, Batch, make_batches, pad_rows, regroup_batches
from layerwise.data.plain_yaml import DEPTH, SIZE, parse_yaml
from layerwise.data.records import read_parquet_rows
from layerwise.data.splits import Examples, Splits, digest, split_stratified
from layerwise.data.text import tokens
from layerwise.data.text.tokens import MASKED_SHARE, Window
from layerwise.errors import DataError

PAD, MASK = 0, 99


def window(number: int, length: int, scored_from: int = 1) -> Window:
    ids = tuple(random.Random(number).choices(range(1, 90), k=length))
    return Window(f"d{number}", "text", 0, ids, scored_from, length)


lengths = st.lists(st.integers(2, 30), min_size=1, max_size=25)


@given(lengths, st.integers(1, 100))
@settings(deadline=None)
def test_every_window_is_in_one_bounded_batch(lengths: list[int], bound: int) -> None:
    windows = [window(number, length) for number, length in enumerate(lengths)]
    made = make_batches(windows, bound, PAD)
    placed = [each for batch in made for each in batch.windows]
    assert sorted(placed, key=lambda each: each.document) == sorted(windows, key=lambda each: each.document)
    assert all(batch.input_ids.numel() <= bound or len(batch.windows) == 1 for batch in made)
    longest = [batch.input_ids.shape[1] for batch in made]
    assert longest == sorted(longest, reverse=True)
    for batch in made:
        for row, each in enumerate(batch.windows):
            assert batch.input_ids[row, : len(each.ids)].tolist() == list(each.ids)
            assert (batch.input_ids[row, len(each.ids) :] == PAD).all()
            assert batch.attention_mask[row].sum() == len(each.ids)
            assert batch.attention_mask[row, : len(each.ids)].all()


@given(lengths, st.data())
@settings(deadline=None)
def test_next_token_targets_are_at_their_prediction(lengths: list[int], data: st.DataObject) -> None:
    windows = [window(number, length, data.draw(st.integers(1, length - 1))) for number, length in enumerate(lengths)]
    for batch in make_batches(windows, 64, PAD):
        for row, each in enumerate(batch.windows):
            expected = [IGNORED] * batch.input_ids.shape[1]
            for position in range(each.scored_from, each.scored_until):
                expected[position - 1] = each.ids[position]
            assert batch.targets[row].tolist() == expected
        assert torch.equal(batch.scored, batch.targets != IGNORED)
        assert batch.scored.sum() == sum(each.scored for each in batch.windows)


def masked(windows: list[Window], bound: int = 64, seed: int = 0) -> tuple[Batch, ...]:
    return make_batches([tokens.mask_window(each, seed) for each in windows], bound, PAD, MASK)


@given(lengths)
@settings(deadline=None)
def test_masked_targets_are_on_the_masks(lengths: list[int]) -> None:
    for batch in masked([window(number, length) for number, length in enumerate(lengths)]):
        assert torch.equal(batch.scored, batch.input_ids == MASK)
        for row, each in enumerate(batch.windows):
            restored = torch.where(batch.scored[row], batch.targets[row], batch.input_ids[row])
            assert restored[: len(each.ids)].tolist() == list(each.ids)
            assert batch.scored[row].sum() == each.scored > 0
            assert not batch.scored[row, 0]


def test_about_15_percent_of_tokens_are_masked() -> None:
    (batch,) = masked([window(number, 201) for number in range(50)], bound=50 * 201)
    share = batch.scored.sum().item() / (50 * 200)
    assert abs(share - MASKED_SHARE) < 3 * (0.15 * 0.85 / 10_000) ** 0.5


def test_masks_are_independent_of_the_batch() -> None:
    windows = [window(number, 20) for number in range(6)]

    def masks(batches: tuple[Batch, ...]) -> dict[str, list[int]]:
        return {
            each.document: batch.targets[row].tolist() for batch in batches for row, each in enumerate(batch.windows)
        }

    assert masks(masked(windows)) == masks(masked(windows[::-1], bound=200))
    assert masks(masked(windows, seed=1)) != masks(masked(windows, seed=2))


def test_an_empty_batch_is_rejected() -> None:
    with pytest.raises(DataError, match="at least one window"):
        make_batches([], 10, PAD)
    with pytest.raises(DataError, match="at least 1"):
        make_batches([window(1, 4)], 0, PAD)
    with pytest.raises(DataError, match="requires a mask token"):
        make_batches([tokens.mask_window(window(1, 4), 0)], 10, PAD)


@given(st.integers(3, 30), st.integers(1, 8), st.booleans())
@settings(deadline=None)
def test_a_truncated_window_keeps_its_remaining_targets(length: int, scored: int, fills_in: bool) -> None:
    ids = (1, *window(0, length).ids, 2)
    whole = Window("d", "text", 0, ids, 1, 1 + length)
    whole = tokens.mask_window(whole, length) if fills_in else whole
    made = make_batches([whole, window(1, 4)] if not fills_in else [whole], 1000, PAD, MASK)
    beginning = whole.beginning(scored)
    (batch,) = regroup_batches(made, [whole], {whole: beginning})
    assert batch.windows == (beginning,)
    assert batch.scored.sum() == beginning.scored == min(scored, whole.scored)
    (before,) = [each for each in made if whole in each.windows]
    row = before.windows.index(whole)
    ends = beginning.scored_until - (0 if fills_in else 1)
    assert batch.targets[0, :ends].tolist() == before.targets[row, :ends].tolist()
    assert batch.input_ids[0, : beginning.scored_until].tolist() == (
        before.input_ids[row, : beginning.scored_until].tolist()
    )
    assert batch.input_ids[0, -1] == 2


SHARES = (0.6, 0.2, 0.2)
counts = st.lists(st.integers(3, 60), min_size=1, max_size=6)
seeds = st.integers(0, 5)


@given(counts, seeds)
def test_splits_are_disjoint_complete_and_stratified(sizes: list[int], seed: int) -> None:
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    parts = split_stratified(labels, SHARES, seed)
    assert sorted(index for part in parts for index in part) == list(range(len(labels)))
    assert parts == split_stratified(labels, SHARES, seed)
    for part, share in zip(parts, SHARES, strict=True):
        held = Counter(labels[index] for index in part)
        assert all(held[label] >= 1 and abs(held[label] - share * size) < 2 for label, size in enumerate(sizes))


def test_adding_a_class_keeps_other_splits() -> None:
    alone = split_stratified("a" * 30, SHARES, 0)
    together = split_stratified("a" * 30 + "b" * 30, SHARES, 0)
    assert alone == tuple(tuple(index for index in part if index < 30) for part in together)
    assert alone != split_stratified("a" * 30, SHARES, 1)


@pytest.mark.parametrize(("labels", "shares"), [("aaab", SHARES), ("aaaaaaaaaa", (0.0, 0.5, 0.5))])
def test_too_few_examples_to_split_are_rejected(labels: str, shares: tuple[float, ...]) -> None:
    with pytest.raises(DataError, match="must have at least 3 examples to be split into 3 sets"):
        split_stratified(labels, shares, 0)


def test_the_digest_covers_split_label_and_content() -> None:
    rows = [("train", "a", b"bc"), ("train", "ab", b"c"), ("test", "a", b"bc"), ("train", "a", b"bd")]
    assert len({digest([row]) for row in rows}) == len(rows)
    assert digest(rows) == digest(iter(rows)) != digest(reversed(rows))


def test_texts_are_padded_on_the_right() -> None:
    splits = Splits("text", "", Examples(), Examples(), Examples(), pad_id=9)
    short = {"input_ids": torch.tensor([5, 6]), "labels": torch.tensor([-100, 6])}
    long = {"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor([1, 2, 3])}
    wide = pad_rows([short, long], 9, multiple=4)
    assert {name: tensor[:, 3].tolist() for name, tensor in wide.items()} == {
        "input_ids": [9, 9],
        "labels": [-100, -100],
        "attention_mask": [0, 0],
    }
    batch = splits.collate([short, long])
    assert {name: tensor[:, :3].tolist() for name, tensor in wide.items()} == {
        name: tensor.tolist() for name, tensor in batch.items()
    }
    assert batch["input_ids"].tolist() == [[5, 6, 9], [1, 2, 3]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch["labels"].tolist() == [[-100, 6, -100], [1, 2, 3]]


LONG = "a" * 2**12
REPEATED = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 512, pyarrow.int32()), [LONG])
WRITTEN: dict[str, tuple[Any, dict[str, Any]]] = {
    "a dictionary": (REPEATED, {}),
    "packed": ([LONG] * 512, {"use_dictionary": False, "compression": "zstd"}),
    "prefixes": ([LONG] * 512, {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}),
    "rows of one letter": (["a"] * 20_000, {}),
}


def rows(file: Path, columns: list[str] | None = None) -> list[dict[str, Any]]:
    return [dict(row.columns) for row in read_parquet_rows(file, columns)]


@pytest.mark.parametrize(("values", "written"), WRITTEN.values(), ids=WRITTEN)
def test_a_decompression_bomb_is_rejected(
    values: Any, written: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_UNPACKED_SIZE", 2**20)
    file = tmp_path / "bomb.parquet"
    parquet.write_table(pyarrow.table({"text": values}), file, write_statistics=False, **written)
    assert MAX_UNPACK_RATIO * file.stat().st_size < 2**20
    with pytest.raises(DataError, match="decompresses to"):
        rows(file)


def test_columns_are_read_as_written(tmp_path: Path) -> None:
    texts = [f"text {number % 7}" for number in range(3_000)]
    table = pyarrow.table({"text": texts, "id": list(range(3_000)), "list": [[1]] * 3_000, "score": [0.5] * 3_000})
    parquet.write_table(table, tmp_path / "all.parquet", row_group_size=500)
    assert [row["text"] for row in rows(tmp_path / "all.parquet")] == texts
    assert rows(tmp_path / "all.parquet", ["text", "id", "list"])[1] == {"text": "text 1", "id": 1}


def test_plain_values_are_read() -> None:
    text = "a: [1, -2, 0x10, 1_000, 1:30]\nb: {c: 2.5, d: true, e: null}\nf: 2024-13-45\n'7': text"
    assert parse_yaml(text) == {
        "a": [1, -2, 16, 1000, 90],
        "b": {"c": 2.5, "d": True, "e": None},
        "f": "2024-13-45",
        "7": "text",
    }


def test_yaml_depth_and_size_are_bounded() -> None:
    assert parse_yaml("[" * (DEPTH - 1) + "1" + "]" * (DEPTH - 1)) is not None
    with pytest.raises(UnreadableError, match="nested more than 50 levels deep in line 1"):
        parse_yaml("[" * DEPTH + "1" + "]" * DEPTH)
    assert parse_yaml("a" * SIZE) == "a" * SIZE
    with pytest.raises(UnreadableError, match="at most 262 kB"):
        parse_yaml("a" * (SIZE + 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a 1\nb: *a", r"the alias \*a in line 2"),
        ("a: !!int 1", "the tag .*int in line 1"),
        ("a: 1\na: 2", "the key a twice, the second time in line 2"),
        ("- b\n- " + "9" * 5_000, "4,300 digits in line 2"),
        ("0b_", "has an invalid value"),
        ("[", "is not YAML"),
        ("{[a]: 1}", "is not YAML"),
    ],
)
def test_unsupported_yaml_is_rejected(text: str, message: str) -> None:
    with pytest.raises(UnreadableError, match=message):
        parse_yaml(text)
