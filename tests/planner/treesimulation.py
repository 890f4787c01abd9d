"""Trees on a machine with a simulated clock, a text with known luck by rank, and the best that fixed sizes do on it.

As in tests/planner/simulation.py the controller is shown times with jitter and outliers, and speeds are counted in the
true times. The trees themselves are grown by the real functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from localspec.core.draft import EMPTY, ROOT, Draft, Ids, Verdict
from localspec.core.growth import Growth, Sibling, dynamic, fixed
from localspec.core.ranks import Ranks, plan
from localspec.loop.control import RoundReport
from localspec.loop.rest import Rest
from tests.planner.simulation import SHAPES as NARROW
from tests.planner.simulation import Shape

RANKS = 4
Way = Literal["picks", "draws", "chain"]
GROWTH = Growth(nodes=32, depth=15, leaves=16)


class Sizes(Protocol):
    """What is judged; see `loop.control.Controller`."""

    @property
    def rest(self) -> int: ...
    def begin(self, prompt: int) -> bool: ...
    def limit(self, room: int) -> int: ...
    def pays(self, depth: int, confidence: float) -> bool: ...
    def widen(self, depth: int, joints: Sequence[float]) -> int: ...
    def choose(self, joints: Sequence[float]) -> int: ...
    def observe(self, report: RoundReport) -> None: ...


@dataclass(frozen=True)
class Words:
    """Position by position: what the drafter says of its four likeliest tokens, and which of them comes (-1: none)."""

    said: npt.NDArray[np.float64]
    rank: npt.NDArray[np.int64]


def words(
    rates: Sequence[float],
    *,
    spread: float = 2.0,
    second: float = 0.5,
    said: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]] | None = None,
    seed: int,
) -> Words:
    """The likeliest token comes with a chance of its own about the position's rate; each next one takes the share
    `second` of what is left.
    """
    rng = np.random.default_rng(seed)
    mean = np.clip(np.asarray(rates, dtype=np.float64), 1e-3, 1 - 1e-3)
    chances = np.empty((len(mean), RANKS))
    chances[:, 0] = rng.beta(spread * mean, spread * (1 - mean))
    left = 1.0 - chances[:, 0]
    for rank in range(1, RANKS):
        # Sorted as a drafter sorts them: no token is likelier than the one before it.
        chances[:, rank] = np.minimum(second * left, chances[:, rank - 1])
        left = left - chances[:, rank]
    luck = rng.random(len(mean))[:, None] >= np.cumsum(chances, axis=1)
    rank = luck.sum(axis=1)
    return Words(said(chances) if said else chances, np.where(rank == RANKS, -1, rank))


@dataclass(frozen=True)
class Machine:
    """What things cost here.

    verify  t(n) of the verifier in seconds
    draft   t(n) of the draft: a layer of n nodes is one pass over n tokens
    noise   relative jitter of the times that are shown; one in a hundred is three times too long
    """

    verify: Shape
    draft: Shape
    noise: float = 0.05


def extended(shape: Shape) -> Shape:
    """A measured t(n) beyond its last point, n = 16: on along the average slope."""
    return lambda n: shape(min(n, 16)) + max(0, n - 16) * (shape(16) - shape(1)) / 15


SHAPES = {name: shape if name in ("flat", "linear", "gentle") else extended(shape) for name, shape in NARROW.items()}
SMALL = SHAPES["Q4_0"]


def scaled(shape: Shape, factor: float) -> Shape:
    return lambda n: factor * shape(n)


def flat_draft(share: float, verify: Shape) -> Shape:
    """A draft whose pass takes this share of a plain pass, however many nodes it holds."""
    return lambda n: share * verify(1)


def growing_draft(share: float, verify: Shape) -> Shape:
    """A draft that is bound by compute, as a quantised one on a CPU is."""
    return lambda n: share * verify(1) * SMALL(n) / SMALL(1)


@dataclass
class Script:
    """`core.growth.Source` over words: token = rank. `seconds` adds up the passes of the draft."""

    words: Words
    start: int
    draft: Shape
    chances: Sequence[float] | None = None  # what is said of drawn siblings, by rank
    seconds: float = 0.0
    passes: int = 0
    nodes: int = 32
    leaves: int = 16

    def __post_init__(self) -> None:
        self._charge(1)

    def siblings(self, row: int, count: int, depth: int) -> list[Sibling]:
        said = self.chances or self.words.said[row]
        return [Sibling(rank, None, float(said[rank])) for rank in range(min(count, RANKS))]

    def layer(self, tokens: Ids, parents: Ids, path: Callable[[int], Ids]) -> list[int]:
        self._charge(len(tokens))
        return [self._row(path(at)) for at in range(len(tokens))]

    def _charge(self, count: int) -> None:
        self.seconds += self.draft(count)
        self.passes += 1

    def _row(self, path: Ids) -> int:
        """The position behind a right path; behind a wrong one any other, as sure of itself as any."""
        at = self.start + len(path)
        right = np.array_equal(self.words.rank[self.start : at], path)
        return at if right else (at * 7919 + int(path.sum()) * 31) % len(self.words.rank)


@dataclass
class Run:
    """What came of it: nodes and accepted tokens per round."""

    tokens: int = 0
    seconds: float = 0.0
    nodes: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds

    def mean_nodes(self, start: int, end: int) -> float:
        """Of the rounds that started at these tokens."""
        return float(np.mean([n for n, at in zip(self.nodes, self.starts, strict=True) if start <= at < end]))


def drafted(sizes: Sizes, source: Script, way: Way, growth: Growth, ranks: Ranks) -> Draft:
    """A draft as the draft model makes it."""
    if way == "chain":
        tokens: list[int] = []
        while len(tokens) < growth.nodes:
            row = source.start if not tokens else source._row(np.array(tokens, dtype=np.int32))
            if tokens:
                source._charge(1)
            if not sizes.pays(len(tokens) + 1, float(source.words.said[row, 0])):
                break
            tokens.append(0)
        return Draft.chain(tokens)
    if way == "picks":
        return dynamic(
            growth, source, source.start, widen=sizes.widen, choose=sizes.choose, is_end=lambda _: False
        ).draft
    source.chances = ranks.chances(RANKS)
    shape = plan(ranks, growth, widen=sizes.widen, choose=sizes.choose)
    return fixed(shape, source, source.start, is_end=lambda _: False).draft


def judged(draft: Draft, rank: npt.NDArray[np.int64], start: int) -> Verdict:
    """The path that the words follow."""
    node, path, tested = ROOT, list[int](), 0
    while True:
        children = draft.children.get(node, ())
        wanted = rank[start + len(path)]
        found = [child for child in children if draft.tokens[child] == wanted]
        if not found:
            return Verdict(tuple(path), 0, "residual" if children else "bonus", tested + len(children))
        tested += children.index(found[0]) + 1
        node = found[0]
        path.append(node)


def play(
    sizes: Sizes,
    machine: Machine,
    text: Words,
    *,
    tokens: int,
    way: Way = "picks",
    growth: Growth = GROWTH,
    seed: int = 0,
) -> Run:
    """Decode `tokens` tokens."""
    rng = np.random.default_rng(seed)
    run, ranks, rest = Run(), Ranks(), Rest(sizes)
    sizes.begin(0)

    def shown(seconds: float) -> float:
        late = 3.0 if rng.random() < 0.01 else 1.0
        return seconds * late * float(np.exp(machine.noise * rng.standard_normal()))

    while run.tokens < tokens:
        room = min(tokens - run.tokens - 1, growth.nodes)
        limit = rest.limit(room)
        draft, draft_s = EMPTY, 0.0
        if limit:
            source = Script(text, run.tokens, machine.draft)
            draft = drafted(sizes, source, way, growth.within(nodes=limit, leaves=16), ranks)
            draft_s = source.seconds
        verdict = judged(draft, text.rank, run.tokens)
        ranks.learn(draft, verdict)
        verify_s = machine.verify(1 + len(draft))
        said = draft.confidences or (0.0,) * len(draft)
        siblings = [draft.children.get(node, ()) for node in (ROOT, *verdict.path)]
        rest.tell(
            RoundReport(
                drafted=len(draft),
                tested=verdict.tested,
                accepted=len(verdict.path),
                refused=verdict.source == "residual",
                draft_s=shown(draft_s) if limit else 0.0,
                verify_s=shown(verify_s),
                confidences=tuple(sum(said[node] for node in nodes) for nodes in siblings if nodes),
                taken=tuple(np.cumprod([said[node] for node in verdict.path]).tolist()),
            )
        )
        run.starts.append(run.tokens)
        run.nodes.append(len(draft))
        run.accepted.append(len(verdict.path))
        run.tokens += len(verdict.path) + 1
        run.seconds += draft_s + verify_s
    rest.end()
    return run


@dataclass(frozen=True)
class Always:
    """Always so many layers and so many nodes."""

    depth: int
    nodes: int
    frontier: int = 4
    rest: int = 0

    def begin(self, prompt: int) -> bool:
        return True

    def limit(self, room: int) -> int:
        return min(self.nodes, room)

    def pays(self, depth: int, confidence: float) -> bool:
        return depth <= self.depth

    def widen(self, depth: int, joints: Sequence[float]) -> int:
        return min(self.frontier, len(joints)) if depth <= self.depth else 0

    def choose(self, joints: Sequence[float]) -> int:
        return min(self.nodes, len(joints))

    def observe(self, report: RoundReport) -> None:
        return None


def plain_speed(machine: Machine) -> float:
    return 1.0 / machine.verify(1)


FIXED = [
    (depth, nodes, frontier)
    for depth, nodes in ((1, 1), (1, 3), (2, 3), (3, 5), (5, 5), (5, 11), (8, 11), (8, 19))
    for frontier in (1, 3)
    if frontier == 1 or nodes > depth > 1
]


def best_tree(machine: Machine, text: Words, *, tokens: int, way: Way = "picks") -> tuple[float, str]:
    """The speed of the best fixed size in hindsight, plain decoding included, and its name."""
    found = {"plain": plain_speed(machine)}
    for depth, nodes, frontier in FIXED:
        run = play(Always(depth, nodes, frontier), machine, text, tokens=tokens, way=way)
        found[f"{depth} deep, {nodes} nodes, {frontier} wide"] = run.speed
    name = max(found, key=found.__getitem__)
    return found[name], name


def best_chain(machine: Machine, text: Words, *, tokens: int) -> tuple[float, str]:
    """The same for chains of one node per layer, N = 1 .. 8."""
    found = {"plain": plain_speed(machine)}
    for N in range(1, 9):
        run = play(Always(N, N), machine, text, tokens=tokens, way="chain")
        found[f"N={N}"] = run.speed
    name = max(found, key=found.__getitem__)
    return found[name], name
