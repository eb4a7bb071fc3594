"""Load tokenizers from the hub, a directory, or a llama2.c file.

llama2.c stores its tokenizer in one binary file (`tok512.bin`) of pieces with scores, and merges the neighboring pair
with the best score first. This is byte-pair encoding, so the file is loaded into the `tokenizers` library.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from layerwise.bounded import MAX_SETTINGS_SIZE, UnreadableError, kind_of, read_bytes, shortened
from layerwise.data.auto_classes import from_pretrained
from layerwise.errors import DataError, ModelError

UNKNOWN, START, END = "<unk>", "<s>", "</s>"
"""Pieces 0, 1 and 2 of llama2.c; the file surrounds them with line breaks."""

SPECIAL_PIECES = 3
BYTE_PIECES = 256

_PASS_TOKENIZER = "Pass one with --tokenizer: a hub id, or a directory with a tokenizer.json."


def load_tokenizer(
    source: str | Path, revision: str | None = None, trust_remote_code: bool = False, kind: Any = "AutoTokenizer"
) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a hub id, a directory, or a GGUF file.

    A directory with one `tok*.bin` and no `tokenizer.json` is read in llama2.c's format.

    Args:
        source: Hub id, directory or file.
        revision: Branch, tag or commit of a hub model.
        trust_remote_code: Run code from the model's repository.
        kind: Tokenizer class, if known.

    Raises:
        DataError: If there is no usable tokenizer.
    """
    folder = Path(source)
    file_kind = kind_of(folder)
    if file_kind not in ("file", "folder", "nothing"):
        raise DataError(f"--tokenizer must be a directory with a tokenizer.json, got {source}, a {file_kind}.")
    if file_kind == "file" and folder.suffix == ".bin":
        return read_llama2c(folder)
    if folder.is_dir() and not (folder / "tokenizer.json").exists():
        candidates = sorted(folder.glob("tok*.bin"))
        if len(candidates) == 1:
            return read_llama2c(candidates[0])
    try:
        tokenizer: PreTrainedTokenizerBase = from_pretrained(
            kind, source, revision=revision, trust_remote_code=trust_remote_code
        )
    except ModelError as refused:
        raise DataError(f"{str(refused).rstrip('.')}, or pass another tokenizer with --tokenizer.") from refused
    # The hub client, the tokenizers library and the model classes raise nearly every built-in error.
    except Exception as error:
        reason = shortened(str(error).strip().split("\n")[0].split(". ")[0].rstrip("."), 200)
        raise DataError(
            f"Cannot load a tokenizer from {source} ({type(error).__name__}: {reason}). {_PASS_TOKENIZER}"
        ) from error
    if not set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids):
        raise DataError(f"{source} has no tokenizer (its vocabulary is empty). {_PASS_TOKENIZER}")
    return tokenizer


def find_mask_id(tokenizer: PreTrainedTokenizerBase) -> int:
    token_id: Any = tokenizer.mask_token_id
    if not isinstance(token_id, int):
        raise DataError(
            "A masked-token loss requires a tokenizer with a mask token. Use a next-token loss, or pass another "
            "tokenizer with --tokenizer."
        )
    return token_id


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    score: float


def read_llama2c(file: Path) -> PreTrainedTokenizerFast:
    """Read a llama2.c tokenizer file as a fast tokenizer.

    The little-endian file has the int32 length of the longest piece, and for each piece a float32 score, an int32 byte
    length, and the bytes. Piece 0 is unknown, 1 starts a text, 2 ends it, and 3 to 258 are the 256 single bytes. A
    space is prepended to the text, as in llama2.c. Raises `DataError` for a truncated or malformed file.
    """
    return PreTrainedTokenizerFast(
        tokenizer_object=_byte_pair_encoder(_read_pieces(file)),
        unk_token=UNKNOWN,
        bos_token=START,
        eos_token=END,
        pad_token=END,
        clean_up_tokenization_spaces=False,
    )


def _read_pieces(file: Path) -> list[Piece]:
    try:
        content = read_bytes(file, MAX_SETTINGS_SIZE)
    except UnreadableError as fault:
        raise DataError(f"{file} {fault}. {_PASS_TOKENIZER}") from fault
    pieces: list[Piece] = []
    offset = struct.calcsize("<i")
    header = struct.calcsize("<fi")
    while offset < len(content):
        if offset + header > len(content):
            raise _malformed(file, offset, "a piece is truncated")
        score, length = struct.unpack_from("<fi", content, offset)
        offset += header
        if not 0 <= length <= len(content) - offset:
            raise _malformed(file, offset, f"a piece of {length} bytes does not fit")
        try:
            text = content[offset : offset + length].decode("utf-8")
        except UnicodeDecodeError as error:
            raise _malformed(file, offset + error.start, "a piece is not UTF-8") from error
        pieces.append(Piece(text, score))
        offset += length
    bytes_as_written = [f"<0x{value:02X}>" for value in range(BYTE_PIECES)]
    if [each.text for each in pieces[SPECIAL_PIECES : SPECIAL_PIECES + BYTE_PIECES]] != bytes_as_written:
        raise _malformed(file, len(content), "pieces 3 to 258 should be <0x00> to <0xFF>")
    return pieces


def _malformed(file: Path, offset: int, problem: str) -> DataError:
    return DataError(
        f"{file} is not a llama2.c tokenizer: {problem} at byte {offset}. Copy the file again, or pass another "
        "tokenizer with --tokenizer."
    )


def _byte_pair_encoder(pieces: list[Piece]) -> tokenizers.Tokenizer:
    names = [UNKNOWN, START, END, *(piece.text for piece in pieces[SPECIAL_PIECES:])]
    vocabulary = {name: number for number, name in enumerate(names)}
    encoder = tokenizers.Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=_merges(pieces, vocabulary),
            unk_token=UNKNOWN,
            byte_fallback=True,
        )
    )
    encoder.normalizer = normalizers.Prepend(" ")
    encoder.post_processor = processors.TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, vocabulary[START])]
    )
    encoder.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return encoder


def _merges(pieces: list[Piece], vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    merged = sorted(pieces[SPECIAL_PIECES + BYTE_PIECES :], key=lambda piece: -piece.score)
    return [
        (piece.text[:cut], piece.text[cut:])
        for piece in merged
        for cut in range(1, len(piece.text))
        if piece.text[:cut] in vocabulary and piece.text[cut:] in vocabulary
    ]
