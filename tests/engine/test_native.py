"""What llama.cpp says, and what it may lack: its log as sentences, functions that another build does not have."""

from __future__ import annotations

import ctypes
import logging

import pytest

from localspec.engine import native

INFO, WARNING, ERROR, CONTINUED = 2, 3, 4, 5


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ([], ""),
        ([(INFO, b"all is well")], ""),
        ([(WARNING, b"first"), (WARNING, b"second")], "second"),
        (
            [(WARNING, b"odd"), (ERROR, b"llama_model_load: no such tensor\n"), (ERROR, b"so it failed")],
            "no such tensor",
        ),
        ([(ERROR, b"ggml_malloc: no memory")], "ggml_malloc: no memory"),
        ([(ERROR, b"llama_oddly")], "llama_oddly"),
        ([(ERROR, b"....\n"), (ERROR, b"  "), (ERROR, None), (ERROR, b"at last")], "at last"),
        ([(ERROR, b"broken \xff letter")], "broken \N{REPLACEMENT CHARACTER} letter"),
        ([(CONTINUED, b"... and more"), (99, b"a level of the future")], ""),
    ],
)
def test_the_complaint_is_the_most_telling_line(said: list[tuple[int, bytes | None]], complaint: str) -> None:
    """The first error is the reason, those after it are its consequences; dots are llama.cpp's progress bar."""
    with native.heard():
        for level, text in said:
            native._listen(level, text, None)
    assert native.complaint() == complaint
    with native.heard():
        assert native.complaint() == "", "each block begins afresh"


def test_the_log_is_silent_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[int, str]] = []

    class Root(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append((record.levelno, record.getMessage()))

    root = Root()
    logging.getLogger().addHandler(root)
    try:
        monkeypatch.setattr(native.logger, "propagate", False)
        native._listen(ERROR, b"unheard", None)
        assert heard == []
        native.show_log()
        native._listen(ERROR, b"heard", None)
        assert heard == [(logging.ERROR, "heard")]
    finally:
        logging.getLogger().removeHandler(root)


def test_a_function_that_this_build_lacks_is_none() -> None:
    assert native.experimental("llama_no_such_thing", "v", "v", [], None) is None


def test_the_build_says_what_it_is() -> None:
    assert native.version()
    assert "=" in native.system_info()


def test_ggml_is_the_one_that_llama_cpp_stands_on() -> None:
    """A wheel holds libggml-base.so and libggml-base.so.0 as two files, and loaded by its name the first is another
    library: of what is switched there (log, abort callback) llama.cpp never hears.
    """
    listener, data = ctypes.c_void_p(), ctypes.c_void_p()
    native.ggml("ggml-base").ggml_log_get(ctypes.byref(listener), ctypes.byref(data))
    assert listener.value == ctypes.cast(native._callback, ctypes.c_void_p).value
