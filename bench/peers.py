"""Plain greedy decoding, localspec against `llama_cpp.Llama`: same file, same ids, same threads, turn by turn.

A decode step of each is timed from the first token to the last, so that reading the prompt counts for neither.
`Llama` runs with its defaults and once more with flash attention; the faster of the two is what localspec is held to.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp

from localspec.core.sampling import Sampling
from localspec.services.bench.bench import Request, encode
from localspec.services.prompts import Prompt
from localspec.services.report import Silent
from localspec.services.runtime import Runtime
from localspec.services.settings import AnswerSettings, EngineSettings, PairChoice

GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True)
class Measured:
    """Tokens of one answer, and the tokens per second after the first."""

    tokens: list[int]
    tokens_per_s: float


Decode = Callable[[list[int], int], Measured]


def timed(arrivals: Sequence[float], tokens: list[int]) -> Measured:
    return Measured(tokens, (len(tokens) - 1) / (arrivals[-1] - arrivals[0]) if len(tokens) > 1 else 0.0)


def by_localspec(runtime: Runtime) -> Decode:
    """Plain decoding by the loop that users get, text and counters included."""

    def decode(ids: list[int], count: int) -> Measured:
        runtime.forget()
        settings = AnswerSettings(sampling=GREEDY, max_tokens=count)
        stream = runtime.answer(ids, settings, speculate=False, ignore_end=True)
        for _ in stream:
            pass
        stats = stream.answer.stats
        return Measured(list(stream.answer.tokens), stats.completion_tokens / stats.decode_s)

    return decode


def by_llama(path: Path, context_size: int, threads: int, *, flash_attention: bool) -> Decode:
    """The high-level class of llama-cpp-python, greedy."""
    llama = llama_cpp.Llama(
        str(path),
        n_ctx=context_size,
        n_threads=threads,
        n_threads_batch=threads,
        flash_attn=flash_attention,
        verbose=False,
    )

    def decode(ids: list[int], count: int) -> Measured:
        llama.reset()
        tokens, arrivals = [], []
        for token in llama.generate(ids, temp=0.0, repeat_penalty=1.0):
            tokens.append(int(token))
            arrivals.append(time.perf_counter())
            if len(tokens) == count:
                break
        return timed(arrivals, tokens)

    return decode


def compare(
    path: Path, prompts: Sequence[Prompt], *, repeats: int, max_tokens: int, context_size: int
) -> dict[str, Any]:
    """Ratios localspec / Llama per prompt and repeat, and in how many the texts are the same."""
    engine = EngineSettings(ctx_size=context_size)
    with Runtime.open(PairChoice(verifier=str(path), drafter="none"), engine, Silent()) as runtime:
        ids = encode(runtime, Request(prompts, AnswerSettings()), Silent())
        threads = runtime.settings()["threads"]
        contestants = {
            "localspec": by_localspec(runtime),
            "llama_cpp.Llama": by_llama(path, context_size, threads, flash_attention=False),
            "llama_cpp.Llama, flash_attn": by_llama(path, context_size, threads, flash_attention=True),
        }
        for decode in contestants.values():
            decode(ids[0], 8)
        found: dict[str, list[Measured]] = {name: [] for name in contestants}
        for repeat in range(repeats):
            for place, prompt in enumerate(ids):
                names = list(contestants)
                start = (repeat + place) % len(names)
                for name in names[start:] + names[:start]:
                    found[name].append(contestants[name](prompt, max_tokens))
    mine = found.pop("localspec")
    return {
        "file": path.name,
        "prompts": len(prompts),
        "repeats": repeats,
        "max_tokens": max_tokens,
        "threads": threads,
        "tokens_per_s": {
            name: middle([one.tokens_per_s for one in runs]) for name, runs in [("localspec", mine), *found.items()]
        },
        "ratio": {name: ratios(mine, runs) for name, runs in found.items()},
        "same_text": {
            name: sum(a.tokens == b.tokens for a, b in zip(mine, runs, strict=True)) / len(mine)
            for name, runs in found.items()
        },
    }


def ratios(mine: Sequence[Measured], theirs: Sequence[Measured]) -> dict[str, float]:
    return middle([a.tokens_per_s / b.tokens_per_s for a, b in zip(mine, theirs, strict=True)])


def middle(values: Sequence[float]) -> dict[str, float]:
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}
