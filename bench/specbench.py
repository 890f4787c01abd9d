"""The tables of the README, one command each: `python -m bench.specbench NAME`.

    plain        plain decoding against llama_cpp.Llama, Q4_1 and F32
    overhead     share of decode time outside llama.cpp: ngram and model at three samplings
    pair         F32 verifier, Q4_0 draft of the same weights, N=3, at T=0 and T=1
    lookup       ngram on summarisation, retrieval and code editing, Q4_1
    memory       peak memory of `localspec run` over what llama.cpp allocates
    acceptance   rejection and coupled against the rule of stock decoders, same pair, T=0 and T=1

Results go to bench/results/ as JSON and Markdown. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import peers, quantize, results, stock, weights
from localspec.cli.bench_formats import markdown
from localspec.cli.console import Terminal
from localspec.core.sampling import Sampling
from localspec.services import bench, prompts
from localspec.services.bench_rows import added
from localspec.services.bench_runs import PLAIN
from localspec.services.pairs import Length
from localspec.services.settings import AnswerSettings, EngineSettings, PairChoice

SETS = Path(__file__).parent / "prompts"
CONTEXT = 2048
GREEDY = Sampling(temperature=0.0)
DEFAULT = Sampling()
UNFILTERED = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
SAMPLINGS = {"T=0": GREEDY, "default": DEFAULT, "T=1, no filters": UNFILTERED}


@dataclass(frozen=True)
class Size:
    """How much to measure. limit: prompts per category (None: all); categories: only these (none named: all)."""

    repeats: int
    max_tokens: int
    limit: int | None
    categories: tuple[str, ...] = ()

    def prompts(self, *names: str) -> list[prompts.Prompt]:
        """The prompts of these sets."""
        found = [prompt for name in names for prompt in prompts.read(SETS / f"{name}.jsonl")]
        return prompts.choose(found, categories=self.categories, limit=self.limit)


def measure(
    choice: PairChoice,
    sampling: Sampling,
    asked: Sequence[prompts.Prompt],
    size: Size,
    *,
    drafters: Sequence[str],
    N: Length,
    acceptance: Any = None,
) -> bench.Bench:
    """One benchmark of the service, by its own protocol."""
    answer = AnswerSettings(sampling=sampling, acceptance=acceptance, max_tokens=size.max_tokens)
    request = bench.Request(asked, answer, drafters=drafters, lengths=[N], repeats=size.repeats)
    with Terminal() as terminal:
        return bench.bench(choice, EngineSettings(ctx_size=CONTEXT), request, terminal)


def f32_with_q4_0() -> PairChoice:
    """The pair of the comparison: F32 is memory-bound on a CPU as everything is on a GPU, and Q4_0 is fast."""
    source = weights.smollm2()
    return PairChoice(verifier=str(quantize.variant(source, "F32")), draft=str(quantize.variant(source, "Q4_0")))


def q4_1(*, with_draft: bool = False) -> PairChoice:
    """The embedded model as it comes; the draft is the same weights as Q4_0."""
    source = weights.smollm2()
    draft = str(quantize.variant(source, "Q4_0")) if with_draft else None
    return PairChoice(verifier=str(source), draft=draft)


def plain(size: Size) -> tuple[dict[str, Any], str]:
    """Bar: ratio >= 1.00 against the faster of the two settings of Llama."""
    source = weights.smollm2()
    asked = size.prompts("specbench12")
    files = [
        peers.compare(path, asked, repeats=size.repeats, max_tokens=size.max_tokens, context_size=CONTEXT)
        for path in (source, quantize.variant(source, "F32"))
    ]
    header = ["file", "peer", "localspec tokens/s", "peer tokens/s", "ratio, median (min-max)", "same text"]
    rows = [
        [
            file["file"],
            peer,
            f"{file['tokens_per_s']['localspec']['median']:.1f}",
            f"{file['tokens_per_s'][peer]['median']:.1f}",
            ranged(file["ratio"][peer]),
            f"{100 * file['same_text'][peer]:.0f} %",
        ]
        for file in files
        for peer in file["ratio"]
    ]
    return {"files": files}, results.as_table(header, rows)


def overhead(size: Size) -> tuple[dict[str, Any], str]:
    """Bars: 2 % at T=0, 4 % with the default sampling, 6 % at T=1 without filters."""
    asked = size.prompts("specbench12")
    measured = {}
    for name, sampling in SAMPLINGS.items():
        for drafter, N in (("ngram", 5), ("model", 3)):
            choice = q4_1(with_draft=drafter == "model")
            measured[f"{name}, {drafter}"] = measure(choice, sampling, asked, size, drafters=[drafter], N=N)
    return together(measured)


def pair(size: Size) -> tuple[dict[str, Any], str]:
    """Bars: >= 1.10x plain at T=0, >= 1.0x at T=1 without filters."""
    asked = size.prompts("specbench12")
    return together(
        {
            name: measure(f32_with_q4_0(), SAMPLINGS[name], asked, size, drafters=["model"], N=3)
            for name in ("T=0", "T=1, no filters")
        }
    )


def lookup(size: Size) -> tuple[dict[str, Any], str]:
    """Bars: >= 1.25x plain in one category, never below 0.97x."""
    asked = size.prompts("specbench_context8", "code_edit")
    return together({"T=0": measure(q4_1(), GREEDY, asked, size, drafters=["ngram"], N="auto")})


def memory(size: Size) -> tuple[dict[str, Any], str]:
    """Bar: at most 150 MB of peak memory over llama.cpp's own buffers."""
    command = [sys.executable, "-m", "bench.memory_probe", "run", "--raw", "Once upon a time"]
    options = ["--max-tokens", str(size.max_tokens), "--ctx-size", str(CONTEXT), "--verifier", str(weights.smollm2())]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]
    )
    found = json.loads(done.stderr.splitlines()[-1])
    own = sum(found["buffers_mb"].values())
    found |= {"llama_cpp_mb": own, "over_mb": found["peak_rss_mb"] - own}
    rows = [[name, f"{value:.1f}"] for name, value in found["buffers_mb"].items()]
    total = [["llama.cpp together", f"{own:.1f}"], ["peak of the process", f"{found['peak_rss_mb']:.1f}"]]
    return found, results.as_table(["", "MB"], [*rows, *total, ["over llama.cpp", f"{found['over_mb']:.1f}"]])


def acceptance(size: Size) -> tuple[dict[str, Any], str]:
    """How much of a draft survives, by three exact rules. Acceptance needs no quiet machine."""
    asked = size.prompts("specbench12")
    rows, kept = [], {}
    for name in ("T=0", "default", "T=1, no filters"):
        for rule in ("rejection", "coupled", "stock"):
            with stock.instead() if rule == "stock" else nullcontext():
                law = None if rule == "stock" else rule
                done = measure(f32_with_q4_0(), SAMPLINGS[name], asked, size, drafters=["model"], N=3, acceptance=law)
            total = added(run.stats for run in done.runs if run.turn.configuration != PLAIN)
            kept[f"{name}, {rule}"] = total.as_dict()
            figures = [total.acceptance_rate, total.alpha, total.tokens_per_pass]
            rows.append([name, rule, *("-" if figure is None else f"{figure:.3f}" for figure in figures)])
    header = ["sampling", "rule", "accepted / drafted", "alpha", "tokens per pass"]
    return {"rules": kept}, results.as_table(header, rows)


def together(measured: dict[str, bench.Bench]) -> tuple[dict[str, Any], str]:
    """Several benchmarks as one document and one page."""
    documents = {name: one.as_dict() for name, one in measured.items()}
    return {"benchmarks": documents}, "\n\n".join(f"## {name}\n\n{markdown(one)}" for name, one in documents.items())


def ranged(spread: dict[str, float]) -> str:
    return f"{spread['median']:.3f} ({spread['min']:.3f}-{spread['max']:.3f})"


TABLES: dict[str, Callable[[Size], tuple[dict[str, Any], str]]] = {
    "plain": plain,
    "overhead": overhead,
    "pair": pair,
    "lookup": lookup,
    "memory": memory,
    "acceptance": acceptance,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.specbench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--limit", type=int, default=None, help="prompts per category")
    parser.add_argument("--categories", nargs="*", default=(), help="only these")
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    asked = parser.parse_args()
    facts = results.facts()
    document, text = TABLES[asked.table](Size(asked.repeats, asked.max_tokens, asked.limit, tuple(asked.categories)))
    print(results.save(asked.table, facts | document, text, folder=asked.out))


if __name__ == "__main__":
    main()
