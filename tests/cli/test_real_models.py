"""Commands and conversations on real weights: what is evaluated, what the JSON promises, what the prompt's ids are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.cli.app import main
from localspec.core.sampling import Sampling
from localspec.services.chat.chat import Conversation
from localspec.services.chat.template import choose, raw_ids
from localspec.services.report import Silent
from localspec.services.runtime import Runtime
from localspec.services.settings import AnswerSettings, EngineSettings, PairChoice

pytestmark = pytest.mark.gguf

GREEDY = AnswerSettings(Sampling(temperature=0.0), max_tokens=12)
START = 1  # SmolLM2's <|im_start|>, which is its begin-of-text token too


@pytest.fixture(scope="module")
def runtime(smollm2: Path) -> Iterator[Runtime]:
    with Runtime.open(PairChoice(verifier=str(smollm2)), EngineSettings(ctx_size=512, threads=1), Silent()) as opened:
        yield opened


def conversation(runtime: Runtime) -> Conversation:
    runtime.forget()
    return Conversation(runtime, choose(None, runtime.template, bos=runtime.bos, eos=runtime.eos))


def run(model: Path, *arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    # One thread: several wait for each other by spinning, which is slow on a busy machine.
    code = main(["run", "--verifier", str(model), "--ctx-size", "64", "--threads", "1", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def document(model: Path, *arguments: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    code, shown, said = run(model, "--json", *arguments, capsys=capsys)
    assert (code, said) == (0, "")
    found: dict[str, Any] = json.loads(shown)
    return found


def test_a_second_turn_evaluates_only_new_tokens(runtime: Runtime) -> None:
    talk = conversation(runtime)
    first = talk.ask("Name three colours.", GREEDY)
    list(first)
    held = list(runtime.cached)
    second = talk.ask("And three animals.", GREEDY)
    list(second)
    assert first.answer is not None
    assert second.answer is not None
    # The last token of a prompt is pending, so it is read with the first round.
    assert first.answer.stats.prefill_tokens == first.answer.prompt_tokens - 1
    assert second.answer.stats.prefill_tokens == second.answer.prompt_tokens - 1 - len(held)
    assert second.answer.stats.prefill_tokens < 24


def test_b25_after_an_interrupt_the_next_turn_evaluates_only_new_tokens(runtime: Runtime) -> None:
    talk = conversation(runtime)
    shown: list[str] = []
    first = talk.ask("Tell me a long story.", GREEDY, cancelled=lambda: len(shown) >= 5)
    shown.extend(piece.text for piece in first)
    assert first.answer is not None
    assert first.answer.finish_reason == "interrupted"
    held = list(runtime.cached)
    second = talk.ask("Go on.", GREEDY)
    list(second)
    assert second.answer is not None
    assert second.answer.stats.prefill_tokens == second.answer.prompt_tokens - 1 - len(held)


def test_b36_a_conversation_answers_as_a_fresh_session_would(runtime: Runtime) -> None:
    """B36: reused ids must be the prompt, not something near it."""
    talk = conversation(runtime)
    list(talk.ask("Name three colours.", GREEDY))
    list(talk.ask("And three animals.", GREEDY))
    warm = talk.turns[-1]
    runtime.forget()
    list(talk.retry(GREEDY))
    assert talk.turns[-1] == warm


def test_b08_each_turn_is_opened_once(runtime: Runtime) -> None:
    """B08: SmolLM2's BOS opens a turn; adding it again opened a turn too many."""
    talk = conversation(runtime)
    reply = talk.ask("hi", GREEDY)
    list(reply)
    rendering = choose(None, runtime.template, bos=runtime.bos, eos=runtime.eos).render(
        [{"role": "user", "content": "hi"}]
    )
    prompt = runtime.cached[: reply.answer.prompt_tokens] if reply.answer else []
    assert list(prompt).count(START) == rendering.count("<|im_start|>")
    assert prompt[0] == START


def test_the_document_keeps_the_contract_s_promises(smollm2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(smollm2, "--max-tokens", "16", "--N", "4", "a b c a b c a b", capsys=capsys)
    stats = found["stats"]
    assert len(found["tokens"]) == stats["completion_tokens"] == 16
    assert stats["verifier_passes"] == stats["bonus_tokens"] + stats["residual_tokens"]
    assert stats["accepted"] <= stats["tested"] <= stats["drafted"]
    assert sum(stats["accepted_by_position"]) == stats["accepted"]
    assert (found["finish_reason"], stats["drafter"], stats["N"]) == ("length", "ngram", 4)


def test_a_seed_gives_one_text_whatever_drafts(smollm2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {
        run(smollm2, "--seed", "5", "--max-tokens", "12", *more, "Say something.", capsys=capsys)[1]
        for more in (["--drafter", "none"], ["--N", "3"], ["--N", "auto"])
    }
    assert len(texts) == 1


def test_b12_max_tokens_is_never_exceeded(smollm2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for count in (0, 1, 7):
        found = document(smollm2, "--max-tokens", str(count), "--N", "8", "--temperature", "0", "hi", capsys=capsys)
        assert len(found["tokens"]) == count
        assert found["finish_reason"] == "length"
        assert (found["stats"]["verifier_passes"] == 0) == (count == 0)


def test_b50_a_prompt_larger_than_the_context_is_refused_with_figures(
    smollm2: Path, runtime: Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    """B50: prompts lost their beginning without a word."""
    text = " the" * 63
    assert len(raw_ids(text, runtime.vocab, runtime.bos)[0]) == 63
    for extra, code in ((0, 0), (1, 0), (2, 1)):
        found, _, said = run(smollm2, "--raw", "--max-tokens", "1", text + " the" * extra, capsys=capsys)
        assert found == code
    assert "65 tokens" in said
    assert "holds 64" in said
    assert "--ctx-size" in said


@pytest.mark.parametrize("drafter", ["none", "ngram"])
def test_b57_the_shortest_prompts(smollm2: Path, drafter: str, capsys: pytest.CaptureFixture[str]) -> None:
    """B57: SmolLM2 has no token at all for an empty text."""
    code, shown, said = run(smollm2, "--drafter", drafter, "--raw", "", capsys=capsys)
    assert (code, shown) == (2, "")
    assert "empty" in said
    for text in ("<|im_end|>", " "):
        found = document(smollm2, "--drafter", drafter, "--raw", "--max-tokens", "3", text, capsys=capsys)
        assert found["prompt_tokens"] == 1


def test_gemma_has_no_template_and_one_begin_of_text(
    gemma: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """B58, B57, B08 on a base model that wants a begin-of-text token and has no template."""
    code, shown, said = run(gemma, "hi", capsys=capsys)
    assert (code, shown) == (1, "")
    assert "no chat template" in said
    assert document(gemma, "--raw", "--max-tokens", "1", "", capsys=capsys)["prompt_tokens"] == 1
    plain = document(gemma, "--raw", "--max-tokens", "0", "hi", capsys=capsys)["prompt_tokens"]
    code, shown, said = run(gemma, "--raw", "--max-tokens", "0", "--json", "<bos>hi", capsys=capsys)
    assert json.loads(shown)["prompt_tokens"] == plain
    assert said.startswith("warning: The prompt begins with <bos>")
    file = tmp_path / "format.jinja"
    file.write_text("{{ bos_token }}{{ messages[0].content }}")
    assert document(gemma, "--template", str(file), "--max-tokens", "0", "hi", capsys=capsys)["prompt_tokens"] == plain
