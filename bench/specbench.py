"""The tables of the README, one command each: `python -m bench.specbench NAME`.

    plain        plain decoding against llama_cpp.Llama, Q4_1 and F32
    overhead     share of decode time outside llama.cpp: ngram and model at three samplings
    pair         F32 verifier, Q4_0 draft of the same weights, N=3, at T=0 and T=1
    lookup       ngram on summarisation, retrieval and code editing, Q4_1
    memory       peak memory of `localspec run` over what llama.cpp allocates
    acceptance   rejection and coupled against the rule of stock decoders, same pair, T=0 and T=1
    trees        static and grown trees against the chain with as many draft passes, at T=0 and T=1
    autotree     --tree auto against chains of 1 to 8 tokens, F32 and Q4_1
    lookahead    W=5 N=4 G=5 and sizes chosen by cost, tokens per pass by category, tokens/s beside plain
    cascade      ngram and model together against each of them, by category, F32 and Q4_1
    treecost     work outside llama.cpp for trees of 32 nodes at T=0
    matrix       --N auto against plain and against fixed lengths: 4 formats, 3 temperatures, 6 categories, 2 drafters
    controller   time that the controllers take for a round
    heads        the shipped head on F32 and Q4_1: chains, trees, N=auto, by category
    plan         what plan expects against what bench measures, 4 formats

Results go to bench/results/ as JSON and Markdown. Nothing else should run meanwhile. `--only` measures some parts of a
table (T=0, F32, ...), `--limit 1 --repeats 1` takes one prompt per category once.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bench import controllers, headtables, matrix, peers, plans, quantize, results, stock, treetables, weights
from bench.harness import CONTEXT, GREEDY, SAMPLINGS, Size, f32_with_q4_0, measure, q4_1, ranged, together
from localspec.cli.options import draft_length
from localspec.errors import LocalspecError
from localspec.services.bench.rows import added
from localspec.services.bench.runs import PLAIN, Configuration

CHAIN = Configuration("model", 3)


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
            measured[f"{name}, {drafter}"] = measure(choice, sampling, asked, size, ways=[Configuration(drafter, N)])
    return together(measured)


def pair(size: Size) -> tuple[dict[str, Any], str]:
    """Bars: >= 1.10x plain at T=0, >= 1.0x at T=1 without filters."""
    asked = size.prompts("specbench12")
    return together(
        {
            name: measure(f32_with_q4_0(), SAMPLINGS[name], asked, size, ways=[CHAIN])
            for name in ("T=0", "T=1, no filters")
        }
    )


def lookup(size: Size) -> tuple[dict[str, Any], str]:
    """Bars: >= 1.25x plain in one category, never below 0.97x."""
    asked = size.prompts("specbench_context8", "code_edit")
    return together({"T=0": measure(q4_1(), GREEDY, asked, size, ways=[Configuration("ngram", "auto")])})


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
                done = measure(f32_with_q4_0(), SAMPLINGS[name], asked, size, ways=[CHAIN], acceptance=law)
            total = added(run.stats for run in done.runs if run.turn.configuration != PLAIN)
            kept[f"{name}, {rule}"] = total.as_dict()
            figures = [total.acceptance_rate, total.alpha, total.tokens_per_pass]
            rows.append([name, rule, *("-" if figure is None else f"{figure:.3f}" for figure in figures)])
    header = ["sampling", "rule", "accepted / drafted", "alpha", "tokens per pass"]
    return {"rules": kept}, results.as_table(header, rows)


TABLES: dict[str, Callable[[Size], tuple[dict[str, Any], str]]] = {
    "plain": plain,
    "overhead": overhead,
    "pair": pair,
    "lookup": lookup,
    "memory": memory,
    "acceptance": acceptance,
    "trees": treetables.trees,
    "autotree": treetables.autotree,
    "lookahead": treetables.lookahead,
    "cascade": treetables.cascade,
    "treecost": treetables.treecost,
    "matrix": matrix.matrix,
    "controller": controllers.controller,
    "heads": headtables.heads,
    "plan": plans.plans,
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
    parser.add_argument("--only", nargs="*", default=(), help="these parts of the table")
    parser.add_argument("--N", type=draft_length, default=None, help="draft length, where a table leaves the choice")
    parser.add_argument("--trees", nargs="*", default=(), help="static trees, like 4,2,2")
    parser.add_argument("--lengths", nargs="*", type=int, default=(), help="fixed draft lengths, like 1 2 5; 0: none")
    parser.add_argument("--cells", type=Path, default=None, help="file of finished cells, to go on from")
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    asked = parser.parse_args()
    size = Size(
        asked.repeats,
        asked.max_tokens,
        asked.limit,
        tuple(asked.categories),
        tuple(asked.only),
        asked.N,
        tuple(asked.trees),
        tuple(asked.lengths),
        asked.cells,
    )
    facts = results.facts()
    try:
        document, text = TABLES[asked.table](size)
    except LocalspecError as error:
        parser.error(f"{error} {error.hint}")
    name = "-".join([asked.table, *(part.replace(" ", "") for part in asked.only)])
    print(results.save(name, facts | document, text, folder=asked.out))


if __name__ == "__main__":
    main()
