"""The runtime over tiny files: what is loaded, and that a text follows from verifier, law and seed alone."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec.core.draft import Draft
from localspec.core.sampling import Sampling
from localspec.engine.devices import devices
from localspec.errors import UsageError
from localspec.services.runtime import Runtime
from localspec.services.settings import AnswerSettings, EngineSettings, PairChoice
from tests import zoo
from tests.services import tiny
from tests.services.tiny import DRAFTERS, FREE, GREEDY, PROMPT
from tests.services.toy_pair import Collected

DEFAULT = Sampling()
PENALISED = Sampling(temperature=1.0, repeat_penalty=1.3, frequency_penalty=0.2, presence_penalty=0.2)
LAWS = {"greedy": GREEDY, "default": DEFAULT, "no filters": FREE, "penalties": PENALISED}
CHATTER = 120


@pytest.fixture
def report() -> Collected:
    return Collected()


@pytest.fixture(scope="module")
def plain() -> Iterator[Runtime]:
    with tiny.open_pair(draft=None, drafter="none") as runtime:
        yield runtime


@pytest.fixture(scope="module")
def pair() -> Iterator[Runtime]:
    with tiny.open_pair(drafter="model", N=4) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def speculating() -> Iterator[Callable[[str], Runtime]]:
    """Drafter -> a pair with the draft that it wants."""
    with contextlib.ExitStack() as opened:
        pairs: dict[str, Runtime] = {}

        def get(drafter: str) -> Runtime:
            draft = tiny.draft_for(drafter)
            if draft not in pairs:
                pairs[draft] = opened.enter_context(tiny.open_pair(draft=draft, N=4))
            return pairs[draft]

        yield get


@pytest.mark.parametrize("N", [1, 4, 8, "auto"])
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("law", LAWS)
def test_the_same_seed_is_the_same_text(
    speculating: Callable[[str], Runtime], plain: Runtime, law: str, drafter: str, N: Any
) -> None:
    """Coupled acceptance, and T=0 anyway: every drafter, length and law gives the text of plain decoding."""
    pair = speculating(drafter)
    pair.respeculate(drafter, N)
    assert pair.drafter == drafter
    for seed in (1, 2):
        expected = tiny.answer(plain, sampling=LAWS[law], seed=seed)
        assert tiny.answer(pair, sampling=LAWS[law], seed=seed).tokens == expected.tokens
        assert tiny.answer(pair, sampling=LAWS[law], seed=seed, speculate=False).tokens == expected.tokens


@pytest.mark.parametrize(("verifier", "draft"), [("mamba", "mamba-draft"), ("lfm2", "lfm2-draft"), ("swa", "draft")])
def test_every_memory_speculates(verifier: str, draft: str) -> None:
    """B32: state copies, snapshots and windows behind the real runtime; the text is the verifier's."""
    with tiny.open_pair(verifier, draft, drafter="model", N=4, ctx_size=512) as runtime:
        for sampling in (GREEDY, DEFAULT):
            expected = tiny.answer(runtime, sampling=sampling, seed=3, speculate=False, max_tokens=CHATTER)
            answer = tiny.answer(runtime, sampling=sampling, seed=3, max_tokens=CHATTER)
            assert answer.tokens == expected.tokens
            assert answer.stats.drafted > answer.stats.accepted


def test_a_pair_that_agrees_saves_passes(pair: Runtime) -> None:
    pair.respeculate("model", 4)
    stats = tiny.answer(pair).stats
    assert stats.drafter == "model"
    assert stats.N == 4
    assert stats.verifier_passes < stats.completion_tokens == 40
    assert stats.verifier_passes == stats.bonus_tokens + stats.residual_tokens
    assert 0 < stats.accepted <= stats.tested <= stats.drafted


def test_rejection_under_a_seed_repeats_itself_with_one_drafter(pair: Runtime) -> None:
    pair.respeculate("model", 4)
    texts = [tiny.answer(pair, sampling=FREE, seed=seed, acceptance="rejection").tokens for seed in (5, 5, 6)]
    assert texts[0] == texts[1] != texts[2]


def test_respeculate_changes_drafter_length_and_options(pair: Runtime) -> None:
    pair.respeculate("ngram", 2, {"max_ngram": "3"})
    assert (pair.drafter, tiny.answer(pair).stats.N) == ("ngram", 2)
    pair.respeculate("none", "auto")
    stats = tiny.answer(pair).stats
    assert (pair.drafter, stats.drafter, stats.N, stats.drafted) == ("none", "none", "auto", 0)
    pair.respeculate("model", 3)
    assert (pair.drafter, tiny.answer(pair).stats.drafter) == ("model", "model")


@pytest.mark.parametrize(
    ("drafter", "options", "hint"),
    [("modle", {}, "model"), ("ngram", {"max_ngrams": "3"}, "max_ngram"), ("model", {"temperature": "warm"}, "float")],
)
def test_a_wish_that_makes_no_sense_changes_nothing(
    pair: Runtime, drafter: str, options: dict[str, str], hint: str
) -> None:
    pair.respeculate("ngram", 2)
    with pytest.raises(UsageError) as caught:
        pair.respeculate(drafter, 3, options)
    assert hint in caught.value.hint
    assert (pair.drafter, tiny.answer(pair).stats.N) == ("ngram", 2)


def test_a_drafter_that_needs_a_draft_says_when_there_is_none(report: Collected) -> None:
    with tiny.open_pair(draft=None, report=report, N=4) as runtime:
        assert runtime.drafter == "ngram"
        runtime.respeculate("model", 4)
        assert runtime.drafter == "none"
        assert len(report.warnings) == 1
        assert "--draft" in report.warnings[0]
        assert tiny.answer(runtime).stats.drafted == 0


def test_an_index_of_one_text_is_not_used_for_the_next() -> None:
    """B68: proposals that exist in another conversation only would be slow, and in a server a leak."""
    secret = zoo.byte_ids("the password is swordfish. ")
    with tiny.open_pair(draft=None, drafter="ngram", N=4) as runtime:
        tiny.answer(runtime, secret * 4)
        asked: list[Draft] = []
        drafter = runtime._drafter
        assert drafter is not None
        propose = drafter.propose
        drafter.propose = lambda tokens, budget: asked.append(propose(tokens, budget)) or asked[-1]  # type: ignore[method-assign, func-returns-value]
        tiny.answer(runtime, zoo.byte_ids("the password is "))
    assert zoo.byte_id("w") not in {token for draft in asked for token in draft.tokens.tolist()}


def test_a_seed_is_a_text(plain: Runtime) -> None:
    """B45: also after other answers; another seed is another text, and no seed is another text each time."""
    first = tiny.answer(plain, sampling=FREE, seed=1).tokens
    other = tiny.answer(plain, sampling=FREE, seed=2).tokens
    tiny.answer(plain, zoo.byte_ids("something else"), sampling=FREE)
    assert tiny.answer(plain, sampling=FREE, seed=1).tokens == first != other
    assert tiny.answer(plain, sampling=FREE, seed=2).tokens == other
    for acceptance in (None, "coupled"):
        unseeded = [tiny.answer(plain, sampling=FREE, acceptance=acceptance).tokens for _ in range(3)]
        assert len({first, *unseeded}) == 4


def test_a_seed_is_a_text_in_another_process_too(plain: Runtime) -> None:
    """B45: nothing hangs on this process's memory, hash seed or history."""
    path = tiny.model("verifier")
    program = f"""
import localspec
from localspec.services.settings import AnswerSettings
with localspec.load(verifier={str(path)!r}, drafter="ngram", N=3, ctx_size=256, threads=1, flash_attn="off") as pair:
    print(list(pair.generate({b"to be or not".decode()!r}, raw=True, seed=11, temperature=1.5, max_tokens=40).tokens))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=Path(__file__).parents[2],
        env={"PATH": "", "PYTHONHASHSEED": "7", "HOME": str(tiny.folder())},
    )
    hot = Sampling(temperature=1.5)
    here = tiny.answer(plain, zoo.byte_ids("to be or not"), sampling=hot, seed=11, ignore_end=False)
    assert done.stdout.strip() == str(list(here.tokens))


def test_the_next_turn_evaluates_only_what_is_new(pair: Runtime) -> None:
    """Counted: prompt and answer are in the cache, but for the last token, which nothing has followed yet."""
    pair.respeculate("model", 4)
    pair.forget()
    first = tiny.answer(pair)
    assert first.stats.prefill_tokens == len(PROMPT) - 1
    question = zoo.byte_ids("and what then?")
    second = tiny.answer(pair, [*PROMPT, *first.tokens, *question])
    assert second.stats.prefill_tokens == len(question)
    assert tiny.answer(pair, PROMPT).stats.prefill_tokens == 0


def test_forget_starts_from_nothing(pair: Runtime) -> None:
    pair.respeculate("model", 4)
    expected = tiny.answer(pair).tokens
    pair.forget()
    assert list(pair.cached) == []
    again = tiny.answer(pair)
    assert again.tokens == expected
    assert again.stats.prefill_tokens == len(PROMPT) - 1


def test_measuring_a_pass_leaves_a_pair_that_works(pair: Runtime) -> None:
    pair.respeculate("model", 4)
    expected = tiny.answer(pair).tokens
    for count in (1, 4, 33):
        assert 0.0 < pair.time_pass(count, repeats=2) < 5.0
    assert tiny.answer(pair).tokens == expected


def test_a_cancelled_prompt_is_kept_as_far_as_it_was_read(pair: Runtime) -> None:
    """B25: the next prompt goes on from there."""
    pair.forget()
    stream = pair.answer(PROMPT, AnswerSettings(GREEDY), cancelled=lambda: True)
    assert list(stream) == []
    assert (stream.answer.finish_reason, stream.answer.tokens) == ("interrupted", ())
    held = list(pair.cached)
    assert held == PROMPT[: len(held)]
    assert tiny.answer(pair).stats.prefill_tokens == len(PROMPT) - 1 - len(held)


def test_reading_a_prompt_is_reported(pair: Runtime) -> None:
    pair.forget()
    heard = Collected()
    stream = pair.answer(PROMPT, AnswerSettings(GREEDY, max_tokens=2), report=heard)
    list(stream)
    assert heard.steps[-1] == (len(PROMPT) - 1, len(PROMPT) - 1)


def test_settings_say_what_was_asked_for_and_what_is_in_use() -> None:
    with tiny.open_pair(
        drafter="model", N=4, options={"temperature": "0.5"}, engine={"threads": 2, "ctx_size": 128}
    ) as runtime:
        settings = runtime.settings()
        assert settings["verifier"] == str(tiny.model("verifier"))
        assert settings["draft"] == str(tiny.model("draft"))
        assert (settings["drafter"], settings["drafter_asked"], settings["N"]) == ("model", "model", 4)
        assert settings["options"] == {"temperature": "0.5"}
        assert (settings["ctx_size"], settings["threads"]) == (128, 2)
        assert (settings["kv_type"], settings["flash_attn"], settings["rollback"]) == ("f16", "off", "truncation")
        assert (settings["gpu_layers"], settings["draft_gpu_layers"]) == (0, 0)
        assert [line.split(":")[0] for line in runtime.placement] == ["verifier", "draft"]
        assert all("CPU" in line and "F32" in line for line in runtime.placement)
        assert runtime.context_size == 128
        assert (runtime.bos, runtime.eos) == (zoo.CONTROL[zoo.BOS], zoo.CONTROL[zoo.EOS])
        assert runtime.template is None


def test_the_context_is_the_models_own_unless_asked_otherwise() -> None:
    with tiny.open_pair("short", None, ctx_size=None, drafter="none") as runtime:
        assert runtime.context_size == 64


def test_a_pair_from_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's models.toml names files, pair, drafter, length and options."""
    toml = tmp_path / "models.toml"
    toml.write_text(
        f"""
[models.big]
source = "{tiny.model("verifier")}"
[models.little]
source = "{tiny.model("draft")}"
[pairs.mine]
verifier = "big"
draft = "little"
drafter = "model"
N = 3
options = {{ temperature = 0.7 }}
"""
    )
    monkeypatch.setenv("LOCALSPEC_MODELS", str(toml))
    with Runtime.open(PairChoice(pair="mine"), EngineSettings(ctx_size=256), Collected()) as runtime:
        assert runtime.pair.name == "mine"
        assert (runtime.drafter, runtime.settings()["N"]) == ("model", 3)
        assert runtime.settings()["options"] == {"temperature": "0.7"}
    with Runtime.open(PairChoice(pair="mine", drafter="ngram"), EngineSettings(ctx_size=256), Collected()) as runtime:
        assert (runtime.drafter, runtime.settings()["options"], len(runtime.placement)) == ("ngram", {}, 1)


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0"])
@pytest.mark.parametrize("which", ["kv_type", "draft_kv_type"])
def test_a_quantised_cache_without_flash_attention_is_refused_at_once(which: str, kv_type: str) -> None:
    """B35: llama.cpp insists on it, after minutes of loading; the files of this pair do not even exist."""
    with pytest.raises(UsageError, match=f"{kv_type} cache") as caught:
        tiny.open_pair(Path("no-verifier.gguf"), Path("no-draft.gguf"), engine={which: kv_type, "flash_attn": "off"})
    assert "--flash-attn auto" in caught.value.hint
    assert f"--{which.replace('_', '-')}" in caught.value.hint


@pytest.mark.parametrize("flash_attn", ["auto", "on"])
@pytest.mark.parametrize(("kv_type", "draft_kv_type"), [("q8_0", "f16"), ("f16", "q8_0"), ("q4_0", "q4_0")], ids=str)
def test_quantised_caches_give_the_text_of_plain_decoding(kv_type: str, draft_kv_type: str, flash_attn: str) -> None:
    """B35: each model has its own setting, and the text is plain decoding's under the same one."""
    engine = {"kv_type": kv_type, "draft_kv_type": draft_kv_type, "flash_attn": flash_attn}
    with tiny.open_pair("wide-heads", "wide-heads", drafter="model", N=1, engine=engine) as runtime:
        assert runtime.settings()["kv_type"] == kv_type
        answer = tiny.answer(runtime, max_tokens=12)
        assert answer.stats.drafted > 0
        assert answer.tokens == tiny.answer(runtime, max_tokens=12, speculate=False).tokens


@pytest.mark.parametrize(
    "wrong",
    [{"ctx_size": 0}, {"threads": 0}, {"kv_type": "f32"}, {"flash_attn": "yes"}, {"draft_kv_type": "q5_0"}],
    ids=str,
)
def test_engine_settings_that_mean_nothing(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        EngineSettings(**wrong)
    assert caught.value.hint


def test_layers_on_a_gpu_that_is_not_there_are_told_once(report: Collected, no_gpu: None) -> None:
    """B87: a CPU-only wheel ignored them in silence."""
    with tiny.open_pair(report=report, drafter="model", N=2, engine={"gpu_layers": 20}) as runtime:
        runtime.respeculate("model", 4)
        assert runtime.settings()["gpu_layers"] == 0
        tiny.answer(runtime)
    assert len(report.warnings) == 1
    assert "20 layers of the verifier" in report.warnings[0]
    assert "CUDA" in report.warnings[0]


def test_automatic_layers_on_a_cpu_are_no_matter(report: Collected, no_gpu: None) -> None:
    with tiny.open_pair(report=report, drafter="model", N=2):
        assert report.warnings == []


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests speak of a CPU build also where they run on another."""
    found = [device for device in devices() if device.kind not in ("gpu", "igpu")]
    monkeypatch.setattr("localspec.services.loading.devices", lambda: found)


def test_a_bias_for_a_token_that_does_not_exist_is_wrong_use(plain: Runtime) -> None:
    """It was passed over, as if it had done what was asked."""
    size = plain.vocab.size
    with pytest.raises(UsageError, match=f"token {size}, and this model has the ids 0 to {size - 1}"):
        plain.answer(PROMPT, AnswerSettings(Sampling(logit_bias={1: 0.5, size: 1.0})))
    plain.answer(PROMPT, AnswerSettings(Sampling(logit_bias={size - 1: 1.0}))).close()
