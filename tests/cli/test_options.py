"""The shared options: what was not typed has the services' defaults, what was typed arrives as typed."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Annotated, Any, get_type_hints

import pytest
import typer

from localspec.cli.limits import LIMITS, number
from localspec.cli.options import Shared, assignments, logit_biases, with_shared
from localspec.core.sampling import Sampling
from localspec.errors import UsageError
from localspec.services.settings import AnswerSettings, EngineSettings, PairChoice

EVERYTHING = """
--pair P --verifier V --draft D --drafter model --N 3 --tree 4,2,2 -o temperature=0.5 -o other=x=y
--acceptance coupled --temperature 0 --top-k 0 --top-p 1 --min-p 0 --repeat-penalty 1.1 --frequency-penalty -0.5
--presence-penalty 0.25 --repeat-last-n -1 --logit-bias 7=-inf --logit-bias 8=1.5 --seed 0 --max-tokens 0 --stop A
--stop B --system S --ctx-size 512 --gpu-layers 12 --draft-gpu-layers auto --threads 3 --kv-type q8_0
--draft-kv-type q4_0 --flash-attn on
"""


def parsed(line: str) -> Shared:
    """What a command gets when this is typed."""
    got: list[Shared] = []
    app = typer.Typer()

    @app.command()
    @with_shared
    def command(shared: Shared, own: Annotated[str | None, typer.Argument()] = None) -> None:
        got.append(shared)

    app(line.split(), standalone_mode=False)
    return got[0]


def test_nothing_typed_means_the_services_defaults() -> None:
    shared = parsed("")
    assert shared == Shared()
    assert shared.choice() == PairChoice()
    assert shared.engine() == EngineSettings()
    assert shared.answer() == AnswerSettings()


def test_everything_typed_arrives() -> None:
    shared = parsed(EVERYTHING)
    assert shared.choice() == PairChoice("P", "V", "D", "model", 3, "4,2,2", {"temperature": "0.5", "other": "x=y"})
    assert shared.engine() == EngineSettings(512, 12, None, 3, "q8_0", "q4_0", "on")
    assert shared.answer() == AnswerSettings(
        Sampling(0.0, 0, 1.0, 0.0, 1.1, -0.5, 0.25, -1, {7: float("-inf"), 8: 1.5}), "coupled", 0, 0, ("A", "B")
    )
    assert shared.system == "S"
    assert parsed("--N auto").choice().N == "auto"


def test_a_command_may_have_other_defaults_but_what_is_typed_counts() -> None:
    assert parsed("").answer(temperature=0.0, max_tokens=9).sampling.temperature == 0.0
    assert parsed("").answer(temperature=0.0, max_tokens=9).max_tokens == 9
    assert parsed("--temperature 0.8").answer(temperature=0.0).sampling.temperature == 0.8


def help_of(field: str) -> str:
    hint = get_type_hints(Shared, include_extras=True)[field]
    found: Any = hint.__metadata__[0].help
    return str(found)


def test_the_help_names_the_real_defaults() -> None:
    """The help is written by hand, since reading the defaults would load numpy."""
    named = {"repeat_last_n": "penalty_last_n"}
    sampling, engine = Sampling(), EngineSettings()
    for field in fields(Shared):
        match = re.search(r"\(default ([^;)]+)", help_of(field.name))
        home = next((one for one in (sampling, engine) if hasattr(one, named.get(field.name, field.name))), None)
        value = getattr(home, named.get(field.name, field.name), None)
        if isinstance(value, int | float):
            assert match is not None, field.name
            assert float(match[1]) == value
        elif isinstance(value, str):
            assert match is not None, field.name
            assert match[1] == value


@pytest.mark.parametrize("name", LIMITS)
def test_no_number_is_infinite_or_text(name: str) -> None:
    for text in ("inf", "nan", "-inf", "many", ""):
        with pytest.raises(UsageError, match=name):
            number(name, text)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("temperature", "0", "-0.1"),
        ("top-p", "1", "1.01"),
        ("min-p", "0", "-0.01"),
        ("repeat-penalty", "0.5", "0"),
        ("repeat-last-n", "-1", "-2"),
        ("seed", str(2**63 - 1), str(2**63)),
        ("max-tokens", "0", "-1"),
        ("threads", "1", "0"),
        ("threads", "512", "513"),
        ("top-k", "3", "3.5"),
    ],
)
def test_the_borders_of_the_ranges(name: str, good: str, bad: str) -> None:
    assert str(number(name, good)).removesuffix(".0") == good
    with pytest.raises(UsageError):
        number(name, bad)


def test_assignments_and_biases() -> None:
    assert assignments("-o", ["a=1", "b="]) == {"a": "1", "b": ""}
    for wrong in (["a"], ["=1"], ["a=1", "a=2"]):
        with pytest.raises(UsageError):
            assignments("-o", wrong)
    for wrong in (["x=1"], ["-3=1"], ["3=inf"], ["3=nan"], ["3=x"]):
        with pytest.raises(UsageError):
            logit_biases(wrong)
