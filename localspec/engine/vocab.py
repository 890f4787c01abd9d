"""The vocabulary of a loaded model: text to ids, ids to bytes, which ids end a text."""

from __future__ import annotations

import ctypes
from typing import Any

from localspec.engine.native import lib
from localspec.errors import EngineError, LoadError


class LlamaVocab:
    """`engine.base.Vocab` over a llama_vocab; answers about single ids are remembered."""

    def __init__(self, handle: Any) -> None:
        self._pointer = handle
        self.size: int = lib.llama_vocab_n_tokens(handle)
        self.bos: int = lib.llama_vocab_bos(handle)
        self.eos: int = lib.llama_vocab_eos(handle)
        self.adds_bos: bool = bool(lib.llama_vocab_get_add_bos(handle))
        self._ends: dict[int, bool] = {}
        self._pieces: dict[tuple[int, bool], bytes] = {}

    @property
    def _handle(self) -> Any:
        if self._pointer is None:
            raise LoadError("the model of this vocabulary has been closed", hint="Load it again.")
        return self._pointer

    def close(self) -> None:
        """The model goes: from now on questions about tokens are errors, where they have not been asked before."""
        self._pointer = None

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Ids of `text`. Raises `EngineError` when llama.cpp cannot tokenise it."""
        data = text.encode("utf-8", "surrogatepass")
        room = len(data) + 8
        for _ in range(2):
            ids = (lib.llama_token * room)()
            count = lib.llama_tokenize(self._handle, data, len(data), ids, room, add_special, parse_special)
            if count >= 0:
                return list(ids[:count])
            room = -count
        raise EngineError(f"llama.cpp could not tokenise a text of {len(data)} bytes", hint="Shorten the text.")

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """Bytes of `token`; control tokens are empty unless `special`."""
        known = self._pieces.get((token, special))
        if known is None:
            known = self._pieces[token, special] = self._ask_piece(token, special)
        return known

    def _ask_piece(self, token: int, special: bool) -> bytes:
        if not 0 <= token < self.size:
            raise EngineError(f"token {token} is outside the vocabulary of {self.size}")
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            count = lib.llama_token_to_piece(self._handle, token, buffer, room, 0, special)
            if count >= 0:
                return buffer.raw[:count]
            room = -count

    def is_end(self, token: int) -> bool:
        """True for every end-of-generation token of the model, not only EOS."""
        known = self._ends.get(token)
        if known is None:
            known = self._ends[token] = bool(lib.llama_vocab_is_eog(self._handle, token))
        return known

    def text(self, token: int) -> str:
        """A control token as it is written in templates; '' when there is no such token (-1)."""
        return "" if token < 0 else self.piece(token, special=True).decode("utf-8", "replace")
