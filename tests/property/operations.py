"""What a user may do to a chat, as values that hypothesis makes up."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from localspec.core.sampling import Sampling
from tests.property.trip import STEPS

FREE = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
LAWS = [
    Sampling(temperature=0.0),
    Sampling(),
    Sampling(**FREE),  # type: ignore[arg-type]
    Sampling(temperature=0.0, repeat_penalty=1.3, penalty_last_n=-1),
    Sampling(temperature=1.5, top_k=5, repeat_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.2),
    Sampling(temperature=0.7, logit_bias={2: 4.0, 250: 2.0}),
]
STOPS = ["a", "e t", "\U0001f600", "éé", "cat", "é😀", "the cat"]
TEXTS = ["", "a", "one the cat", "é😀", "<|im_end|>", "  \n", "one one one " * 4, "b" * 70, "the cat the"]


@dataclass(frozen=True)
class Break:
    """How an answer is left early. kind: "walk" (the reader leaves after `at` pieces), "cancel" (the flag is up from
    the `at`-th question on), "line" (the `at`-th line of the loop) or a step of `trip.STEPS`.
    """

    kind: str
    at: int
    after: bool = False


@dataclass(frozen=True)
class How:
    """The wishes for one answer."""

    law: Sampling = LAWS[0]
    seed: int | None = None
    acceptance: str | None = None
    max_tokens: int | None = 8
    stop: tuple[str, ...] = ()
    speculate: bool = True
    leave: Break | None = None

    def __repr__(self) -> str:
        """Only what differs from the defaults: failing examples are read by people."""
        changed = {key: value for key, value in self.__dict__.items() if value != getattr(type(self), key)}
        if self.law in LAWS:
            changed["law"] = f"LAWS[{LAWS.index(self.law)}]"
        return f"How({', '.join(f'{key}={value}' for key, value in changed.items())})"


@dataclass(frozen=True)
class Ask:
    text: str
    how: How


@dataclass(frozen=True)
class Retry:
    how: How


@dataclass(frozen=True)
class Edit:
    """Take the last message back and send another one."""

    text: str
    how: How


@dataclass(frozen=True)
class Raw:
    """An answer to ids that have nothing to do with the chat."""

    prompt: tuple[int, ...]
    how: How


@dataclass(frozen=True)
class System:
    text: str | None


@dataclass(frozen=True)
class Draft:
    """Who drafts from now on."""

    drafter: str
    N: int | str
    tree: str
    options: tuple[tuple[str, str], ...] = ()
    resume: bool = False


@dataclass(frozen=True)
class Simple:
    """undo, reset, reload (save and load), restart (save, load into another conversation), empty (all caches), look
    (compare the next position's logits with a fresh context's).
    """

    what: str


Operation = Ask | Retry | Edit | Raw | System | Draft | Simple

_breaks = st.one_of(
    st.none(),
    st.none(),
    st.builds(Break, st.sampled_from(STEPS), st.integers(1, 8), st.booleans()),
    st.builds(Break, st.sampled_from(["walk", "cancel"]), st.integers(0, 9)),
    st.builds(Break, st.just("line"), st.integers(1, 900)),
)


def ways(laws: list[Sampling], stops: list[str]) -> st.SearchStrategy[How]:
    """Wishes for an answer."""
    return st.builds(
        How,
        law=st.sampled_from(laws),
        seed=st.none() | st.integers(0, 3),
        acceptance=st.sampled_from([None, None, "coupled", "rejection"]),
        max_tokens=st.sampled_from([8, 24, 3, 1, 0, None]),
        stop=st.lists(st.sampled_from(stops), max_size=3).map(tuple),
        speculate=st.sampled_from([True, True, True, False]),
        leave=_breaks,
    )


def _options(drafter: str) -> st.SearchStrategy[tuple[tuple[str, str], ...]]:
    """Options that a drafter knows."""
    known: dict[str, list[dict[str, str]]] = {
        "ngram": [{}, {"max_ngram": "2"}, {"remember": "true"}],
        "lookahead": [{}, {"W": "3", "N": "3", "G": "2"}],
        "cascade": [{}, {"order": "ngram,lookahead"}],
        "model": [{}, {"temperature": "1.3"}, {"siblings": "top"}],
        "wild": [{"seed": "1"}, {"seed": "2"}, {"seed": "3", "unruly": "true"}],
    }
    return st.sampled_from([tuple(one.items()) for one in known.get(drafter, [{}])])


def drafts() -> st.SearchStrategy[Draft]:
    """Another way to speculate."""
    return st.sampled_from(["none", "model", "ngram", "lookahead", "cascade", "wild"]).flatmap(
        lambda drafter: st.builds(
            Draft,
            drafter=st.just(drafter),
            N=st.sampled_from([4, 1, 2, 8, 0, "auto"]),
            tree=st.sampled_from(["none", "none", "2,2,1", "3", "auto"]),
            options=_options(drafter),
            resume=st.booleans(),
        )
    )


def operations(
    vocab_size: int, *, laws: list[Sampling] = LAWS, stops: list[str] = STOPS
) -> st.SearchStrategy[Operation]:
    """Any one of them; asking is what is done most."""
    how, text = ways(laws, stops), st.sampled_from(TEXTS)
    ids = st.lists(st.integers(0, vocab_size - 1), min_size=1, max_size=60).map(tuple)
    return st.one_of(
        st.builds(Ask, text, how),
        st.builds(Ask, text, how),
        st.builds(Retry, how),
        st.builds(Edit, text, how),
        st.builds(Raw, ids, how),
        drafts(),
        st.builds(System, st.sampled_from([None, "a system", "b" * 60])),
        st.builds(Simple, st.sampled_from(["undo", "reset", "reload", "restart", "empty", "look"])),
    )
