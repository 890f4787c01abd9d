"""Chat templates: what they may do, what they are refused, and how their text becomes ids."""

from __future__ import annotations

import re
import resource
import sys
import time
from pathlib import Path

import pytest

from localspec.errors import TemplateError, UsageError
from localspec.services.chat.formats import CHATML, FORMATS
from localspec.services.chat.template import Template, begin_ids, chat_ids, choose, raw_ids
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
        # One step of C code each, which no clock interrupts.
        "{{ range(99999) | join('a' * 1000000) }}",
        "{{ ('a' * 1000000).join(range(99999) | list) }}",
        "{{ ('a' * 3000000) | replace('a', 'a' * 3000000) }}",
        "{{ ('a' * 3000000).replace('a', 'a' * 3000000) }}",
        "{{ ('a' * 3000000).translate({97: 'a' * 3000000}) }}",
        "{{ ('\t' * 3000000).expandtabs(3000000) }}",
        "{{ ('\n' * 3000000) | indent(3000000) }}",
        "{{ 'a'.encode().center(9999999999) }}",
        "{{ (1).to_bytes(9999999999, 'big') }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '%*d' | format(999999999, 1) }}",
        "{{ ('%s' * 1000000) % ('a' * 1000000) }}",
        "{{ '{:{w}}'.format_map({'w': 999999999, '': 1}) }}",
        "{{ ('{0}' * 100000).format('a' * 1000000) }}",
        "{{ [1] | batch(999999999, 'a') | list }}",
        "{{ messages | tojson(indent=999999999) }}",
        "{{ 'f' * 3000000 | int(base=16) }}{{ ('f' * 3000000) | int(base=16) % 7 }}",
        "{% set n = namespace(x=7) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}{{ n.x % 3 }}",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}"
        "{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
        "{{ n.x | tojson }}",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = dict(a=n.x, b=n.x) %}{% endfor %}"
        "{{ n.x | string }}",
        "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set y %}{{ n.x }}{{ n.x }}{% endset %}"
        "{% set n.x = y %}{% endfor %}",
        "{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = n.x + ['a' * 3000000] %}{% endfor %}",
        # jinja2 tries to compute this at every level again, and goes on after errors.
        "{{ " + "-" * 200 + "1 + messages }}{{ " + "not " * 150 + "(1 ~ [" + "-" * 300 + "a]) }}",
        "{% set y %}{% for i in range(99999) %}" + "a" * 100_000 + "{% endfor %}{% endset %}",
    ],
)
def test_b58_a_template_cannot_run_or_grow_without_end(source: str) -> None:
    """B58: an endless loop in a model file must not take the machine with it, nor one step that fills its memory."""
    started, before = time.monotonic(), peak_memory()
    with pytest.raises(TemplateError):
        Template(source, time_limit_s=0.2).render(TALK)
    assert time.monotonic() - started < 3
    assert peak_memory() - before < 300e6


def peak_memory() -> int:
    """Most bytes that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def test_b58_a_template_as_large_as_a_book_is_refused_before_it_is_read() -> None:
    with pytest.raises(TemplateError, match="has 400,000 characters"):
        Template("{{ 1 }}" * 50_000 + " " * 50_000).render(TALK)


def test_a_long_message_is_no_attack() -> None:
    """As long as a context of half a million tokens."""
    source = (
        "{% set parts = messages[0].content.split('</think>') %}{{ parts[-1].strip() | trim | length }} "
        "{{ messages[0].content.splitlines() | length }} {{ messages[0].content | replace('x', '') | upper | length }}"
    )
    text = "thoughts</think>" + "some words\n" * 200_000
    assert Template(source).render([{"role": "user", "content": text}]).split()[0] == "2199999"


def test_long_conversations_are_no_attack() -> None:
    """What is only looked at costs nothing: every turn of a long talk goes through the same lists many times."""
    talk = [SYSTEM] + [
        {"role": role, "content": "some words " * 300} for _ in range(100) for role in ("user", "assistant")
    ]
    source = (
        "{% for m in messages %}{% if messages | length > 1 and (messages | last).role == 'assistant' %}"
        "{{ (messages | selectattr('role', 'equalto', 'user') | list | length) and '' }}{% endif %}"
        "{% if '</think>' in m.content %}no{% else %}{{ m.role ~ ': ' + m.content | trim }}\n{% endif %}{% endfor %}"
    )
    assert Template(source).render(talk).count("assistant: some words") == 100


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
    file.write_text("{{ bos_token }}{{ messages[0].content }}", encoding="utf-8")
    assert choose(None, "own", bos="", eos="").source == "own"
    assert choose("chatml", "own", bos="", eos="").source == CHATML
    assert choose(str(file), "own", bos="<s>", eos="").render(TALK) == "<s>hello"
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


def test_any_text_is_no_template(tmp_path: Path) -> None:
    """A page of prose was taken for a template: every question got the same answer."""
    prose, shouting = tmp_path / "notes.txt", tmp_path / "shout.jinja"
    prose.write_text("Dear diary, {today} was fine.\n")
    shouting.write_text("{% for m in messages %}{{ m.content | upper }}{% endfor %}")
    with pytest.raises(UsageError, match="it is no chat template") as caught:
        choose(str(prose), None, bos="", eos="")
    assert "chatml" in caught.value.hint
    assert choose(str(shouting), None, bos="", eos="").render(TALK[:1]) == "HELLO"
