"""Bad texts: what `--text` may name, and the tokenizers that read them."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow
from pyarrow import parquet

from hostile.case import Case
from hostile.material import model

SWEEP = ("sweep", "model", "--run", "run", "--families", "leave_one_out", "--no-similarity")
SCORED = "A text that is long enough to be scored, one character after the other. "
ENOUGH = "\n<|endoftext|>\n".join([SCORED] * 8)
"""Documents enough for an interval, without which a sweep concludes nothing and is refused."""

_NOISE = random.Random(0).randbytes(9999)


def _file(name: str, content: bytes, folder: Path) -> None:
    model(folder)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _text(
    case: str, name: str, content: bytes | Callable[[], bytes], says: tuple[str, ...] | None, *, text: str = ""
) -> Case:
    """A sweep over the text `name` with this content."""

    def make(folder: Path) -> None:
        _file(name, content if isinstance(content, bytes) else content(), folder)

    return Case(case, (*SWEEP, "--text", text or name), says, make)


def _made(case: str, make: Callable[[Path], object], says: tuple[str, ...] | None, text: str = "text.txt") -> Case:
    """A sweep over a text that is no plain file."""

    def both(folder: Path) -> None:
        model(folder)
        make(folder)

    return Case(case, (*SWEEP, "--text", text), says, both)


def _bomb() -> bytes:
    """A gigabyte of the letter a in a megabyte."""
    once = gzip.compress(b"a" * (64 << 20), compresslevel=9)
    return once * 16  # gzip files one behind the other are one file


def _small_bomb() -> bytes:
    """A bomb inside of a bomb's size: 1.3 GB of spaces and line ends in 1.3 MB."""
    return gzip.compress(b" \n" * (32 << 20), compresslevel=9) * 20


def _parquet_bomb() -> bytes:
    """Two gigabytes of rows with one text in common, which is written once."""
    rows = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 2_048, pyarrow.int32()), ["a" * 2**20])
    content = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": rows}), content)
    return content.getvalue()


def _sparse(folder: Path) -> None:
    with (folder / "text.txt").open("wb") as file:
        file.truncate(3 << 30)


def _link_loop(folder: Path) -> None:
    (folder / "text.txt").symlink_to("other.txt")
    (folder / "other.txt").symlink_to("text.txt")


def _folder_loop(folder: Path) -> None:
    (folder / "texts" / "inner").mkdir(parents=True)
    (folder / "texts" / "inner" / "again").symlink_to(folder / "texts", target_is_directory=True)
    (folder / "texts" / "a.txt").write_text(ENOUGH)


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "text.txt")


def _pipe_in_folder(folder: Path) -> None:
    (folder / "texts").mkdir()
    os.mkfifo(folder / "texts" / "a.txt")


def _device_link(folder: Path) -> None:
    (folder / "text.txt").symlink_to("/dev/zero")


def _no_permission(folder: Path) -> None:
    (folder / "text.txt").write_text(SCORED)
    (folder / "text.txt").chmod(0)


def _line_break_name(folder: Path) -> None:
    (folder / "two\nlines.txt").write_bytes(b"")


def _strange_name(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe.txt")).write_text(ENOUGH)


def _strange_names(folder: Path) -> None:
    (folder / "texts").mkdir()
    _strange_name(folder / "texts")


def _json(**values: object) -> bytes:
    return json.dumps(values).encode() + b"\n"


NESTED = b'{"text": "a", "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
DIGITS = b'{"text": "a", "id": ' + b"7" * 5_000 + b"}\n"

_TEXTS = (
    _text("an empty text", "text.txt", b"", ("text.txt is empty",)),
    _text("a text of white space", "text.txt", b" \n\t\n", ("is empty",)),
    _text("a text of null bytes", "text.txt", b"\0" * 1000, ("byte 0 is 0x00", "not UTF-8 text")),
    _text("a null byte inside of a text", "text.txt", SCORED.encode() + b"\0" + b"b", (f"byte {len(SCORED)} is 0x00",)),
    _text("a text in UTF-16", "text.txt", SCORED.encode("utf-16"), ("byte 0 is 0xff", "iconv")),
    _text("a text in Latin-1", "text.txt", "Zürich und Genève".encode("latin-1"), ("byte 1 is 0xfc",)),
    _text("an overlong encoding", "text.txt", b"abc \xc0\xaf def", ("byte 4 is 0xc0",)),
    _text("half of a surrogate pair", "text.txt", b"abc \xed\xa0\x80 def", ("byte 4 is 0xed",)),
    _text("a byte-order mark and a text", "text.txt", b"\xef\xbb\xbf" + ENOUGH.encode(), None),
    _text("a byte-order mark alone", "text.txt", b"\xef\xbb\xbf", ("is empty",)),
    _text("one token", "text.txt", b"a", ("has 1 token(s)",)),
    _text("characters that the tokenizer does not know", "text.txt", ENOUGH.replace("scored", "ééé ü").encode(), None),
    _made("a text of three gigabytes", _sparse, ("3.2 GB", "text.txt")),
    _text("a gzip bomb", "text.txt.gz", _bomb, ("text.txt.gz", "unpacks to more than")),
    _text("a gzip bomb of white space", "text.txt.gz", _small_bomb, ("text.txt.gz", "unpacks to more than")),
    _text("a parquet bomb", "text.parquet", _parquet_bomb, ("text.parquet", "unpacks to more than")),
    _text("a gzip file that is none", "text.txt.gz", b"abc", ("is not a whole gzip file",)),
    _text("a gzip file cut short", "text.txt.gz", gzip.compress(SCORED.encode() * 99)[:-9], ("not a whole gzip file",)),
    _text("a gzip file with rubbish behind", "text.txt.gz", gzip.compress(b"ab") + b"rubbish!", ("whole gzip file",)),
    _text("an empty gzip file", "text.txt.gz", b"", ("is empty",)),
    _text("a gzip file of nothing", "text.txt.gz", gzip.compress(b""), ("is empty",)),
    _text(
        "a damaged gzip file",
        "a.txt.gz",
        gzip.compress(_NOISE)[:500] + bytes(500),
        ("gzip file",),
    ),
    _made("a pipe for a text", _pipe, ("text.txt is a pipe", "name a file or a folder")),
    _made("a device for a text", _device_link, ("text.txt is a device", "name a file or a folder")),
    _made("a folder whose only text is a pipe", _pipe_in_folder, ("holds no text file",), "texts"),
    _made("an endless device by its own name", lambda folder: None, ("/dev/zero is a device",), "/dev/zero"),
    _made("a link that leads to itself", _link_loop, ("there is no text at text.txt",)),
    _made("a folder that contains itself", _folder_loop, None, "texts"),
    _made("an empty folder", lambda folder: (folder / "texts").mkdir(), ("holds no text file",), "texts"),
    _made("a name with a line break", _line_break_name, ("is empty",), "two\nlines.txt"),
    _made("a name that is no UTF-8", _strange_name, ("is no UTF-8", "rename it"), os.fsdecode(b"\xff\xfe.txt")),
    _made("a folder with a name that is no UTF-8", _strange_names, None, "texts"),
    _made("a name of 5,000 characters", lambda folder: None, ("--text was given", "cannot be looked up"), "a" * 5_000),
    _made("a name with a null byte", lambda folder: None, ("null byte",), "a\0b"),
    _made("an empty name", lambda folder: None, ("--text was given an empty text",), ""),
    _text("a file inside of a file", "text.txt", b"abc", ("there is no text at",), text="text.txt/inner.txt"),
    _text("JSON lines, a number of 5,000 digits", "t.jsonl", DIGITS, ("t.jsonl, line 1", "4,300 digits")),
    _text("JSON lines, nested too deeply", "t.jsonl", NESTED, ("t.jsonl, line 1", "nested too deeply")),
    _text(
        "JSON lines, half of a surrogate pair", "t.jsonl", b'{"text": "a\\ud800b"}\n', ("t.jsonl, line 1", "surrogate")
    ),
    _text(
        "JSON lines, an id of half a pair", "t.jsonl", b'{"text": "abc", "id": "\\udc00"}\n', ("line 1", "surrogate")
    ),
    _text(
        "JSON lines, a task of half a pair", "t.jsonl", b'{"text": "abc", "task": "\\udc00"}', ("line 1", "surrogate")
    ),
    _text("JSON lines, a list", "t.jsonl", b'["a"]\n', ("t.jsonl, line 1", "list")),
    _text("JSON lines, a text that is a number", "t.jsonl", _json(text=3), ("line 1", '"text"')),
    _text("JSON lines, a text that is a list", "t.jsonl", _json(text=["a"]), ("line 1", '"text"')),
    _text("JSON lines, keys without a text", "t.jsonl", _json(content="a"), ("the keys content",)),
    _text("JSON lines, an id that is a list", "t.jsonl", _json(text=SCORED, id=["a"]), ("line 1", "id is ['a']")),
    _text("JSON lines, a task that is an object", "t.jsonl", _json(text=SCORED, task={}), ("line 1", "task is {}")),
    _text("JSON lines, a number for an id", "t.jsonl", b"".join(_json(text=SCORED, id=n) for n in range(8)), None),
    _text(
        "JSON lines, one document",
        "t.jsonl",
        _json(text=SCORED, id=7),
        ("1 window of", "needs at least 8", "--max-length"),
    ),
    _text(
        "JSON lines, two with one id", "t.jsonl", _json(text=SCORED, id=7) * 2, ("stand for more than one document",)
    ),
    _text("JSON lines, an answer that starts nowhere", "t.jsonl", _json(text="abc", answer_start=99), ("answer",)),
    _text("JSON lines, an answer before the text", "t.jsonl", _json(text="abc", answer_start=-1), ("answer",)),
    _text("JSON lines, a true answer", "t.jsonl", _json(text="abc", answer_start=True), ("answer_start is True",)),
    _text("JSON lines cut in the middle", "t.jsonl", _json(text=SCORED)[:-9], ("line 1: it is not JSON",)),
    _text(
        "JSON lines, 20,000 keys without a text", "t.jsonl", _json(**{f"k{n}": 0 for n in range(20_000)}), ("line 1",)
    ),
    _text("JSON lines with a null byte", "t.jsonl", b'{"text": "a\0b"}\n', ("0x00",)),
)


def _tokenizer(case: str, name: str, content: bytes, says: tuple[str, ...]) -> Case:
    make = partial(_file, name, content)
    text = ("--text", "model/config.json")
    return Case(case, (*SWEEP, *text, "--tokenizer", name), says, make)


def _pieces(count: int, length: int) -> bytes:
    return struct.pack("<i", 4) + struct.pack("<fi", 0.0, length) * count


_OVERSIZED = json.dumps({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 10**30}, "merges": []}}).encode()

_TOKENIZERS = (
    _tokenizer("an empty llama2.c tokenizer", "tok.bin", b"", ("is not a llama2.c tokenizer",)),
    _tokenizer("a llama2.c piece of two gigabytes", "tok.bin", _pieces(1, 2**31 - 1), ("does not fit",)),
    _tokenizer("a llama2.c piece of less than nothing", "tok.bin", _pieces(1, -5), ("does not fit",)),
    _tokenizer("a tokenizer.json that is no JSON", "t/tokenizer.json", b"{", ("no tokenizer could be loaded from t",)),
    _tokenizer("a tokenizer.json that is a list", "t/tokenizer.json", b"[]", ("no tokenizer could be loaded from t",)),
    _tokenizer("a tokenizer with an id out of range", "t/tokenizer.json", _OVERSIZED, ("no tokenizer could be",)),
    _tokenizer("a tokenizer of another kind of file", "tok.txt", b"abc", ("no tokenizer could be loaded",)),
)


def _tokenizer_pipe(folder: Path) -> None:
    model(folder)
    os.mkfifo(folder / "tok.bin")


CASES = (
    *_TEXTS,
    *_TOKENIZERS,
    Case(
        "a pipe for a tokenizer",
        (*SWEEP, "--text", "model/config.json", "--tokenizer", "tok.bin"),
        ("tok.bin is a pipe",),
        _tokenizer_pipe,  # to open it would be to wait for a writer for ever
    ),
    *(
        [Case("a text that may not be read", (*SWEEP, "--text", "text.txt"), ("cannot read text.txt",),
              lambda folder: (model(folder), _no_permission(folder)))]
        if os.geteuid() != 0 else []
    ),
)  # fmt: skip
