"""Logits from the C interface of llama.cpp (package xllamacpp), since its server returns none for a given text."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

SIZE = 2048
"""Size of the buffer in bytes, of which 200 are used."""


class _Parameters(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("positions", "batch", "computed_batch", "sequences")),
        ("others", ctypes.c_ubyte * SIZE),
    )


class _Batch(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_int32),
        ("tokens", ctypes.POINTER(ctypes.c_int32)),
        ("embeddings", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("sequence_counts", ctypes.c_void_p),
        ("sequences", ctypes.c_void_p),
        ("wants_logits", ctypes.POINTER(ctypes.c_int8)),
    )


_INTERFACE: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "llama_backend_init": (None, ()),
    "llama_log_set": (None, (ctypes.c_void_p, ctypes.c_void_p)),
    "llama_model_default_params": (_Parameters, ()),
    "llama_context_default_params": (_Parameters, ()),
    "llama_model_load_from_file": (ctypes.c_void_p, (ctypes.c_char_p, _Parameters)),
    "llama_init_from_model": (ctypes.c_void_p, (ctypes.c_void_p, _Parameters)),
    "llama_set_n_threads": (None, (ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)),
    "llama_model_get_vocab": (ctypes.c_void_p, (ctypes.c_void_p,)),
    "llama_vocab_n_tokens": (ctypes.c_int32, (ctypes.c_void_p,)),
    "llama_model_n_layer": (ctypes.c_int32, (ctypes.c_void_p,)),
    "llama_get_memory": (ctypes.c_void_p, (ctypes.c_void_p,)),
    "llama_memory_clear": (None, (ctypes.c_void_p, ctypes.c_bool)),
    "llama_batch_get_one": (_Batch, (ctypes.POINTER(ctypes.c_int32), ctypes.c_int32)),
    "llama_decode": (ctypes.c_int32, (ctypes.c_void_p, _Batch)),
    "llama_get_logits": (ctypes.POINTER(ctypes.c_float), (ctypes.c_void_p,)),
    "llama_free": (None, (ctypes.c_void_p,)),
    "llama_model_free": (None, (ctypes.c_void_p,)),
}
_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_SILENT = _LOG(lambda *_: None)
_LOADED: list[ctypes.CDLL] = []


def _library() -> ctypes.CDLL:
    if not _LOADED:
        import xllamacpp

        (path,) = Path(xllamacpp.__file__).parent.glob("xllamacpp*.so")
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in _INTERFACE.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        library.llama_log_set(ctypes.cast(_SILENT, ctypes.c_void_p), None)
        library.llama_backend_init()
        _LOADED.append(library)
    return _LOADED[0]


def log_of_opening(path: Path) -> str:
    library, lines = _library(), []
    keep = _LOG(lambda _level, line, _data: lines.append(line.decode(errors="replace")))
    library.llama_log_set(ctypes.cast(keep, ctypes.c_void_p), None)
    try:
        model = library.llama_model_load_from_file(str(path).encode(), library.llama_model_default_params())
    finally:
        library.llama_log_set(ctypes.cast(_SILENT, ctypes.c_void_p), None)
    if model:
        library.llama_model_free(model)
    return "".join(lines)


class LlamaCpp:
    def __init__(self, path: Path | str, *, positions: int = 512, threads: int = 1) -> None:
        self._library = _library()
        self._model = self._library.llama_model_load_from_file(
            str(path).encode(), self._library.llama_model_default_params()
        )
        if not self._model:
            raise ValueError(f"llama.cpp does not open {path}")
        parameters = self._library.llama_context_default_params()
        assert (parameters.positions, parameters.computed_batch, parameters.sequences) == (512, 512, 1)
        parameters.positions = parameters.batch = parameters.computed_batch = positions
        self._context = self._library.llama_init_from_model(self._model, parameters)
        self._library.llama_set_n_threads(self._context, threads, threads)
        self.depth = int(self._library.llama_model_n_layer(self._model))
        self.vocabulary = int(self._library.llama_vocab_n_tokens(self._library.llama_model_get_vocab(self._model)))

    def __enter__(self) -> LlamaCpp:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._library.llama_free(self._context)
        self._library.llama_model_free(self._model)

    def logits(self, tokens: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float32]]:
        self.forget()
        self.decode(tokens, every=True)
        content = self._library.llama_get_logits(self._context)
        return np.ctypeslib.as_array(content, (len(tokens), self.vocabulary)).copy()

    def losses(self, tokens: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
        logits = self.logits(tokens)[:-1].astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        chosen = logits[np.arange(len(tokens) - 1), tokens[1:]]
        return np.log(np.exp(logits).sum(axis=1)) - chosen

    def forget(self) -> None:
        self._library.llama_memory_clear(self._library.llama_get_memory(self._context), True)

    def decode(self, tokens: Sequence[int], every: bool = False) -> None:
        ids = (ctypes.c_int32 * len(tokens))(*tokens)
        batch = self._library.llama_batch_get_one(ids, len(tokens))
        if every:
            batch.wants_logits = (ctypes.c_int8 * len(tokens))(*[1] * len(tokens))
        if (code := self._library.llama_decode(self._context, batch)) != 0:
            raise ValueError(f"llama.cpp did not compute {len(tokens)} tokens: {code}")
