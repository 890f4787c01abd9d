"""What `replay_drafts` plays: `python -m tests.planner.record_drafts` writes it anew; ten minutes.

Behind every token of an answer the drafter says how sure it is of the next `DEPTH` tokens, and how many of them are
what the verifier goes on to write. The verifier is SmolLM2-135M-Instruct in F32, the drafters its Q4_0 copy and the
EAGLE-3 head that comes with localspec; prompts are those of bench/prompts (Spec-Bench, Apache-2.0).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from bench import quantize, weights
from bench.harness import CONTEXT, Size
from bench.matrix import PARTS, SAMPLINGS
from localspec.cli.console import Terminal
from localspec.core.coupled import Coupled
from localspec.core.draft import Draft, Verdict
from localspec.core.law import Law
from localspec.core.rule import LawOf
from localspec.loop.control import FixedLength
from localspec.services import runtime as services
from localspec.services.bench import bench
from localspec.services.prompts import Prompt
from localspec.services.runtime import Runtime
from localspec.services.settings import AnswerSettings, EngineSettings, PairChoice
from tests.planner.replay_drafts import FILE

MAX_TOKENS = 128
DEPTH = 4
Row = tuple[int, list[int]]
"""Tokens accepted, and how sure the drafter was of each, in percent."""


@dataclass(frozen=True)
class Asking(FixedLength):
    """Always so many tokens; notes down how sure the drafter is of each."""

    asks: bool = True
    rest: int = 0
    claims: list[int] = field(default_factory=list)

    def pays(self, depth: int, confidence: float) -> bool:
        self.claims.append(round(100 * confidence))
        return True


class OneByOne:
    """Accepts nothing, so that every token gets a draft; the text is that of `core.coupled` all the same."""

    def __init__(self, seed: int, claims: list[int], rows: list[Row]) -> None:
        self._coupled = Coupled(seed)
        self._claims, self._rows = claims, rows

    def guess(self, law: Law, position: int) -> tuple[int, Law | None]:
        return self._coupled.guess(law, position)

    def guesses(self, law: Law, position: int, count: int) -> list[tuple[int, Law | None]]:
        return self._coupled.guesses(law, position, count)

    def accept(self, draft: Draft, law_of: LawOf, position: int) -> Verdict:
        found = self._coupled.accept(draft, law_of, position)
        self._rows.append((len(found.path), self._claims[: len(draft)]))
        self._claims.clear()
        token = int(draft.tokens[found.path[0]]) if found.path else found.next_token
        return Verdict((), token, "residual" if len(draft) else "bonus", min(len(draft), 1))


def drafted(drafter: str, draft: str, asked: Sequence[Prompt], terminal: Terminal) -> dict[str, Any]:
    """The prompts as ids, and all answers to them, with what this drafter said."""
    verifier = str(quantize.variant(weights.smollm2(), "F32"))
    options = {"force": "true"} if drafter == "eagle3" else {}
    choice = PairChoice(verifier=verifier, draft=draft, drafter=drafter, N=DEPTH, options=options)
    asking = Asking(DEPTH)
    answers = []
    with Runtime.open(choice, EngineSettings(ctx_size=CONTEXT, threads=1), terminal) as runtime:
        runtime._controller = asking
        ids = bench.encode(runtime, bench.Request(asked, AnswerSettings()), terminal)
        prompts = [
            {"category": PARTS.get(prompt.category, prompt.category), "tokens": tokens}
            for prompt, tokens in zip(asked, ids, strict=True)
        ]
        for temperature, sampling in SAMPLINGS.items():
            for number, prompt in enumerate(ids):
                rows: list[Row] = []
                settings = AnswerSettings(sampling=sampling, max_tokens=MAX_TOKENS, seed=number)
                rule = OneByOne(number, asking.claims, rows)
                with patch.object(services, "rule_of", return_value=rule):
                    stream = runtime.answer(prompt, settings, ignore_end=True)
                    for _ in stream:
                        pass
                right = sum(accepted > 0 for accepted, _ in rows)
                terminal.note(f"{drafter}, {temperature}, {number + 1} of {len(ids)}: {right} of {len(rows)}")
                answers.append(
                    {
                        "temperature": temperature,
                        "prompt": number,
                        "tokens": stream.answer.tokens,
                        "drafts": rows,
                    }
                )
    return {"prompts": prompts, "answers": answers}


def main() -> None:
    size = Size(repeats=1, max_tokens=MAX_TOKENS, limit=None)
    asked = list({prompt.text: prompt for prompt in size.prompts("specbench12", "specbench_context8")}.values())
    drafts = {"model": str(quantize.variant(weights.smollm2(), "Q4_0")), "eagle3": "smollm2-135m-eagle3"}
    with Terminal() as terminal:
        found = {drafter: drafted(drafter, draft, asked, terminal) for drafter, draft in drafts.items()}
    document = {
        "made": "SmolLM2-135M-Instruct F32, by python -m tests.planner.record_drafts",
        "prompts": found["model"]["prompts"],
        "drafters": {drafter: answers["answers"] for drafter, answers in found.items()},
    }
    FILE.write_bytes(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0))


if __name__ == "__main__":
    main()
