"""What becomes of a user's wishes and the registry's words before a file is touched."""

from __future__ import annotations

from typing import Any

import pytest

from localspec.catalog import registry
from localspec.drafters.registry import REGISTRY
from localspec.errors import UsageError
from localspec.services.pairs import MOST, SettledPair, settle
from localspec.services.settings import PairChoice

KNOWN = registry.read(
    """
default = "first"
[models.big]
source = "/models/big.gguf"
[models.little]
source = "/models/little.gguf"
[pairs.first]
verifier = "big"
drafter = "ngram"
N = 7
options = { max_ngram = 3 }
[pairs.second]
verifier = "big"
draft = "little"
drafter = "model"
options = { temperature = 0.5 }
""",
    "models.toml",
)


def settled(**choice: Any) -> SettledPair:
    return settle(PairChoice(**choice), KNOWN)


def test_nothing_said_is_the_default_pair() -> None:
    pair = settled()
    assert (pair.name, pair.verifier, pair.draft, pair.drafter) == ("first", "big", None, "ngram")
    assert (pair.N, pair.tree, pair.options) == (7, "none", {"max_ngram": "3"})
    assert not pair.uses_draft


def test_a_pair_by_name() -> None:
    pair = settled(pair="second")
    assert (pair.verifier, pair.draft, pair.drafter, pair.N) == ("big", "little", "model", "auto")
    assert pair.uses_draft


def test_a_pair_that_does_not_exist_is_told_with_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        settled(pair="secnod")
    assert "second" in caught.value.hint


def test_what_is_said_goes_before_what_is_written() -> None:
    pair = settled(pair="first", N=2, tree="none", options={"max_ngram": "5", "candidates": "2"})
    assert (pair.N, pair.options) == (2, {"max_ngram": "5", "candidates": "2"})
    assert settled(pair="second", N=0).N == 0


def test_options_belong_to_the_drafter_they_were_written_for() -> None:
    assert settled(pair="second", drafter="ngram").options == {}
    assert settled(pair="second", drafter="ngram", options={"max_ngram": "2"}).options == {"max_ngram": "2"}


def test_without_a_wish_the_pairs_own_drafter_drafts() -> None:
    assert settled(pair="second").drafter == "model"
    assert settled(pair="first").drafter == "ngram"
    assert settled(verifier="/x.gguf").drafter == "ngram"


def test_automatic_chooses_among_what_suits_the_pair_its_own_drafter_first() -> None:
    pair = settled(pair="second", drafter="auto")
    assert (pair.drafter, pair.among, pair.uses_draft) == ("auto", ("model", "ngram"), True)
    assert pair.completed("auto", {}) == {"among": "model,ngram"}
    assert pair.completed("auto", {"among": "ngram"}) == {"among": "ngram"}
    assert pair.completed("model", {"temperature": "1"}) == {"temperature": "1"}
    assert settled(pair="first", draft="little", drafter="auto").among == ("model", "ngram")


def test_automatic_without_anything_to_choose_is_the_one_drafter_there_is() -> None:
    assert settled(pair="first", drafter="auto").drafter == "ngram"
    assert settled(verifier="/x.gguf", drafter="auto").drafter == "ngram"
    assert settled(pair="first", drafter="auto", options={"among": "lookahead,ngram"}).drafter == "auto"
    assert settled(pair="second", drafter="auto").completed("auto", {"among": ""}) == {"among": "model,ngram"}


def test_a_wrong_option_of_auto_is_answered_with_the_options_of_auto() -> None:
    """On a pair with one drafter the answer listed that one's options."""
    with pytest.raises(UsageError, match="drafter auto has no option nope") as caught:
        settled(pair="first", drafter="auto", options={"nope": "1"})
    assert "among" in caught.value.hint


def test_a_draft_that_is_named_wants_to_be_used() -> None:
    pair = settled(verifier="/x.gguf", draft="/y.gguf")
    assert (pair.name, pair.verifier, pair.draft, pair.drafter) == ("/x.gguf", "/x.gguf", "/y.gguf", "model")
    assert settled(pair="first", draft="little").drafter == "model"
    assert settled(verifier="/x.gguf", draft="/y.gguf", drafter="none").drafter == "none"


def test_another_verifier_does_not_get_a_draft_that_was_chosen_for_this_one() -> None:
    pair = settled(pair="second", verifier="/other.gguf")
    assert (pair.verifier, pair.drafter) == ("/other.gguf", "ngram")
    assert settled(pair="second", verifier="/other.gguf", drafter="model").draft == "little", "unless it is asked for"


@pytest.mark.parametrize("drafter", [name for name, entry in REGISTRY.items() if entry.needs_draft])
def test_a_drafter_without_its_draft_is_wrong_use(drafter: str) -> None:
    for choice in ({"pair": "first"}, {"verifier": "/x.gguf"}):
        with pytest.raises(UsageError, match=drafter) as caught:
            settled(drafter=drafter, **choice)
        assert "--draft" in caught.value.hint


@pytest.mark.parametrize(
    "wrong",
    [
        {"drafter": "ngramm"},
        {"options": {"max_ngrams": "3"}},
        {"options": {"max_ngram": "three"}},
        {"options": {"max_ngram": "0"}},
    ],
    ids=str,
)
def test_a_wish_that_makes_no_sense_is_wrong_use(wrong: dict[str, Any]) -> None:
    """Before anything is fetched for it."""
    with pytest.raises(UsageError) as caught:
        settled(**wrong)
    assert caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("N", [-1, MOST + 1])
def test_a_length_out_of_range(N: int) -> None:
    with pytest.raises(UsageError, match=f"N is {N}"):
        settled(N=N)


@pytest.mark.parametrize("N", [0, 1, MOST, "auto"])
def test_a_length_in_range(N: Any) -> None:
    assert settled(N=N).N == N


def test_a_draft_that_turns_out_to_be_a_head_drafts_as_one() -> None:
    pair = settled(pair="first", draft="little").with_head("eagle3")
    assert (pair.drafter, pair.among) == ("eagle3", ("eagle3", "ngram"))
    pair = settled(pair="first", draft="little", drafter="auto").with_head("medusa")
    assert (pair.drafter, pair.among) == ("auto", ("medusa", "ngram"))
    assert settled(pair="first", drafter="ngram").with_head("eagle3").drafter == "ngram"
