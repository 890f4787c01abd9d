"""The list of drafters: what each says of itself, and how what a user types becomes its options."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import pytest

from localspec.drafters.registry import REGISTRY, Entry, entry
from localspec.errors import UsageError
from tests.drafters.settings import NAMES, built, toy, toy_lender


@pytest.mark.parametrize("name", NAMES)
def test_every_drafter_says_what_it_is(name: str) -> None:
    one = entry(name)
    assert one.name == name
    assert one.summary
    assert is_dataclass(one.options_class)
    for option in one.options:
        assert option.help, f"{name}: option {option.name} is not explained in the docstring of its Options"
        assert option.type in ("int", "float", "bool", "str")
        assert option.default == getattr(one.options_class(), option.name)


@pytest.mark.parametrize("name", NAMES)
def test_every_drafter_has_the_name_it_is_listed_under(name: str) -> None:
    model = toy()
    assert built(name, toy_lender(model)).name == name


@pytest.mark.parametrize("name", NAMES)
def test_every_default_can_be_typed(name: str) -> None:
    one = entry(name)
    typed = {option.name: str(option.default) for option in one.options}
    assert one.parse(typed) == one.parse({}) == one.options_class()


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_option_is_told_with_the_known_ones(name: str) -> None:
    one = entry(name)
    with pytest.raises(UsageError, match="wdith") as caught:
        one.parse({"wdith": "3"})
    assert all(option.name in caught.value.hint for option in one.options)


def test_plain_decoding_is_always_there() -> None:
    assert next(iter(REGISTRY)) == "none"


def test_an_unknown_drafter_is_told_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="ngarm") as caught:
        entry("ngarm")
    assert all(name in caught.value.hint for name in NAMES)


@dataclass(frozen=True)
class Options:
    """Options of every type.

    count  a whole number
    rate  a number
    loud  yes or no
    word  any text
    """

    count: int = 3
    rate: float = 0.5
    loud: bool = False
    word: str = "a"


SAMPLE = Entry("sample", "for this test", Options, lambda options, lender: built("none", lender))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ({"count": "-7"}, -7),
        ({"rate": "2"}, 2.0),
        ({"rate": "1e-3"}, 0.001),
        ({"loud": "yes"}, True),
        ({"loud": "ON"}, True),
        ({"loud": "0"}, False),
        ({"word": "3"}, "3"),
    ],
    ids=str,
)
def test_what_is_typed_is_read_by_type(typed: dict[str, str], value: Any) -> None:
    (name,) = typed
    assert getattr(SAMPLE.parse(typed), name) == value
    assert [field.name for field in fields(Options)] == [option.name for option in SAMPLE.options]


@pytest.mark.parametrize("typed", [{"count": "3.5"}, {"count": "many"}, {"rate": "half"}, {"loud": "maybe"}], ids=str)
def test_what_cannot_be_read_is_told_with_an_example(typed: dict[str, str]) -> None:
    (name,) = typed
    with pytest.raises(UsageError, match=name) as caught:
        SAMPLE.parse(typed)
    assert str(getattr(Options(), name)) in caught.value.hint


@pytest.mark.parametrize("temperature", ["-0.5", "inf", "nan"])
def test_a_drafts_temperature_is_checked(temperature: str) -> None:
    with pytest.raises(UsageError, match="temperature"):
        entry("model").parse({"temperature": temperature})


def test_a_drafts_temperature_may_be_any_from_0_on() -> None:
    assert [entry("model").parse({"temperature": text}).temperature for text in ("0", "0.7", "3", "-1")] == [
        0,
        0.7,
        3,
        -1,
    ]
