"""Chat templates: what they may do, what they are refused, and how their text becomes ids."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from localspec.errors import TemplateError, UsageError
from localspec.services.formats import CHATML, FORMATS
from localspec.services.template import Template, begin_ids, chat_ids, choose, raw_ids
from tests.services.fakes import BOS, START, FakeVocab

TALK = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": "one two"},
    {"role": "user", "content": "and?"},
]
SYSTEM = {"role": "system", "content": "Be brief."}


def test_chatml_is_written_as_the_models_read_it() -> None:
    assert Template(CHATML).render([SYSTEM, *TALK]) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n"
        "<|im_start|>assistant\none two<|im_end|>\n<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("name", FORMATS)
def test_every_named_format_keeps_what_was_said(name: str) -> None:
    """A rendering begins with the rendering of its beginning, up to the answer: so a cache lasts."""
    template = Template(FORMATS[name], "<s>", "</s>")
    first = template.render([SYSTEM, TALK[0]])
    whole = template.render([SYSTEM, *TALK])
    assert whole.startswith(first.rstrip(" "))
    assert whole[len(first) :].lstrip().startswith("one two")
    for text in ("Be brief.", "hello", "one two", "and?"):
        assert whole.count(text) == 1
    assert "{" not in whole


def test_what_transformers_offers_is_there() -> None:
    source = (
        "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}"
        "{% generation %}{{ m | tojson }}{% endgeneration %}{% endfor %}"
        "{{ strftime_now('%Y') | length }}{{ tools is none }}{{ '%02d' | format(3) }}{{ 'a{}'.format(1) ~ 2 }}"
    )
    assert Template(source).render([{"role": "user", "content": "<b> é"}]) == (
        '{"role": "user", "content": "<b> é"}4True03a12'
    )


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("one\ntwo {% if %}", "broken in line 2"),
        ("{{ 'a' | nofilter }}", "No filter named 'nofilter'"),
        ("\n\n{{ messages[0].content + none }}", "fails in line 3"),
        ("{{ missing.thing }}", "'missing' is undefined"),
        ("{{ raise_exception('Roles must alternate') }}", "refuses these messages: Roles must alternate"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
    ],
)
def test_b58_a_broken_template_is_one_sentence(source: str, sentence: str) -> None:
    """B58: templates that jinja cannot read or run used to end in a traceback."""
    with pytest.raises(TemplateError, match=re.escape(sentence)) as caught:
        Template(source).render(TALK)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{{ messages[0].content * 200 }}{% endfor %}",
        "{{ 'a' * 999999999 }}",
        "{{ 10 ** 10 ** 10 }}{{ 10 ** 9999999 }}",
        "{{ 'a' | center(999999999) }}",
        "{{ 'a'.center(999999999) }}",
        "{{ '{:>999999999}'.format(1) }}",
        "{{ '%0999999999d' % 1 }}",
        "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    ],
)
def test_b58_a_template_cannot_run_or_grow_without_end(source: str) -> None:
    """B58: an endless loop in a model file must not take the machine with it."""
    started = time.monotonic()
    with pytest.raises(TemplateError):
        Template(source, time_limit_s=0.3).render(TALK)
    assert time.monotonic() - started < 3


def test_the_clock_leaves_no_trace_function_behind() -> None:
    before = sys.gettrace()
    Template(CHATML).render(TALK)
    assert sys.gettrace() is before


def test_b58_none_as_content_is_the_template_s_affair() -> None:
    assert Template("{{ messages[0].content or 'nothing' }}").render([{"role": "user", "content": None}]) == "nothing"


def test_b59_a_template_without_system_role_says_so() -> None:
    """B59: Gemma-like templates raise on a system message; people saw a traceback."""
    source = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}ok"
    assert Template(source).render(TALK) == "ok"
    with pytest.raises(TemplateError, match="takes no system message") as caught:
        Template(source).render([SYSTEM, *TALK])
    assert "first message" in caught.value.hint


def test_a_template_that_is_broken_anyway_is_not_blamed_on_the_system_message() -> None:
    with pytest.raises(TemplateError, match="refuses these messages: always"):
        Template("{{ raise_exception('always') }}").render([SYSTEM, *TALK])


def test_b58_no_template_is_never_a_silent_guess() -> None:
    with pytest.raises(TemplateError, match="no chat template") as caught:
        choose(None, None, bos="", eos="")
    assert "--raw" in caught.value.hint
    assert "chatml" in caught.value.hint


def test_a_template_by_name_file_or_from_the_model(tmp_path: Path) -> None:
    file = tmp_path / "my format.jinja"
    file.write_text("{{ bos_token }}hi", encoding="utf-8")
    assert choose(None, "own", bos="", eos="").source == "own"
    assert choose("chatml", "own", bos="", eos="").source == CHATML
    assert choose(str(file), "own", bos="<s>", eos="").render(TALK) == "<s>hi"
    with pytest.raises(UsageError, match="nosuch") as caught:
        choose("nosuch", "own", bos="", eos="")
    assert "llama3" in caught.value.hint


@pytest.mark.parametrize("adds_bos", [True, False])
@pytest.mark.parametrize("written", [True, False])
def test_b08_begin_of_text_stands_once(adds_bos: bool, written: bool) -> None:
    """B08: template and tokenizer both wrote BOS, so models read it twice and answered worse."""
    vocab = FakeVocab(adds_bos=adds_bos)
    ids = chat_ids(("<s>" if written else "") + "<|im_start|>user\nhello", vocab, "<s>")
    assert ids.count(BOS) == (1 if adds_bos or written else 0)
    assert ids[1 if BOS in ids else 0] == START


def test_b08_a_turn_start_that_is_also_bos_is_not_doubled() -> None:
    """B08: SmolLM2's BOS is the token that opens a turn; "add it when missing" would open a turn too many."""
    vocab = FakeVocab(adds_bos=False)
    assert chat_ids("<|im_start|>user", vocab, "<|im_start|>").count(START) == 1


def test_b08_a_raw_prompt_with_bos_is_kept_as_typed() -> None:
    vocab = FakeVocab(adds_bos=True)
    assert raw_ids("<s>hello", vocab, "<s>") == (raw_ids("hello", vocab, "<s>")[0], True)
    assert raw_ids("hello", vocab, "<s>")[1] is False
    assert raw_ids("<s>hello", FakeVocab(), "<s>")[1] is False


@pytest.mark.parametrize("text", [" ", "\n", "<|im_end|>", "a"])
def test_b57_short_prompts_have_tokens(text: str) -> None:
    assert raw_ids(text, FakeVocab(), "<s>")[0]


def test_b57_no_token_at_all_is_wrong_use() -> None:
    """B57: a model without BOS has zero tokens for an empty prompt, and engines crashed on them."""
    with pytest.raises(UsageError, match="empty"):
        raw_ids("", FakeVocab(), "<s>")
    assert raw_ids("", FakeVocab(adds_bos=True), "<s>")[0] == [BOS]


def test_an_end_token_that_the_tokenizer_adds_is_not_part_of_a_prompt() -> None:
    class AddsBoth(FakeVocab):
        def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
            ids = super().tokenize(text, add_special=False, parse_special=parse_special)
            return [BOS, *ids, 2] if add_special else ids

    assert begin_ids(AddsBoth(), "<s>") == [BOS]
    assert chat_ids("hello", AddsBoth(), "<s>")[-1] != 2
