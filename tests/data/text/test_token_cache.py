"""A text is read, its tokenizer learned and its documents encoded once; changes invalidate the cache."""

import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from datasets.arrow_writer import ArrowWriter
from transformers import PreTrainedTokenizerBase

from layerwise.data import cache_folder
from layerwise.data.text import token_cache
from layerwise.data.text.corpus import list_text_files, read_corpus
from layerwise.data.text.division import Division, divide_documents
from layerwise.data.text.encoding import Encoded, encode_documents
from layerwise.data.text.segments import cut_segments, hash_parts
from layerwise.data.text.token_cache import TextSource, TokenizedText, Vocabulary, open_text
from layerwise.data.text.vocabulary import train_wordpiece
from layerwise.errors import DataError

WORDS = ("The cat saw the dog.", "A dog ran to the old house.", "It did not see him!", "Who ran away then?")
DOCUMENTS = 24


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cache_folder, "TICK", -(10**12))
    monkeypatch.setenv("LAYERWISE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "texts"
    folder.mkdir()
    documents = ["\n".join(WORDS[(n + k) % 4] for k in range(9 + n)) + f"\nNumber {n}." for n in range(DOCUMENTS)]
    for name, part in (("one", documents[::2]), ("two", documents[1::2])):
        (folder / f"{name}.txt").write_text("\n<|endoftext|>\n".join(part) + "\n")
    return folder


class Reader:
    def __init__(self, path: Path, progress: Callable[[str, float], None] = lambda label, share: None) -> None:
        self.path, self.progress = path, progress
        self.read = self.learned = 0

    def open(
        self, *, seed: int = 0, size: int = 300, tokenizer: PreTrainedTokenizerBase | None = None
    ) -> TokenizedText:
        def read() -> Division:
            self.read += 1
            return replace(divide_documents(read_corpus(self.path), seed=seed), notes=("a note",))

        def log(said: str) -> None:
            self.learned += said.startswith("learning a vocabulary")

        source = TextSource(read, {"seed": seed}, lambda: list_text_files(self.path))
        return open_text(source, tokenizer or Vocabulary(size), log=log, progress=self.progress)

    def encoded(self, tokenizer: PreTrainedTokenizerBase) -> dict[str, Encoded]:
        parts = divide_documents(read_corpus(self.path), seed=0).parts
        return {split: encode_documents(tokenizer, documents) for split, documents in parts.items()}


def contents(text: Encoded) -> tuple[object, ...]:
    return list(text.rows), text.tokens, list(text.skipped)


def test_cached_tokens_are_memory_mapped_without_reading_text(text: Path, tmp_path: Path) -> None:
    first = Reader(text).open()
    later = Reader(text)
    found = later.open()
    assert (later.read, later.learned) == (0, 0)
    parts = divide_documents(read_corpus(text), seed=0).parts
    tokenizer = train_wordpiece((each.text for each in parts["train"]), vocabulary=300)
    plain = later.encoded(tokenizer)
    assert found.tokenizer.get_vocab() == first.tokenizer.get_vocab() == tokenizer.get_vocab()
    assert (found.text.name, found.text.digest, found.notes) == ("texts", hash_parts(parts), ("a note",))
    for split in ("train", "validation", "test"):
        stored, expected = getattr(found.text, split), plain[split]
        assert contents(stored) == contents(expected)
        for length in (16, 40, 16):
            one, other = cut_segments(stored, length), cut_segments(expected, length)
            assert list(one.rows["ids"]) == list(other.rows["ids"])
            assert one.owners.tolist() == other.owners.tolist()
    segments = cut_segments(found.text.train, 16)
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
def test_a_changed_text_is_never_read_from_the_cache(text: Path, tmp_path: Path, change: str) -> None:
    Reader(text).open()
    CHANGES[change](text)
    later = Reader(text)
    found = later.open()
    assert later.read == 1
    assert found.text.digest == hash_parts(divide_documents(read_corpus(text), seed=0).parts)
    assert contents(found.text.train) == contents(later.encoded(found.tokenizer)["train"])


def test_settings_and_tokenizers_have_separate_caches(text: Path, tmp_path: Path) -> None:
    first = Reader(text).open()
    assert Reader(text).open(seed=1).text.digest != first.text.digest
    small = Reader(text).open(size=270)
    assert len(small.tokenizer) == 270
    given = Reader(text)
    assert contents(given.open(tokenizer=small.tokenizer).text.train) == contents(small.text.train)
    assert contents(small.text.train) != contents(first.text.train)
    assert (given.read, given.learned) == (1, 0)


DOUBTS: dict[str, Callable[[Path, pytest.MonkeyPatch], object]] = {
    "other code": lambda folder, patch: patch.setattr(token_cache, "_program", lambda: ["another version"]),
    "files that were only touched": lambda folder, patch: (folder / "one.txt").touch(),
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_possibly_changed_texts_are_reread(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doubt: str
) -> None:
    Reader(text).open()
    DOUBTS[doubt](text, monkeypatch)
    for expected in (1, 0):
        later = Reader(text)
        later.open()
        assert (later.read, later.learned) == (expected, expected)


def test_recent_files_are_found_by_content(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folder, "TICK", 10**12)
    Reader(text).open()
    later = Reader(text)
    later.open()
    assert (later.read, later.learned) == (1, 0)
    rewritten_unseen(text / "one.txt")
    changed = Reader(text)
    found = changed.open()
    assert contents(found.text.train) == contents(changed.encoded(found.tokenizer)["train"])
    assert changed.learned == 1


def test_files_changed_while_reading_are_not_cached(text: Path, tmp_path: Path) -> None:
    Reader(text, lambda label, share: (text / "one.txt").touch()).open()
    assert list((tmp_path / "cache").glob("tokens/*/text.json")) == []


def test_a_killed_start_leaves_no_valid_cache(text: Path, tmp_path: Path) -> None:
    def kill(label: str, share: float) -> None:
        if label == "encoding validation":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Reader(text, kill).open()
    (half,) = (tmp_path / "cache").glob("tokens/*/generator")
    (half.parent / "text.json").write_text('{"name": "te')  # a record is written last, and may be cut short
    later = Reader(text)
    found = later.open()
    assert (later.read, later.learned) == (1, 1)
    for split, plain in later.encoded(found.tokenizer).items():
        assert contents(getattr(found.text, split)) == contents(plain)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda whole: whole[: len(whole) // 2],
    "zeroed": lambda whole: bytes(len(whole)),
    "empty": lambda whole: b"",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_stale_cache_entries_are_rebuilt(text: Path, tmp_path: Path, damage: str) -> None:
    stored = Reader(text).open().text
    whole, segments = contents(stored.train), list(cut_segments(stored.train, 16).rows)
    for name in ("cache-cut-14", "generator-train"):
        (file,) = (tmp_path / "cache").glob(f"tokens/*/generator/*=train/*/{name}.arrow")
        content = DAMAGE[damage](file.read_bytes())
        file.unlink()  # another file: the one that is mapped stays
        file.write_bytes(content)
        assert list(cut_segments(stored.train, 16).rows) == segments
    later = Reader(text)
    assert contents(later.open().text.train) == whole
    assert later.read == 1


def test_one_process_encodes_and_the_others_wait(text: Path, tmp_path: Path) -> None:
    readers = [Reader(text) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(Reader.open, readers))
    assert sum(each.read for each in readers) == sum(each.learned for each in readers) == 1
    assert len({each.text.digest for each in found}) == 1


def test_pickled_segments_are_memory_mapped_again(text: Path, tmp_path: Path) -> None:
    segments = cut_segments(Reader(text).open().text.train, 16)
    handed = pickle.dumps(segments)
    assert segments.rows[0]["ids"].combine_chunks().values.to_numpy().tobytes() not in handed
    again = pickle.loads(handed)
    assert list(again.rows) == list(segments.rows)


@pytest.mark.parametrize("full", [False, True])
def test_an_unwritable_cache_names_the_variable_to_set(
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
        DataError, match=rf"Cannot write the token cache to .*({reason}).* Set LAYERWISE_CACHE to a writable"
    ):
        Reader(text).open()
    assert list(tmp_path.glob("cache/tokens/*/text.json")) == []


def test_cache_location_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LAYERWISE_CACHE")
    assert cache_folder.cache_folder() == Path("/home/ada/.cache/layerwise")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch")
    assert cache_folder.cache_folder() == Path("/scratch/layerwise")
    monkeypatch.setenv("LAYERWISE_CACHE", "~/ours")
    assert cache_folder.cache_folder() == Path("/home/ada/ours")
