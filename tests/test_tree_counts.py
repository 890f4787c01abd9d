"""Promise 1 for trees, by counting: whole answers of the real loop, on llama.cpp and on the toy, against exact laws.

Trees sized by `--tree auto` are judged with times from a simulated machine on which they pay, so that they are really
drafted and the tests come out the same everywhere. That the counts can fail is shown by an error that is planted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from localspec.core.coupled import Coupled
from localspec.core.draft import Draft, Ids
from localspec.core.growth import Grown, Growth
from localspec.core.rejection import Rejection
from localspec.core.rule import Rule
from localspec.core.sampling import Sampling
from localspec.core.shapes import Shape
from localspec.drafters.base import Budget, Drafter
from localspec.drafters.drawing import Drawing, Grower, Logits
from localspec.drafters.model import DraftModel, Options
from localspec.engine.base import Context, Pass, Vocab
from localspec.engine.context import ContextSettings, LlamaContext
from localspec.engine.model import LlamaModel
from localspec.engine.toy import ToyContext, ToyModel
from localspec.loop.control import Controller, FixedLength, RoundReport
from localspec.loop.generation import Generation, Limits
from localspec.loop.proposer import Proposer
from localspec.planner.treecontrol import AutoTree
from tests import zoo
from tests.core import chisquare
from tests.drafters.settings import NAMES, TOY_PROMPT, Lender, built, toy, toy_lender

GREEDY = Sampling(temperature=0.0)
FREE = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
LAWS = {"no filters": FREE, "default filters": Sampling(), "penalties": Sampling(repeat_penalty=1.5, penalty_last_n=2)}
TOO_UNLIKELY = 1e-4
"""Of a p-value. Draws and times are seeded: what passes once passes always."""
GROWING = Growth(nodes=12, depth=4, width=3, leaves=8)


class Timed(AutoTree):
    """`--tree auto` on a machine where rows and draft passes are cheap, whatever this one is."""

    def observe(self, report: RoundReport) -> None:  # type: ignore[override]
        asked = 0.001 if report.drafted else 0.0
        super().observe(report._replace(draft_s=asked, verify_s=0.02 * (1.0 + 0.01 * report.drafted)))


WAYS: dict[str, tuple[Shape | Growth, Callable[[], Controller]]] = {
    "4,2,2": (Shape.parse("4,2,2"), lambda: FixedLength(28)),
    "auto": (GROWING, Timed),
}


def decode(
    prompt: Sequence[int],
    count: int,
    *,
    verifier: Context,
    vocab: Vocab,
    drafter: Drafter,
    tree: Shape | Growth,
    controller: Controller,
    rule: Rule,
    sampling: Sampling = FREE,
) -> tuple[int, ...]:
    """`count` tokens, end tokens or not."""
    failures: list[str] = []
    generation = Generation(
        prompt,
        verifier=verifier,
        vocab=vocab,
        sampling=sampling,
        rule=rule,
        limits=Limits(count, ignore_end=True),
        proposer=Proposer(drafter, controller, vocab=vocab, warn=failures.append, tree=tree),
        controller=controller,
    )
    for _piece in generation:
        pass
    assert failures == []
    assert generation.answer is not None
    return generation.answer.tokens


# -- a tiny random GGUF -----------------------------------------------------------------------------------------------

LETTERS = ("<|begin|>", "<|end|>", "Ċ", "a", "b", "c", "d")
SIZE = len(LETTERS)
PROMPT = [3, 4, 5, 3]
SAMPLES = 30_000


def small_vocabulary() -> zoo.Vocabulary:
    """Seven tokens, one of which ends the text: 343 sequences of three can be counted."""
    control, normal = int(gguf.TokenType.CONTROL), int(gguf.TokenType.NORMAL)
    types = (control, control) + (normal,) * (SIZE - 2)
    return zoo.Vocabulary("gpt2", LETTERS, types, merges=("a b",), bos=0, eos=1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LlamaModel, LlamaModel]]:
    folder, made = tmp_path_factory.mktemp("letters"), []
    for name, noise in (("verifier", 0.0), ("draft", 0.3)):
        path: Path = zoo.tiny_llama(folder / f"{name}.gguf", vocabulary=small_vocabulary(), noise=noise)
        made.append(LlamaModel(path, gpu_layers=0))
    yield made[0], made[1]
    for model in made:
        model.close()


SETTINGS = ContextSettings(capacity=64, draft_room=12, leaves=8, flash_attn="off")


@pytest.fixture(scope="module")
def joint(models: tuple[LlamaModel, LlamaModel]) -> npt.NDArray[np.float64]:
    """(SIZE, SIZE, SIZE): the verifier's law of the three tokens behind `PROMPT`, evaluated one text at a time."""
    nobody = np.empty(0, dtype=np.int32)
    with LlamaContext(models[0], SETTINGS) as context:

        def row(*path: int) -> npt.NDArray[np.float64]:
            result = context.prefill([*PROMPT, *path])
            assert result is not None
            return FREE.law(result.logits(0), nobody).dense(SIZE)

        law = np.empty((SIZE,) * 3)
        for a in range(SIZE):
            for b in range(SIZE):
                law[a, b] = row()[a] * row(a)[b] * row(a, b)
    return law


def counted(
    models: tuple[LlamaModel, LlamaModel],
    make: Callable[[Lender], Drafter],
    *,
    tree: Shape | Growth,
    controller: Controller,
    samples: int = SAMPLES,
) -> tuple[npt.NDArray[np.float64], float]:
    """How often each sequence of three came behind the prompt, and nodes drafted per pass."""
    rule = Rejection(np.random.default_rng(11))
    counts = np.zeros((SIZE,) * 3)
    lender = Lender(models[0].vocab, lambda: LlamaContext(models[1], SETTINGS))
    nodes = rounds = 0

    class Counting(LlamaContext):
        def evaluate(self, pending: int, draft: Draft) -> Pass:  # type: ignore[override]
            nonlocal nodes, rounds
            nodes, rounds = nodes + len(draft), rounds + 1
            return super().evaluate(pending, draft)

    drafter = make(lender)
    with Counting(models[0], SETTINGS) as verifier:
        nodes = rounds = 0  # the context has tried its memory
        for _ in range(samples):
            text = decode(
                PROMPT,
                3,
                verifier=verifier,
                vocab=models[0].vocab,
                drafter=drafter,
                tree=tree,
                controller=controller,
                rule=rule,
            )
            counts[text] += 1
    lender.close()
    return counts, nodes / rounds


def likelihood(counts: npt.NDArray[np.float64], joint: npt.NDArray[np.float64]) -> float:
    """p-value of the counts; sequences too rare to be counted are put together."""
    counts, joint = counts.ravel(), joint.ravel()
    rare = counts.sum() * joint < 5.0
    return chisquare.fit(
        np.append(counts[~rare], counts[rare].sum()), np.append(joint[~rare], joint[rare].sum()) / joint.sum()
    )


@pytest.mark.parametrize("way", ["2,2", "auto"])
def test_three_tokens_follow_the_verifiers_joint_law(
    models: tuple[LlamaModel, LlamaModel], joint: npt.NDArray[np.float64], way: str
) -> None:
    """Issue of trees: 30,000 answers of three tokens at temperature 1, static trees and those that size themselves."""
    tree = Shape.parse("2,2") if way == "2,2" else Growth(nodes=6, depth=2, width=3, leaves=8)
    controller = FixedLength(6) if way == "2,2" else Timed()
    counts, nodes = counted(models, lambda lender: built("model", lender), tree=tree, controller=controller)
    assert counts.sum() == SAMPLES
    assert nodes > 2.0, "trees were drafted"
    assert likelihood(counts, joint) > TOO_UNLIKELY


class Choosy(Drawing):
    """Draws two siblings and keeps the one its law likes better: pruning by value, the error that is planted."""

    def tree(self, tokens: Ids, logits: Logits, grower: Grower, budget: Budget) -> Grown:
        grown = super().tree(tokens, logits, grower, budget)
        draft = grown.draft
        kept = []
        for parent, siblings in draft.children.items():
            if parent == -1 or parent in kept:
                kept.append(max(siblings, key=lambda node: self._liking(draft, node)))
        kept.sort()
        return Grown(draft.keeping(kept), tuple(grown.numbers[node] for node in kept))

    @staticmethod
    def _liking(draft: Draft, node: int) -> float:
        law = draft.law(node)
        return 1.0 if law is None else law.prob(int(draft.tokens[node]))


def choosy(lender: Lender) -> DraftModel:
    drafter = DraftModel(Options(), lender)
    drafter._drawing = Choosy(is_end=lender.is_end)
    return drafter


def test_pruning_drawn_siblings_by_value_is_noticed(
    models: tuple[LlamaModel, LlamaModel], joint: npt.NDArray[np.float64]
) -> None:
    counts, nodes = counted(
        models,
        choosy,
        tree=Shape.parse("2,2"),
        controller=FixedLength(6),
        samples=5_000,
    )
    assert nodes > 1.0
    assert likelihood(counts, joint) < 1e-9


# -- the registry on the toy ------------------------------------------------------------------------------------------


def plain(model: ToyModel, prompt: Sequence[int], count: int, *, sampling: Sampling, rule: Coupled) -> tuple[int, ...]:
    """One token at a time, each the winner of its race."""
    text = list(prompt)
    while len(text) < len(prompt) + count:
        law = sampling.law(model.row(text[-2], text[-1]), np.array(text, dtype=np.int32))
        text.append(rule.winner(law, len(text)))
    return tuple(text[len(prompt) :])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("law", ["greedy", *LAWS])
@pytest.mark.parametrize("name", NAMES)
def test_coupled_and_greedy_texts_are_those_of_plain_decoding(name: str, law: str, way: str) -> None:
    """Token by token, whatever the tree and whoever sizes it; greedy under both rules."""
    model = toy()
    sampling = {"greedy": GREEDY, **LAWS}[law]
    tree, make = WAYS[way]
    drafter, controller = built(name, toy_lender(model)), make()
    rules: list[Rule] = [Coupled(seed) for seed in range(3)]
    if law == "greedy":
        rules.append(Rejection(np.random.default_rng(0)))
    for seed, rule in enumerate(rules):
        expected = plain(model, TOY_PROMPT, 80, sampling=sampling, rule=Coupled(seed))
        tokens = decode(
            TOY_PROMPT,
            80,
            verifier=ToyContext(model),
            vocab=model.vocab,
            drafter=drafter,
            tree=tree,
            controller=controller,
            rule=rule,
            sampling=sampling,
        )
        assert tokens == expected


FEW = 5
ANSWERS, LENGTH = 12, 250


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "none"])
def test_under_rejection_every_transition_follows_the_verifiers_row(name: str, law: str, way: str) -> None:
    """The toy's law is a table over its last two tokens: 3,000 draws, each from a row that is known exactly."""
    model, draft = (ToyModel(FEW, seed=1, sharpness=1.0, end_bias=0.0, blur=blur) for blur in (0.0, 0.5))
    lender = Lender(model.vocab, lambda: ToyContext(draft, capacity=1024))
    tree, make = WAYS[way]
    drafter, controller = built(name, lender), make()
    rule, counts = Rejection(np.random.default_rng(5)), np.zeros((FEW, FEW, FEW))
    for start in range(ANSWERS):
        text = [start % FEW, start // FEW % FEW]
        text += decode(
            text,
            LENGTH,
            verifier=ToyContext(model, capacity=1024),
            vocab=model.vocab,
            drafter=drafter,
            tree=tree,
            controller=controller,
            rule=rule,
            sampling=LAWS[law],
        )
        for triple in zip(text, text[1:], text[2:], strict=False):
            counts[triple] += 1
    pairs = [(a, b) for a in range(FEW) for b in range(FEW)]
    laws = np.array([LAWS[law].law(model.row(*pair), np.array(pair, dtype=np.int32)).dense(FEW) for pair in pairs])
    assert counts.sum() == ANSWERS * LENGTH
    assert chisquare.fit(counts.reshape(-1, FEW), laws) > TOO_UNLIKELY
