"""Conversations: which ids come before the model, turn after turn, and what is kept when something goes wrong."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.core.sampling import Sampling
from localspec.errors import ContextFullError, DecodeError, TemplateError, UsageError
from localspec.services.chat.chat import Conversation
from localspec.services.chat.formats import CHATML, PLAIN
from localspec.services.chat.template import Template, chat_ids
from localspec.services.settings import AnswerSettings
from tests.services.fakes import CONTROL, FakeRuntime, FakeVocab, Script

PLAINLY = AnswerSettings(Sampling())
TRIMMING = CHATML.replace("{{ message.content }}", "{{ message.content | trim }}")
# Like the templates of reasoning models: what stands before </think> is left out of old answers.
FORGETTING = CHATML.replace("{{ message.content }}", "{{ message.content.split('</think>')[-1] }}")


def say(conversation: Conversation, text: str, settings: AnswerSettings = PLAINLY) -> str:
    return "".join(piece.text for piece in conversation.ask(text, settings))


def spelled(ids: list[int], vocab: FakeVocab) -> str:
    return b"".join(vocab.piece(token, special=True) for token in ids).decode()


def text_of(runtime: FakeRuntime, at: int = -1) -> str:
    return spelled(runtime.prompts[at], runtime.vocab)


def fresh(runtime: FakeRuntime, template: str) -> list[int]:
    """The last prompt's ids in a session that never saw a model: the rendering, encoded at once."""
    return chat_ids(text_of(runtime), runtime.vocab, "<s>")


@pytest.mark.parametrize("source", [CHATML, "{{ bos_token }}" + CHATML, PLAIN])
@pytest.mark.parametrize("vocab", [FakeVocab(), FakeVocab(adds_bos=True)])
def test_a_second_turn_evaluates_only_what_is_new(source: str, vocab: FakeVocab) -> None:
    answer = " hello world" if source == PLAIN else "hello world"
    runtime = FakeRuntime([Script(answer)] * 3, vocab=vocab)
    conversation = Conversation(runtime, Template(source, "<s>"), system="Be brief.")
    held: list[int] = []
    for _ in range(3):
        say(conversation, "one two three")
        # The last token of an answer is pending, not cached, so one token more than the new text is evaluated.
        assert runtime.evaluated[-1] <= len(runtime.prompts[-1]) - len(held)
        held = list(runtime.cache)
    assert text_of(runtime).count("hello world") == 2
    assert runtime.prompts[-1].count(0) == (1 if vocab.adds_bos or "bos_token" in source else 0)


def test_b36_sampled_ids_are_kept_while_their_bytes_agree() -> None:
    """B36: re-encoding an answer gives other ids than were sampled, so everything behind it was evaluated again."""
    vocab = FakeVocab()
    odd = (*vocab.spell("hello world"), 2)
    runtime = FakeRuntime([Script("hello world", odd), Script("ok")], vocab=vocab)
    conversation = Conversation(runtime, Template(CHATML))
    say(conversation, "hi")
    first = len(runtime.prompts[0])
    say(conversation, "again")
    assert runtime.prompts[1][first : first + len(odd)] == list(odd)
    assert runtime.prompts[1] != fresh(runtime, CHATML)
    new = "\n<|im_start|>user\nagain<|im_end|>\n<|im_start|>assistant\n"
    assert runtime.evaluated[1] == 1 + len(vocab.tokenize(new, add_special=False, parse_special=True))
    assert text_of(runtime).endswith("hello world<|im_end|>" + new)


@pytest.mark.parametrize(
    ("source", "answer", "seen"),
    [(TRIMMING, "hello  ", "hello<|im_end|>"), (FORGETTING, "one</think>two", "assistant\ntwo<|im_end|>")],
)
def test_b36_a_template_that_changes_old_answers_decides(source: str, answer: str, seen: str) -> None:
    """B36: new text was appended to a cache whose old turn the template had changed: silently a wrong prompt."""
    runtime = FakeRuntime([Script(answer), Script("ok"), Script("ok")])
    conversation = Conversation(runtime, Template(source))
    say(conversation, "hi")
    say(conversation, "and")
    assert seen in text_of(runtime)
    assert runtime.prompts[1] == fresh(runtime, source)
    unchanged = len(runtime.prompts[0])
    assert runtime.evaluated[1] < len(runtime.prompts[1]) - unchanged + 2
    say(conversation, "more")
    assert runtime.prompts[2] == fresh(runtime, source)


def test_b16_an_answer_cut_by_a_stop_string_is_encoded_anew() -> None:
    """B16: ids that spell more or less than the visible text must not be reused."""
    vocab = FakeVocab()
    short = tuple(vocab.encode("hello"))  # the token that straddled the stop is gone, its visible part " wor" is not
    runtime = FakeRuntime([Script("hello wor", short), Script("ok")], vocab=vocab)
    conversation = Conversation(runtime, Template(CHATML))
    say(conversation, "hi")
    say(conversation, "and")
    assert "hello wor<|im_end|>" in text_of(runtime)
    assert runtime.prompts[1] == fresh(runtime, CHATML)


def test_a_tokenizer_that_puts_a_blank_before_text_gives_the_ids_of_the_whole() -> None:
    vocab = FakeVocab(space_prefix=True, adds_bos=True)
    runtime = FakeRuntime([Script("one two")] * 2, vocab=vocab)
    conversation = Conversation(runtime, Template(CHATML, "<s>"))
    say(conversation, "hi")
    say(conversation, "and")
    rendering = Template(CHATML).render(
        [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "one two"},
            {"role": "user", "content": "and"},
        ]
    )
    first = len(runtime.prompts[0])
    assert runtime.prompts[1][:first] == chat_ids(rendering, vocab, "<s>")[:first]
    tail = rendering[rendering.index("one two") + len("one two") :]
    assert spelled(runtime.prompts[1], vocab).endswith(
        spelled(vocab.tokenize(tail, add_special=False, parse_special=True), vocab)
    )


def test_b25_an_interrupted_answer_stays_and_the_next_turn_reuses_it() -> None:
    """B25: interrupting threw the whole cache away, or left text and cache different."""
    runtime = FakeRuntime([Script("one two three four"), Script("ok")])
    conversation = Conversation(runtime, Template(CHATML))
    reply = conversation.ask("count", PLAINLY)
    shown = ""
    for piece in reply:
        shown += piece.text
        if shown == "one two":
            break
    gc.collect()  # where the generator behind the loop is not closed at once
    assert reply.answer is not None
    assert reply.answer.finish_reason == "interrupted"
    assert [(turn.answer, turn.finish_reason) for turn in conversation.turns] == [(shown, "interrupted")]
    say(conversation, "go on")
    assert f"{shown}<|im_end|>" in text_of(runtime)
    assert runtime.evaluated[1] < len(runtime.prompts[1]) - len(runtime.prompts[0])


def test_b25_a_message_stopped_before_its_answer_is_taken_back() -> None:
    """B25, during prompt evaluation: two user turns in a row are what many templates refuse."""
    runtime = FakeRuntime([Script("never"), Script("ok")])
    conversation = Conversation(runtime, Template(CHATML))
    reply = conversation.ask("hi", PLAINLY, cancelled=lambda: True)
    assert list(reply) == []
    assert conversation.turns == []
    assert say(conversation, "hi") == "ok"


def test_an_error_in_the_middle_keeps_what_was_said() -> None:
    runtime = FakeRuntime([Script("one two", error=DecodeError("device lost")), Script("ok")])
    conversation = Conversation(runtime, Template(CHATML))
    with pytest.raises(DecodeError):
        say(conversation, "count")
    assert conversation.turns[0].answer == "one two"
    assert say(conversation, "go on") == "ok"


def test_undo_reset_and_system() -> None:
    runtime = FakeRuntime([Script("one"), Script("two"), Script("three"), Script("ok")])
    conversation = Conversation(runtime, Template(CHATML), system="Be brief.")
    say(conversation, "first")
    say(conversation, "second")
    assert conversation.undo().user == "second"
    say(conversation, "third")
    assert "second" not in text_of(runtime)
    assert "first" in text_of(runtime)
    conversation.reset()
    conversation.instruct("Be long.")
    say(conversation, "fourth")
    assert text_of(runtime).startswith("<|im_start|>system\nBe long.<|im_end|>\n<|im_start|>user\nfourth")
    conversation.reset()
    with pytest.raises(UsageError):
        conversation.undo()


def test_retry_answers_anew_with_the_next_seed() -> None:
    """With a seed the same prompt gives the same text, so a retry that keeps the seed would be pointless."""
    runtime = FakeRuntime([Script(text) for text in ("one", "two", "three", "four")])
    conversation = Conversation(runtime, Template(CHATML))
    seeded = replace(PLAINLY, seed=7)
    say(conversation, "hi", seeded)
    for _ in range(2):
        list(conversation.retry(seeded))
    assert [settings.seed for settings, _ in runtime.asked] == [7, 8, 9]
    assert [turn.answer for turn in conversation.turns] == ["three"]
    assert runtime.prompts[0] == runtime.prompts[1] == runtime.prompts[2]
    say(conversation, "next", seeded)
    assert runtime.asked[-1][0].seed == 7


def test_a_retry_that_cannot_be_answered_keeps_the_old_answer() -> None:
    """With a longer system message the last message did not fit any more, and asking for a retry lost its answer."""
    runtime = FakeRuntime([Script("one"), Script("two")], context_size=60)
    conversation = Conversation(runtime, Template(CHATML))
    say(conversation, "hi")
    conversation.instruct("x" * 60)
    before = list(conversation.turns)
    with pytest.raises(ContextFullError):
        conversation.retry(PLAINLY)
    assert conversation.turns == before
    conversation.instruct(None)
    assert "".join(piece.text for piece in conversation.retry(PLAINLY)) == "two"


def test_a_retry_that_is_stopped_at_once_keeps_the_old_answer() -> None:
    runtime = FakeRuntime([Script("one"), Script("never")])
    conversation = Conversation(runtime, Template(CHATML))
    say(conversation, "hi")
    list(conversation.retry(PLAINLY, cancelled=lambda: True))
    assert [turn.answer for turn in conversation.turns] == ["one"]


def test_b50_oldest_turns_make_room_and_the_system_message_stays() -> None:
    """B50: a full context lost its beginning, system message first, without a word."""
    runtime = FakeRuntime([Script("hello world")] * 30, context_size=256)
    conversation = Conversation(runtime, Template(CHATML), system="Be brief.")
    dropped = 0
    for turn in range(30):
        reply = conversation.ask(f"message {turn}", PLAINLY)
        list(reply)
        dropped += reply.dropped
        assert len(runtime.prompts[-1]) < 256
        assert text_of(runtime).startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nmessage ")
        assert text_of(runtime).count("<|im_start|>user") == turn + 1 - dropped
    assert dropped == conversation.dropped > 0
    assert len(conversation.turns) == 30
    # Room is made for several turns at once, else each turn would move all text and evaluate everything anew.
    assert sum(count > 100 for count in runtime.evaluated) < 10


def test_b50_a_message_larger_than_the_context_is_refused_and_nothing_is_lost() -> None:
    runtime = FakeRuntime([Script("ok")] * 2, context_size=128)
    conversation = Conversation(runtime, Template(CHATML))
    say(conversation, "hi")
    with pytest.raises(ContextFullError, match="128") as caught:
        conversation.ask("x" * 300, PLAINLY)
    assert "--ctx-size" in caught.value.hint
    assert (len(conversation.turns), conversation.dropped) == (1, 0)
    say(conversation, "there")
    assert "hi<|im_end|>" in text_of(runtime)


def test_b59_a_refused_system_message_changes_nothing() -> None:
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHATML
    runtime = FakeRuntime([Script("ok")])
    with pytest.raises(TemplateError, match="takes no system message"):
        Conversation(runtime, Template(refusing), system="Be brief.")
    conversation = Conversation(runtime, Template(refusing))
    with pytest.raises(TemplateError):
        conversation.instruct("Be brief.")
    assert conversation.system is None
    assert say(conversation, "hi") == "ok"


def test_a_system_message_that_a_template_swallows_is_noticed() -> None:
    deaf = "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}"
    assert not Conversation(FakeRuntime(), Template(deaf), system="Be brief.").hears_system
    assert Conversation(FakeRuntime(), Template(deaf)).hears_system
    assert Conversation(FakeRuntime(), Template(CHATML), system="Be brief.").hears_system


def test_a_saved_conversation_goes_on_with_the_very_same_ids(tmp_path: Path) -> None:
    vocab = FakeVocab()
    odd = (*vocab.spell("hello world"), 2)
    runtime = FakeRuntime([Script("hello world", odd), Script("ünïcode 🐈"), Script("ok")], vocab=vocab)
    conversation = Conversation(runtime, Template(CHATML), system="Be brief.")
    say(conversation, "hi")
    say(conversation, "half a code point \ud83d")
    file = tmp_path / "talk.json"
    conversation.save(file)
    assert [path.name for path in tmp_path.iterdir()] == ["talk.json"]

    other = FakeRuntime([Script("ok")], vocab=vocab)
    again = Conversation(other, Template(CHATML))
    again.load(file)
    assert (again.system, again.turns) == (conversation.system, conversation.turns)
    say(conversation, "and")
    say(again, "and")
    assert other.prompts[-1] == runtime.prompts[-1]
    first = len(runtime.prompts[0])
    assert other.prompts[-1][first : first + len(odd)] == list(odd)


def test_ids_of_another_vocabulary_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello", "tokens": [99999, -3, 1], "finish_reason": "odd"},
    ]
    file.write_text(json.dumps({"schema": "localspec.conversation/1", "messages": messages}), encoding="utf-8")
    runtime = FakeRuntime([Script("ok")])
    conversation = Conversation(runtime, Template(CHATML))
    conversation.load(file)
    say(conversation, "and")
    assert runtime.prompts[0] == fresh(runtime, CHATML)
    assert CONTROL[1] + "assistant\nhello<|im_end|>" in text_of(runtime)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is not JSON"),
        ('{"schema": "localspec.conversation/1", "messages": [{"role": "us', "is not JSON"),
        ("[1, 2]", "holds no conversation"),
        ('{"schema": "localspec.conversation/9", "messages": []}', "localspec.conversation/9"),
        ('{"schema": "localspec.conversation/1", "messages": [3]}', "number 1"),
        ('{"schema": "localspec.conversation/1", "messages": [{"role": "user", "content": "a"}]}', "back"),
        ('{"schema": "localspec.conversation/1", "messages": [{"role": "user", "content": null}]}', "number 1"),
    ],
)
def test_a_damaged_file_is_explained_and_the_conversation_stays(tmp_path: Path, content: str, sentence: str) -> None:
    file = tmp_path / "talk.json"
    file.write_text(content, encoding="utf-8")
    conversation = Conversation(FakeRuntime([Script("ok")]), Template(CHATML))
    say(conversation, "hi")
    with pytest.raises(UsageError, match=sentence):
        conversation.load(file)
    with pytest.raises(UsageError, match="cannot read"):
        conversation.load(tmp_path / "missing.json")
    assert len(conversation.turns) == 1


def test_a_file_that_cannot_be_written_is_explained_and_the_old_one_stays(tmp_path: Path) -> None:
    conversation = Conversation(FakeRuntime([Script("ok")]), Template(CHATML))
    with pytest.raises(UsageError, match="cannot write"):
        conversation.save(tmp_path / "no" / "talk.json")
    folder = tmp_path / "taken"
    folder.mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        conversation.save(folder)
    assert list(tmp_path.iterdir()) == [folder]
