"""A text is read, its tokenizer learned and its documents encoded once; changes invalidate the cache."""

import os
import pickle
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from datasets.arrow_writer import ArrowWriter
from transformers import PreTrainedTokenizerBase

from layerwise.data import cache_folder
from layerwise.data.text import token_cache
from layerwise.data.text.corpus import read_corpus, source_files
from layerwise.data.text.division import division
from layerwise.data.text.encoding import Encoded
from layerwise.data.text.segments import PretrainingText, cut, pretraining_text
from layerwise.data.text.token_cache import ReadText, TextSource, TokenCache, TokenizedText, Vocabulary
from layerwise.data.text.vocabulary import train_wordpiece
from layerwise.errors import DataError

WORDS = ("The cat saw the dog.", "A dog ran to the old house.", "It did not see him!", "Who ran away then?")
DOCUMENTS = 24


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cache_folder, "SETTLED", -(10**12))
    folder = tmp_path / "texts"
    folder.mkdir()
    documents = ["\n".join(WORDS[(n + k) % 4] for k in range(9 + n)) + f"\nNumber {n}." for n in range(DOCUMENTS)]
    for name, part in (("one", documents[::2]), ("two", documents[1::2])):
        (folder / f"{name}.txt").write_text("\n<|endoftext|>\n".join(part) + "\n")
    return folder


class Reader:
    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.cache = path, TokenCache(folder)
        self.read = self.learned = 0

    def open(
        self, *, seed: int = 0, size: int = 300, tokenizer: PreTrainedTokenizerBase | None = None
    ) -> TokenizedText:
        def read() -> ReadText:
            self.read += 1
            return ReadText("texts", division(read_corpus(self.path), seed=seed).parts, ("a note",))

        def learn(texts: Iterable[str]) -> PreTrainedTokenizerBase:
            self.learned += 1
            return train_wordpiece(texts, vocabulary=size)

        source = TextSource(read, {"seed": seed}, lambda: source_files(self.path))
        return self.cache.open(source, tokenizer or Vocabulary(learn, {"size": size}))

    def plain(self, tokenizer: PreTrainedTokenizerBase) -> PretrainingText:
        return pretraining_text(tokenizer, "texts", division(read_corpus(self.path), seed=0).parts)


def contents(text: Encoded) -> tuple[object, ...]:
    return list(text.rows), text.tokens, list(text.skipped)


def test_a_later_start_reads_nothing_and_maps_what_would_have_been_encoded(text: Path, tmp_path: Path) -> None:
    first = Reader(text, tmp_path / "cache").open()
    later = Reader(text, tmp_path / "cache")
    found = later.open()
    assert (later.read, later.learned) == (0, 0)
    parts = division(read_corpus(text), seed=0).parts
    tokenizer = train_wordpiece((each.text for each in parts["train"]), vocabulary=300)
    plain = later.plain(tokenizer)
    assert found.tokenizer.get_vocab() == first.tokenizer.get_vocab() == tokenizer.get_vocab()
    assert (found.text.name, found.text.digest, found.notes) == (plain.name, plain.digest, ("a note",))
    for split in ("train", "validation", "test"):
        stored, expected = getattr(found.text, split), getattr(plain, split)
        assert contents(stored) == contents(expected)
        for length in (16, 40, 16):
            one, other = cut(stored, length), cut(expected, length)
            assert list(one.rows["ids"]) == list(other.rows["ids"])
            assert one.owners.tolist() == other.owners.tolist()
    segments = cut(found.text.train, 16)
    assert len(segments.rows.cache_files) == 1
    assert segments.ids([0])[0].dtype == np.uint16
    assert not segments.ids([0])[0].flags.writeable


def rewritten(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))


def rewritten_unseen(file: Path) -> None:
    before = file.stat()
    rewritten(file, "cat", "rat")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a word of the same size, with the old time": lambda folder: rewritten_unseen(folder / "one.txt"),
    "a document more": lambda folder: (folder / "three.txt").write_text("It ran away.\nThe dog did not see it."),
    "a document less": lambda folder: rewritten(folder / "two.txt", "\nNumber 3.\n<|endoftext|>\n", "\nNumber 3.\n"),
    "a file less": lambda folder: (folder / "two.txt").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_text_that_changed_is_never_taken_from_the_cache(text: Path, tmp_path: Path, change: str) -> None:
    Reader(text, tmp_path / "cache").open()
    CHANGES[change](text)
    later = Reader(text, tmp_path / "cache")
    found = later.open()
    assert later.read == 1
    plain = later.plain(found.tokenizer)
    assert found.text.digest == plain.digest
    assert contents(found.text.train) == contents(plain.train)


def test_other_settings_and_other_tokenizers_have_texts_of_their_own(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    first = Reader(text, folder).open()
    assert Reader(text, folder).open(seed=1).text.digest != first.text.digest
    small = Reader(text, folder).open(size=270)
    assert len(small.tokenizer) == 270
    given = Reader(text, folder)
    assert contents(given.open(tokenizer=small.tokenizer).text.train) == contents(small.text.train)
    assert contents(small.text.train) != contents(first.text.train)
    assert (given.read, given.learned) == (1, 0)


DOUBTS: dict[str, Callable[[Path, pytest.MonkeyPatch], object]] = {
    "other code": lambda folder, patch: patch.setattr(token_cache, "_program", lambda: ["another version"]),
    "files that were only touched": lambda folder, patch: (folder / "one.txt").touch(),
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_what_may_be_another_text_is_read_again(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doubt: str
) -> None:
    Reader(text, tmp_path / "cache").open()
    DOUBTS[doubt](text, monkeypatch)
    for expected in (1, 0):
        later = Reader(text, tmp_path / "cache")
        later.open()
        assert (later.read, later.learned) == (expected, expected)


def test_files_that_may_change_within_a_tick_are_read_again_and_found_by_their_content(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_folder, "SETTLED", 10**12)
    Reader(text, tmp_path / "cache").open()
    later = Reader(text, tmp_path / "cache")
    later.open()
    assert (later.read, later.learned) == (1, 0)
    rewritten_unseen(text / "one.txt")
    changed = Reader(text, tmp_path / "cache")
    found = changed.open()
    assert contents(found.text.train) == contents(changed.plain(found.tokenizer).train)
    assert changed.learned == 1


def test_files_that_change_while_they_are_read_are_not_taken_for_those_before(text: Path, tmp_path: Path) -> None:
    first = Reader(text, tmp_path / "cache")
    first.cache = replace(first.cache, progress=lambda label, share: (text / "one.txt").touch())
    first.open()
    assert list((tmp_path / "cache").glob("*/text.json")) == []


def test_a_start_that_was_killed_leaves_nothing_that_is_taken_for_a_text(text: Path, tmp_path: Path) -> None:
    killed = Reader(text, tmp_path / "cache")

    def kill(label: str, share: float) -> None:
        if label == "encoding validation":
            raise KeyboardInterrupt

    killed.cache = replace(killed.cache, progress=kill)
    with pytest.raises(KeyboardInterrupt):
        killed.open()
    (half,) = (tmp_path / "cache").glob("*/generator")
    (half.parent / "text.json").write_text('{"name": "te')  # a record is written last, and may be cut short
    later = Reader(text, tmp_path / "cache")
    found = later.open()
    assert (later.read, later.learned) == (1, 1)
    for split in ("train", "validation", "test"):
        assert contents(getattr(found.text, split)) == contents(getattr(later.plain(found.tokenizer), split))


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda whole: whole[: len(whole) // 2],
    "zeroed": lambda whole: bytes(len(whole)),
    "empty": lambda whole: b"",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_not_what_was_kept_is_made_again(text: Path, tmp_path: Path, damage: str) -> None:
    stored = Reader(text, tmp_path / "cache").open().text
    whole, segments = contents(stored.train), list(cut(stored.train, 16).rows)
    for name in ("cache-cut-14", "generator-train"):
        (file,) = (tmp_path / "cache").glob(f"*/generator/*=train/*/{name}.arrow")
        content = DAMAGE[damage](file.read_bytes())
        file.unlink()  # another file: the one that is mapped stays
        file.write_bytes(content)
        assert list(cut(stored.train, 16).rows) == segments
    later = Reader(text, tmp_path / "cache")
    assert contents(later.open().text.train) == whole
    assert later.read == 1


def test_one_of_many_reads_and_the_others_wait(text: Path, tmp_path: Path) -> None:
    readers = [Reader(text, tmp_path / "cache") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(Reader.open, readers))
    assert sum(each.read for each in readers) == sum(each.learned for each in readers) == 1
    assert len({each.text.digest for each in found}) == 1


def test_a_worker_that_is_handed_segments_maps_them_itself(text: Path, tmp_path: Path) -> None:
    segments = cut(Reader(text, tmp_path / "cache").open().text.train, 16)
    handed = pickle.dumps(segments)
    assert segments.rows[0]["ids"].combine_chunks().values.to_numpy().tobytes() not in handed
    again = pickle.loads(handed)
    assert list(again.rows) == list(segments.rows)


@pytest.mark.parametrize("full", [False, True])
def test_a_cache_that_cannot_be_written_says_what_to_set(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if full:
        monkeypatch.setattr(ArrowWriter, "finalize", refuse)
    else:
        (tmp_path / "cache").write_text("a file")
    reason = "No space left on device" if full else "File exists|Not a directory"
    with pytest.raises(
        DataError, match=rf"cannot be kept in .*({reason}).*: set LAYERWISE_CACHE to a folder on a disk"
    ):
        Reader(text, tmp_path / "cache").open()
    assert list(tmp_path.glob("cache/*/text.json")) == []


def test_the_variables_go_before_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LAYERWISE_CACHE")
    assert cache_folder.cache_folder() == Path("/home/ada/.cache/layerwise")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch")
    assert cache_folder.cache_folder() == Path("/scratch/layerwise")
    monkeypatch.setenv("LAYERWISE_CACHE", "~/ours")
    assert cache_folder.cache_folder() == Path("/home/ada/ours")
