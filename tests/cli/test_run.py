"""`localspec run`: what stands on standard output, whatever the terminal, the code page and the interrupts."""

from __future__ import annotations

import json

import pytest

from localspec.cli.streams import harmless
from tests.cli.programs import Screen, piped

NO_TEMPLATE = {"template": None}


def test_a_pipe_holds_the_answer_and_nothing_else() -> None:
    done = piped(["run", "hi"], scripts=[{"text": "one two"}])
    assert (done.returncode, done.stdout, done.stderr) == (0, b"one two\n", b"")


def test_the_prompt_may_come_through_a_pipe() -> None:
    for arguments in (["run", "-"], ["run"]):
        done = piped([*arguments, "--json"], scripts=[{"text": "ok"}], stdin="one\ntwö\n".encode())
        assert json.loads(done.stdout)["prompt_tokens"] == len("one\ntwö".encode()) - 2  # "one" is one token
    assert piped(["run"], scripts=[], stdin=b"").returncode == 2


def test_json_is_one_document_with_the_contract_s_fields() -> None:
    done = piped(
        ["run", "--json", "--seed", "3", "--stop", "END", "--logit-bias", "5=-inf", "hi"], scripts=[{"text": "one two"}]
    )
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 1
    document = json.loads(lines[0])
    assert set(document) == {"schema", "text", "tokens", "finish_reason", "prompt_tokens", "settings", "stats"}
    assert document["schema"] == "localspec.run/1"
    assert (document["text"], document["finish_reason"]) == ("one two", "stop")
    asked = document["settings"]
    assert (asked["seed"], asked["stop"], asked["logit_bias"]) == (3, ["END"], {"5": "-inf"})
    assert asked["acceptance"] == "coupled", "what is in use, not null"
    assert (asked["temperature"], asked["top_k"], asked["top_p"], asked["min_p"]) == (0.8, 40, 0.95, 0.05)
    assert {"drafter", "N", "verifier_passes", "alpha", "tokens_per_s", "other_s"} <= set(document["stats"])


def test_b12_no_tokens_asked_for_no_tokens_given() -> None:
    """B12: --max-tokens 0 is answered at once with an empty text."""
    done = piped(["run", "--max-tokens", "0", "hi"], scripts=[{"text": "one two"}])
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_b20_a_legacy_code_page_shows_a_question_mark(encoding: str) -> None:
    """B20: printing an emoji killed the program, or was taken for a failure of the model."""
    more = {"PYTHONUTF8": "0", "PYTHONIOENCODING": encoding}
    done = piped(["run", "hi"], scripts=[{"text": "cat 🐈 é"}], more=more)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == "cat ? é\n".encode(encoding, "replace")
    document = json.loads(piped(["run", "--json", "hi"], scripts=[{"text": "cat 🐈 é"}], more=more).stdout)
    assert document["text"] == "cat 🐈 é"


def test_b25_ctrl_c_keeps_the_partial_text() -> None:
    """B25: exit 130 with the partial text shown."""
    screen = Screen(["run", "hi"], scripts=[{"text": "one two " + "more " * 500, "pause_s": 0.05}])
    screen.wait_for("one two")
    screen.press_ctrl_c()
    assert screen.end() == 130
    assert "one two" in screen.plain
    assert "stopped" in screen.plain
    assert "Traceback" not in screen.plain


def test_b25_ctrl_c_while_the_prompt_is_read() -> None:
    screen = Screen(["run", "--json", "hi"], scripts=[{"text": "never", "reading_s": 30}])
    screen.wait_for("reading the prompt")
    screen.press_ctrl_c()
    assert screen.end() == 130
    assert '"finish_reason": "interrupted"' in screen.plain


def test_b57_an_empty_raw_prompt_is_wrong_use() -> None:
    done = piped(["run", "--raw", ""], scripts=[{"text": "ok"}])
    assert done.returncode == 2
    assert b"empty" in done.stderr


def test_b58_no_template_says_what_to_do_and_raw_still_works() -> None:
    """B58: a base model has no template; guessing one makes it ramble."""
    done = piped(["run", "hi"], scripts=[{"text": "ok"}], runtime=NO_TEMPLATE)
    assert done.returncode == 1
    assert b"no chat template" in done.stderr
    assert b"--raw" in done.stderr
    assert piped(["run", "--raw", "hi"], scripts=[{"text": "ok"}], runtime=NO_TEMPLATE).stdout == b"ok\n"
    assert piped(["run", "--template", "chatml", "hi"], scripts=[{"text": "ok"}], runtime=NO_TEMPLATE).stdout == b"ok\n"


def test_b59_a_system_message_that_the_template_refuses() -> None:
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}hi"
    done = piped(["run", "--system", "x", "hi"], scripts=[{"text": "ok"}], runtime={"template": refusing})
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: this model's chat template takes no system message\nhint: ")


def test_b70_a_warning_is_shown_once_and_the_answer_comes() -> None:
    """B70: a draft that could not be used was passed over in silence."""
    warning = "Drafter model cannot be used, plain decoding goes on: the file is cut."
    done = piped(["run", "hi"], scripts=[{"text": "ok"}], runtime={"warnings": [warning, warning]})
    assert (done.returncode, done.stdout) == (0, b"ok\n")
    assert done.stderr.decode() == f"warning: {warning}\n"


def test_a_model_cannot_operate_the_terminal() -> None:
    """An answer may hold escape sequences: they are shown on a terminal and passed on in a pipe."""
    evil = "a \x1b]0;owned\x07 \x1b[2J b\x9b1m"
    assert piped(["run", "hi"], scripts=[{"text": evil}]).stdout.decode() == evil + "\n"
    screen = Screen(["run", "hi"], scripts=[{"text": evil}], more={"NO_COLOR": "1"})
    assert screen.end() == 0
    assert "\x1b" not in screen.seen
    assert "a ␛]0;owned␇ ␛[2J b\ufffd1m" in screen.seen
    assert harmless("é\n\t🐈") == "é\n\t🐈"


def test_the_footer_is_for_people() -> None:
    screen = Screen(["run", "hi"], scripts=[{"text": "one two"}])
    assert screen.end() == 0
    assert "tok/s" in screen.plain
    assert "% accepted" in screen.plain
