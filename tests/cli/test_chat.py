"""`localspec chat`: lines through a pipe, and a person at a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import Screen, piped

COUNTING = {"text": "one two " + "more " * 400, "pause_s": 0.03}


def talk(lines: bytes, *texts: str, arguments: Sequence[str] = (), **more: Any) -> tuple[int, list[str], str]:
    """Exit code, answers, what was said on standard error."""
    done = piped(["chat", *arguments], scripts=[{"text": text} for text in texts], stdin=lines, **more)
    return done.returncode, done.stdout.decode().splitlines(), done.stderr.decode()


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    """An own folder for the history of a test."""
    return {"XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}


def at_prompt(screen: Screen, keys: str = "") -> None:
    """Wait for the next prompt and type."""
    screen.wait_for_prompt()
    screen.type(keys)


LEAVE = "\x04"


def test_b23_piped_lines_are_answered_in_order() -> None:
    """B23: the last line has no line break, empty lines are not for the model, and the end is no failure."""
    assert talk(b"hi\n\n   \nbye", "first", "second") == (0, ["first", "second"], "")


def test_b23_no_input_at_all_is_fine() -> None:
    assert talk(b"") == (0, [], "")


def test_b21_a_piped_chat_holds_no_escapes() -> None:
    done = piped(["chat"], scripts=[{"text": "one"}, {"text": "two"}], stdin=b"/show drafts\nhi\n/stats\nbye\n/help\n")
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"\r" not in done.stdout + done.stderr
    assert done.stdout == b"one\ntwo\n"


def test_b20_a_legacy_code_page() -> None:
    more = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "cp1252"}
    done = piped(["chat"], scripts=[{"text": "cat 🐈"}], stdin="é\n".encode("cp1252"), more=more)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"cat ?\n", b"")


def test_b58_a_model_without_template_is_not_talked_to() -> None:
    code, answers, said = talk(b"hi\n", "ok", runtime={"template": None})
    assert (code, answers) == (1, [])
    assert "no chat template" in said
    assert "localspec run --raw" in said
    assert talk(b"hi\n", "ok", runtime={"template": None}, arguments=["--template", "plain"])[:2] == (0, ["ok"])


def test_b59_a_refused_system_message_is_one_sentence() -> None:
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}hi"
    code, _, said = talk(b"hi\n", "ok", arguments=["--system", "x"], runtime={"template": refusing})
    assert code == 1
    assert said.splitlines()[0] == "error: this model's chat template takes no system message"


def test_a_system_message_that_is_left_out_is_told() -> None:
    deaf = "{{ messages[-1].content }}"
    assert (
        "leaves the system message out"
        in talk(b"hi\n", "ok", arguments=["--system", "x"], runtime={"template": deaf})[2]
    )


def test_b70_a_warning_is_shown_once_in_a_chat() -> None:
    code, answers, said = talk(b"hi\nbye\n", "one", "two", runtime={"warnings": ["the drafter is switched off"]})
    assert (code, answers) == (0, ["one", "two"])
    assert said == "warning: the drafter is switched off\n"


def test_b50_dropped_turns_are_told_and_a_huge_message_is_refused() -> None:
    lines = b"".join(b"message number %d\n" % number for number in range(8)) + b"x" * 300 + b"\nbye\n"
    code, answers, said = talk(lines, *["hello world"] * 9, runtime={"context_size": 128})
    assert code == 1
    assert len(answers) == 9
    assert "The context is full: " in said
    assert "oldest turns are left out" in said
    assert "the context holds 128" in said


def test_commands_in_a_pipe(tmp_path: Path) -> None:
    file = tmp_path / "my talk.json"
    lines = f"""hi
/retry
/set temperature 0.5
/set N 4
/set nosuch 1
/temprature
/spec off
/undo
bye
/save {file}
/reset
/load {file}
/quit
never
"""
    code, answers, said = talk(lines.encode(), "one", "two", "three", "never")
    assert answers == ["one", "two", "three"]
    assert code == 1
    assert "temperature is 0.5 from the next answer on." in said
    assert "N is 4 from the next answer on." in said
    assert "there is no setting nosuch" in said
    assert "there is no command /temprature" in said
    assert f"Loaded: {file}, turns: 1." in said
    messages = json.loads(file.read_text())["messages"]
    assert [message["content"] for message in messages] == ["bye", "three"]


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("/sav x", "Did you mean /save"),
        ("/xyzzy", "/help lists the commands"),
        ("/set temprature 1", "Did you mean temperature"),
        ("/set temperature", "needs a value; it is 0.8"),
        ("/set temperature -1", "must be 0 (greedy) or more"),
        ("/set acceptance typical", "rejection, coupled"),
        ("/spec maybe", "on or off"),
        ("/show colours", "drafts or plain"),
        ("/save", "needs a file name"),
        ("/load /no/such/file", "cannot read"),
        ("/load /dev/zero", "File too large"),
        ("/stats", "before the first answer"),
        ("/undo", "no message to go back to"),
        ("/retry", "no message to go back to"),
    ],
)
def test_a_command_that_cannot_be_done_says_why(line: str, part: str) -> None:
    code, answers, said = talk(f"{line}\nhi\n".encode(), "ok")
    assert (code, answers) == (1, ["ok"])
    assert part in said
    assert said.startswith("error: ")
    assert len(said.splitlines()) == 2


def test_the_hint_of_spec_is_the_other_way() -> None:
    assert "it is off\nhint: Try /spec on." in talk(b"/spec off\n/spec maybe\n")[2]


def test_two_slashes_begin_a_message_with_one() -> None:
    assert talk(b"//help\n", "ok") == (0, ["ok"], "")


def test_settings_are_listed_by_their_names() -> None:
    said = talk(b"/set max-tokens 7\n/set stop END\n/set seed 3\n/set\n")[2]
    for name, value in (
        ("max-tokens", "7"),
        ("stop", "'END'"),
        ("seed", "3"),
        ("acceptance", "coupled"),
        ("N", "auto"),
    ):
        assert any(line.split() == [name, value] for line in said.splitlines())


def test_a_person_at_a_terminal(state: dict[str, str]) -> None:
    screen = Screen(["chat"], scripts=[{"text": "cat 🐈 one"}, {"text": "two"}], more=state)
    screen.wait_for("fake · ngram N=auto")
    screen.wait_for("on CPU")
    at_prompt(screen, "hi\r")
    screen.wait_for("cat 🐈 one\n")
    screen.wait_for("tok/s")
    at_prompt(screen, LEAVE)
    assert screen.end() == 0
    assert "Traceback" not in screen.plain


def test_b25_ctrl_c_stops_the_answer_and_keeps_the_conversation(state: dict[str, str], tmp_path: Path) -> None:
    """B25: the partial answer stays, marked; the next turn goes on from it."""
    screen = Screen(["chat"], scripts=[COUNTING, {"text": "fine"}], more=state)
    at_prompt(screen, "count\r")
    screen.wait_for("more more")
    screen.press_ctrl_c()
    screen.wait_for("stopped")
    at_prompt(screen, "go on\r")
    screen.wait_for("fine\n")
    at_prompt(screen, f"/save {tmp_path}/talk.json\r")
    screen.wait_for("Saved")
    at_prompt(screen, LEAVE)
    assert screen.end() == 0
    first, second = json.loads((tmp_path / "talk.json").read_text())["messages"][1::2]
    assert first["finish_reason"] == "interrupted"
    assert first["content"].startswith("one two")
    assert second["finish_reason"] == "stop"


def test_b25_ctrl_c_before_the_first_word_gives_the_message_back(state: dict[str, str], tmp_path: Path) -> None:
    screen = Screen(["chat"], scripts=[{"text": "never", "reading_s": 30}, {"text": "fine"}], more=state)
    at_prompt(screen, "question\r")
    screen.wait_for("reading the prompt")
    screen.press_ctrl_c()
    screen.wait_for("the message is yours again")
    at_prompt(screen, " again\r")
    screen.wait_for("fine\n")
    at_prompt(screen, f"/save {tmp_path}/talk.json\r")
    screen.wait_for("Saved")
    at_prompt(screen, LEAVE)
    assert screen.end() == 0
    messages = json.loads((tmp_path / "talk.json").read_text())["messages"]
    assert [message["content"] for message in messages] == ["question again", "fine"]


def test_b25_two_ctrl_c_at_the_prompt_leave(state: dict[str, str]) -> None:
    screen = Screen(["chat"], scripts=[], more=state)
    at_prompt(screen, "thought")
    screen.wait_for("thought")
    screen.press_ctrl_c()  # empties the line
    screen.press_ctrl_c()
    screen.wait_for("Press Ctrl-C once more")
    screen.wait_for_prompt()
    screen.press_ctrl_c()
    assert screen.end() == 0


def test_several_lines_make_one_message_and_a_history(state: dict[str, str], tmp_path: Path) -> None:
    screen = Screen(["chat"], scripts=[{"text": "fine"}], more=state)
    at_prompt(screen, "one\\\rtwo\x1b\rthree\r")
    screen.wait_for("fine\n")
    at_prompt(screen, f"/save {tmp_path}/talk.json\r")
    screen.wait_for("Saved")
    at_prompt(screen, LEAVE)
    assert screen.end() == 0
    assert json.loads((tmp_path / "talk.json").read_text())["messages"][0]["content"] == "one\ntwo\nthree"
    assert "+three" in (tmp_path / "localspec" / "history").read_text()


def test_b50_a_refused_message_can_be_edited(state: dict[str, str]) -> None:
    screen = Screen(["chat"], scripts=[{"text": "fine"}], runtime={"context_size": 64}, more=state)
    at_prompt(screen, "x" * 70 + "\r")
    screen.wait_for("the context holds 64")
    at_prompt(screen, "\x7f" * 40 + "\r")
    screen.wait_for("fine\n")
    at_prompt(screen, LEAVE)
    assert screen.end() == 0


def test_accepted_draft_tokens_are_coloured_when_asked(state: dict[str, str]) -> None:
    screen = Screen(["chat"], scripts=[{"text": "one two three"}, {"text": "four five"}], more=state)
    at_prompt(screen, "/show drafts\r")
    screen.wait_for("are green")
    at_prompt(screen, "hi\r")
    screen.wait_for("tok/s")
    assert "one \x1b[32mtwo\x1b[39m three" in screen.seen
    at_prompt(screen, "/show plain\r")
    screen.wait_for("shown plainly")
    at_prompt(screen, "hi\r")
    screen.wait_for("four five\n")
    assert "four five" in screen.seen
    at_prompt(screen, LEAVE)
    assert screen.end() == 0


def test_commands_are_completed(state: dict[str, str]) -> None:
    screen = Screen(["chat"], scripts=[], more=state)
    at_prompt(screen, "/sp")
    screen.wait_for("speculation")  # its line in the menu
    screen.type("\t off\r")
    screen.wait_for("Speculation is off")
    at_prompt(screen, LEAVE)
    assert screen.end() == 0


def test_keys_pressed_during_an_answer_wait_for_the_prompt(state: dict[str, str]) -> None:
    """They used to stand in the middle of the model's words."""
    screen = Screen(["chat"], scripts=[{"text": "one two three four", "pause_s": 0.3}, {"text": "fine"}], more=state)
    at_prompt(screen, "hi\r")
    screen.wait_for("one")
    screen.type("early\r")
    screen.wait_for(" two three four\n")
    screen.wait_for("fine\n")
    at_prompt(screen)
    at_prompt(screen, LEAVE)
    assert screen.end() == 0


def test_a_history_that_cannot_be_written_does_not_matter(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    screen = Screen(["chat"], scripts=[{"text": "fine"}], more={"XDG_STATE_HOME": str(blocked)})
    at_prompt(screen, "hi\r")
    screen.wait_for("fine\n")
    at_prompt(screen, LEAVE)
    assert screen.end() == 0
