"""The table of the shipped head: what it brings on the verifier it was trained for, and on the same weights as F32.

It ends in the full benchmark tables that it was computed from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bench import weights
from bench.harness import GREEDY, Size, f32_with_q4_0, measure, number, q4_1, with_summary
from bench.treetables import PROMPTS, Table, against, per_pass, times, total
from localspec.services.bench.rows import ALL
from localspec.services.bench.runs import PLAIN, Configuration
from localspec.services.settings import PairChoice

HEAD = "eagle3"
CHAINS = (1, 2, 3)
VERIFIERS: dict[str, Callable[[], PairChoice]] = {"F32": f32_with_q4_0, "Q4_1": q4_1}


def heads(size: Size) -> Table:
    """Bars: on F32 the best way >= 1.05x plain in one category and N=auto never below 0.97x; a draft step of the head
    costs at most 0.15 of a Q4_1 token."""
    chains = [Configuration(HEAD, length) for length in (size.lengths or CHAINS)]
    ways = [*chains, Configuration(HEAD, "auto"), Configuration(HEAD, "auto", "auto")]
    asked = size.prompts(PROMPTS)
    measured = {}
    for name in size.parts(VERIFIERS):
        choice = replace(VERIFIERS[name](), draft=str(weights.head()), drafter=HEAD)
        measured[name] = measure(choice, GREEDY, asked, size, ways=ways, options={"force": "true"})
    categories = list(dict.fromkeys(prompt.category for prompt in asked))
    header = ["verifier", "draft", "tokens per pass", "accepted by position", "draft step", "all", *categories]
    lines = []
    for name, done in measured.items():
        plain = total(done, PLAIN)
        token = plain.decode_s / plain.completion_tokens if plain.completion_tokens else None
        for way in ways:
            counters = total(done, way)
            step = counters.draft_s / counters.drafted if counters.drafted and way in chains else None
            speeds = [against(done, way, PLAIN, category) for category in (ALL, *categories)]
            lines.append(
                [
                    name,
                    way.label,
                    number(counters.tokens_per_pass),
                    " ".join(number(per_pass(counters, count)) for count in counters.accepted_by_position),
                    number(step / token if step and token else None, 3),
                    *map(times, speeds),
                ]
            )
    return with_summary(measured, header, lines)
