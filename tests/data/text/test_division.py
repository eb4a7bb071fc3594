"""Chunks lose no text, and held-out documents are as many as requested, without duplicates."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from data import babylm
from layerwise.data.splits import SPLITS
from layerwise.data.text.corpus import Corpus, read_corpus
from layerwise.data.text.division import LARGE, Division, divide_documents
from layerwise.data.text.documents import (
    MIN_CHUNKS,
    MIN_WORDS,
    WORDS,
    Document,
    format_excerpt,
    join_chunks,
    split_chunks,
)
from layerwise.errors import DataError


def texts(found: Division) -> dict[str, list[str]]:
    return {split: [each.text for each in found.parts[split]] for split in SPLITS}


def check_apart(found: Division) -> None:
    train, validation, test = (set(part) for part in texts(found).values())
    assert train
    assert validation
    assert test
    assert not train & validation | train & test | validation & test


def test_given_held_out_texts_are_used(tmp_path: Path) -> None:
    folders = babylm.write(tmp_path)
    train, validation, test = (read_corpus(folders[split]) for split in ("train", "dev", "test"))
    found = divide_documents(train, validation, test)
    check_apart(found)
    assert found.parts["train"] == train.documents
    assert texts(found)["validation"] == [each.text for each in validation.documents]
    assert texts(found)["test"] == [each.text for each in test.documents]
    assert found.notes == ()
    assert {each.part_of for part in ("validation", "test") for each in found.parts[part]} == {None}


def test_half_of_the_validation_text_is_reported(tmp_path: Path) -> None:
    folders = babylm.write(tmp_path)
    train, validation = read_corpus(folders["train"]), read_corpus(folders["dev"])
    found = divide_documents(train, validation)
    check_apart(found)
    assert found.parts["train"] == train.documents
    counts = [len(found.parts[split]) for split in ("validation", "test")]
    assert sum(counts) == len(validation.documents)
    assert abs(counts[0] - counts[1]) <= len(babylm.LAYOUTS)
    assert found.notes == ("one half of dev is used for validation, the other half for testing",)


def test_validation_is_a_tenth_if_a_test_text_is_given(tmp_path: Path) -> None:
    folders = babylm.write(tmp_path)
    train, test = read_corpus(folders["train"]), read_corpus(folders["test"])
    found = divide_documents(train, test=test)
    check_apart(found)
    assert texts(found)["test"] == [each.text for each in test.documents]
    assert sorted(texts(found)["train"] + texts(found)["validation"]) == sorted(each.text for each in train.documents)


@pytest.mark.parametrize("ending", [".train", ".txt"])
def test_held_out_share_is_drawn_per_file(ending: str, tmp_path: Path) -> None:
    folder = babylm.write(tmp_path)["train"]
    whole = {}
    for file in folder.iterdir():
        whole[file.stem] = file.read_text()
        file.rename(file.with_suffix(ending))
    found = divide_documents(read_corpus(folder))
    check_apart(found)
    assert sorted(each.id for each in join_chunks(found.parts["train"])) == sorted(name + ending for name in whole)
    for name, text in whole.items():
        shares = {
            split: sum(len(each.text) for each in part if each.id.startswith(name)) / len(text)
            for split, part in found.parts.items()
        }
        assert sum(shares.values()) == pytest.approx(1)
        assert shares["train"] > 0.7
        assert 0.02 < shares["validation"] < 0.15
        assert 0.02 < shares["test"] < 0.15


def tasks(**counts: int) -> Corpus:
    each = [Document(f"{task}/{n}", f"{task} number {n}", task) for task, count in counts.items() for n in range(count)]
    return Corpus("notes", tuple(each))


@given(st.dictionaries(st.sampled_from("abcde"), st.integers(1, 20), min_size=1), st.integers(0, 3))
def test_splits_are_disjoint_and_complete(counts: dict[str, int], seed: int) -> None:
    assume(sum(counts.values()) >= 3)
    corpus = tasks(**counts)
    found = divide_documents(corpus, seed=seed)
    check_apart(found)
    ids = sorted(each.id for part in found.parts.values() for each in part)
    assert ids == sorted(each.id for each in corpus.documents)
    assert divide_documents(corpus, seed=seed) == found


def test_splits_cover_tasks_and_keep_duplicates_together() -> None:
    found = divide_documents(tasks(sums=20, prose=40, rare=2, other=1))
    counts = [Counter(each.task for each in part) for part in found.parts.values()]
    assert [(count["sums"], count["prose"]) for count in counts] == [(16, 32), (2, 4), (2, 4)]
    assert [count["rare"] + count["other"] for count in counts] == [1, 1, 1]
    twins = tuple(Document(f"{number}", f"text {number // 2}") for number in range(40))
    for part in divide_documents(Corpus("twins", twins)).parts.values():
        assert set(Counter(each.text for each in part).values()) == {2}
    alike = Corpus("book", tuple(Document(f"{number}", "the same") for number in range(5)))
    with pytest.raises(DataError, match=r"at least 3 distinct documents, got 1.*<\|endoftext\|>"):
        divide_documents(alike)


def test_small_documents_are_held_out_entirely_and_a_short_file_trained_on(tmp_path: Path) -> None:
    many = Corpus("many", tuple(Document(str(number), f"{number} is a line\n" * 40) for number in range(40)))
    assert LARGE > 1 / 40
    found = divide_documents(many)
    assert [len(found.parts[split]) for split in SPLITS] == [32, 4, 4]
    assert {each.part_of for each in found.parts["train"]} == {None}

    folder = babylm.write(tmp_path)["train"]
    (folder / "tiny.train").write_text("A line.\nAnother.\n")
    for seed in range(5):
        found = divide_documents(read_corpus(folder), seed=seed)
        assert "tiny.train" in {each.id for each in found.parts["train"]}


def test_held_out_text_is_removed_from_training(tmp_path: Path) -> None:
    folders = babylm.write(tmp_path)
    (tmp_path / "notes.txt").write_text("A note of some words.\n" * 30)
    found = divide_documents(read_corpus(tmp_path), read_corpus(folders["dev"]), read_corpus(tmp_path / "notes.txt"))
    check_apart(found)
    names = {each.part_of for each in found.parts["train"]}
    assert not any(name is not None and name.endswith(".dev") for name in names)
    assert "A note of some words.\n" * 30 not in texts(found)["train"]
    assert any("are also in the held-out text, and not used for training" in note for note in found.notes)
    with pytest.raises(DataError, match="Pass texts that do not contain each other"):
        divide_documents(read_corpus(folders["dev"]), read_corpus(folders["dev"]))


def test_invalid_answers_are_rejected() -> None:
    document, plain = Document("sum", "2+2=4", answer_start=4), Document("one", "some text")
    assert (document.prompt, document.answer) == ("2+2=", "4")
    assert (plain.prompt, plain.answer, plain.task) == ("", "some text", "text")
    for start in (-1, 0, 5, 6):
        with pytest.raises(DataError, match="between 1 and 4"):
            Document("sum", "2+2=4", answer_start=start)
    with pytest.raises(DataError, match="unpaired surrogate"):
        Document("broken", "before \ud800 after")


def test_excerpts_start_at_lines_and_spare_answers() -> None:
    lines = Document("lines", "\n".join(f"line {number} of many" for number in range(100)))
    found = [format_excerpt(lines, 60, Random(seed)).text for seed in range(30)]
    assert all(text in lines.text and text.startswith("line ") and 0 < len(text) <= 60 for text in found)
    assert len(set(found)) > 10
    assert len(format_excerpt(Document("one", "x" * 1000), 60, Random(1)).text) == 60
    for whole in (Document("short", "abc"), Document("sum", "1" * 99 + "=9", answer_start=100)):
        assert format_excerpt(whole, 3, Random(0)) is whole


@given(st.lists(st.sampled_from(["one two three", "", "= = = A = = =", "a " * 30, "*** B ***", "  "]), max_size=60))
def test_chunks_join_to_the_original_text(lines: list[str]) -> None:
    document = Document("a", "\n".join(lines), "prose")
    found = split_chunks(document)
    assert "".join(each.text for each in found) == document.text
    assert join_chunks(found) == (document,)
    if len(found) > 1:
        assert all(len(each.text.split()) >= MIN_WORDS for each in found)
        assert [(each.id, each.part_of, each.task) for each in found] == [
            (f"a#{number}", "a", "prose") for number in range(len(found))
        ]


@pytest.mark.parametrize("name", babylm.LAYOUTS)
def test_chunks_end_at_paragraphs(name: str) -> None:
    found = split_chunks(Document(name, babylm.LAYOUTS[name](Random(0), "x", 2_000)))
    assert len(found) > MIN_CHUNKS / 2
    if name == "simple_wiki":
        assert all(each.text.startswith("= = = ") for each in found)
    ending = "\n\n" if name in ("gutenberg", "childes", "open_subtitles") else "\n"
    assert all(each.text.endswith(ending) for each in found[:-1])


def test_long_texts_are_chunked_and_answers_stay_whole() -> None:
    found = split_chunks(Document("a", "seven words stand in each such line\n" * 20_000))
    assert {len(each.text.split()) for each in found[:-1]} == {WORDS + -WORDS % 7}
    for document in (Document("a", "word " * 900), Document("b", "2+2=\n" * 90 + "4", "sums", 450), Document("c", "")):
        assert split_chunks(document) == (document,)


def test_remainders_join_only_within_a_text() -> None:
    parts, others = (split_chunks(Document(name, f"line {name} of words\n" * 40)) for name in "ab")
    left = join_chunks([parts[0], parts[2], others[1], Document("c", "x")])
    assert [(each.id, each.part_of) for each in left] == [("a", None), ("b", None), ("c", None)]
    assert left[0].text == parts[0].text + parts[2].text


@pytest.mark.parametrize("year", babylm.FOLDERS)
def test_babylm_files_keep_their_names(year: str, tmp_path: Path) -> None:
    for split, folder in babylm.write(tmp_path, year, train=120).items():
        corpus = read_corpus(folder)
        assert [(each.id, each.text) for each in join_chunks(corpus.documents)] == [
            (file.name, file.read_text()) for file in sorted(folder.iterdir())
        ]
        assert all(sum(each.part_of == file.name for each in corpus.documents) > 10 for file in folder.iterdir())
        (one,) = {each.part_of for each in read_corpus(folder / f"childes.{split}").documents}
        assert one == f"childes.{split}"
