"""`localspec plan`: measures a pair on this machine and says how to speculate with it, or that it does not pay.

Plain answers first; then what each drafter would have proposed along them; then what passes and draft tokens cost;
the arithmetic of `planner.plan` on top. Drafters that change what the verifier evaluates (lookahead, cascade, heads)
cannot be judged on a text that is known: they are tried. Recommends a drafter, a length and a tree, nothing else: these
are what a text cannot depend on. Knows no terminal.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import mul
from pathlib import Path

from localspec.catalog import machine, registry
from localspec.core.theory import WORTH
from localspec.drafters import registry as drafters
from localspec.errors import ContextFullError, DrafterError, LocalspecError, UsageError, in_one_line
from localspec.planner import plan as arithmetic
from localspec.planner.plan import Candidate, Costs, Trace, Walk
from localspec.planner.profile import Profile
from localspec.services.bench import bench
from localspec.services.bench import facts as bench_facts
from localspec.services.pairs import MOST, ROOM, settle
from localspec.services.plan import checks as plan_checks
from localspec.services.plan import costs as plan_costs
from localspec.services.plan import texts as plan_texts
from localspec.services.plan.outcome import Judged, Plan, Request
from localspec.services.plan.texts import Asked, Text
from localspec.services.profiles import Profiles
from localspec.services.report import Report
from localspec.services.runtime import Runtime, rule_of
from localspec.services.settings import EngineSettings, PairChoice

AUTO = 0.99
"""N=auto is recommended when it keeps this share of the best fixed length: it notices when a text changes."""
MEMORY_BOUND = 2.0
"""Plain passes that 16 rows may cost for lookahead to be worth a try."""
TRIED = 3
"""Prompts that a drafter is tried on."""
OTHERS = "Leave --drafter out, or choose --drafter ngram."


def plan(choice: PairChoice, engine: EngineSettings, request: Request, report: Report) -> Plan:
    """Load the pair, measure it, keep its profile."""
    free = machine.memory()[1]
    is_open = choice.drafter in (None, "auto")
    pair = settle(replace(choice, drafter="auto") if is_open else choice, registry.load())
    members = pair.among if is_open else (pair.drafter,)
    # Opened for the drafter that needs a second model, if there is one: that fetches and checks the draft.
    opener = next((name for name in members if drafters.entry(name).uses_draft), members[0])
    if opener == "none":
        raise UsageError("--drafter none leaves nothing to plan.", hint="Leave it out, or name another drafter.")
    room = min(MOST, max(ROOM, (arithmetic.LONGEST + 1) * request.parallel - 1))
    options = request.options if opener in (pair.drafter, *members[:1]) else {}
    # Where no drafter was named, a head may say which drafter it is for.
    named_ = opener if not is_open else None if opener == members[0] else "auto"
    opened = replace(choice, drafter=named_, N=room, tree="none", options=options)
    with Runtime.open(opened, engine, report) as runtime:
        members = runtime.pair.among if is_open else (opener,)
        wanted = [name for name in members if runtime.drafter != "none" or not drafters.entry(name).needs_draft]
        asked = replace(request, answer=plan_texts.settings_for(request.answer))
        return measured(runtime, asked, [name for name in wanted if name != "none"], free, report)


def measured(runtime: Runtime, request: Request, names: Sequence[str], free: int | None, report: Report) -> Plan:
    """Plan for an open pair and these drafters. Raises `DrafterError` when none of them can be used."""
    if not names:
        raise DrafterError("there is no drafter left to plan for", hint=OTHERS)
    texts = answered(runtime, request, report)
    asked = {name: read(runtime, name, texts, request, report) for name in names}
    times = timed(runtime, texts, asked, request, report)
    costs = plan_costs.costs(times, texts, streams=request.parallel)
    judged = [judge(runtime, name, found, costs, request) for name, found in asked.items() if found is not None]
    settings = runtime.settings()
    profile, stored = kept(runtime, judged, asked, costs, request, report)
    needed = runtime.needs()
    checks = plan_checks.checks(settings, needed=needed, free=free, leaves=runtime.verifier.leaves)
    warned = plan_checks.warnings(costs, request.answer.sampling, has_draft="draft" in needed)
    judged += tried(
        runtime, [name for name, found in asked.items() if found is None], judged, texts, costs, request, report
    )
    if not judged:
        raise DrafterError(f"{', '.join(names)} could not be tried, so there is nothing to plan", hint=OTHERS)
    chosen, fallback = choose(judged, request)
    shown = max((one.best for one in judged), key=lambda one: one.speedup, default=None)
    everything = [each for one in judged for each in one.candidates]
    return Plan(
        machine=bench_facts.machine(),
        llama_cpp=bench_facts.llama_cpp(),
        settings=settings,
        request=request,
        texts=texts,
        judged=judged,
        chosen=chosen,
        fallback=fallback,
        around=arithmetic.around(everything, chosen or shown) if shown else [],
        profile=profile,
        stored=stored,
        checks=checks,
        warnings=warned,
        reasons=reasons(judged, chosen, request),
    )


def answered(runtime: Runtime, request: Request, report: Report) -> list[Text]:
    """Plain answers to the prompts that fit."""
    as_bench = bench.Request(request.prompts, request.answer, system=request.system, raw=request.raw)
    _, ids = bench.fitting(bench.encode(runtime, as_bench, report), as_bench, runtime.context_size, report)
    texts = plan_texts.plain_texts(runtime, ids, request.answer, report)
    if not texts:
        raise UsageError(
            f"every answer ended before its {plan_texts.SHORTEST}th token, so there is nothing to plan from",
            hint="Give other --prompts, or --raw for a model that was not made for chats.",
        )
    return texts


def read(runtime: Runtime, name: str, texts: Sequence[Text], request: Request, report: Report) -> Asked | None:
    """What the drafter would have proposed; None when that can only be found out by running it."""
    options = options_of(runtime, name, request)
    if name == "model":
        return plan_texts.read_by_model(runtime, texts, request.answer, options, report)
    if name == "ngram":
        return plan_texts.read_by_lookup(name, runtime, texts, request.answer, options)
    return None


def options_of(runtime: Runtime, name: str, request: Request) -> Mapping[str, str]:
    """The pair's own options for its own drafter, what was typed where it is known, none else."""
    opened = runtime.settings()
    if name == opened["drafter_asked"]:
        found: Mapping[str, str] = opened["options"]
        return found
    known = {option.name for option in drafters.entry(name).options}
    return {key: value for key, value in request.options.items() if key in known}


def timed(
    runtime: Runtime, texts: Sequence[Text], asked: Mapping[str, Asked | None], request: Request, report: Report
) -> plan_costs.Times:
    """Passes and draft tokens on a text of middling length."""
    text = sorted(texts, key=lambda one: len(one.whole))[len(texts) // 2]
    drafter, draft = None, None
    if asked.get("model"):
        entry = drafters.entry("model")
        drafter = entry.drafter_class(entry.parse(options_of(runtime, "model", request)), runtime.lender)
        draft = runtime.lender.context("draft")
        drafter.begin(
            text.prompt, sampling=request.answer.sampling, rule=rule_of(request.answer), cancelled=lambda: False
        )
    reach = [0.0]
    for found in asked.values():
        if found is not None:
            reach = longer(reach, list(accumulate(arithmetic.by_depth(found.traces), mul)))
    wanted = plan_costs.sizes(reach, room=runtime.verifier.draft_room, streams=request.parallel)
    return plan_costs.measure(
        runtime.verifier, text, wanted, drafter=drafter, draft=draft, report=report, streams=request.parallel
    )


def longer(mine: list[float], theirs: list[float]) -> list[float]:
    """The larger of both at each place."""
    size = max(len(mine), len(theirs))
    padded = [one + [0.0] * (size - len(one)) for one in (mine, theirs)]
    return [max(pair) for pair in zip(*padded, strict=True)]


def judge(runtime: Runtime, name: str, asked: Asked, costs: Costs, request: Request) -> Judged:
    """All lengths of a drafter, its trees, and the controller, on the texts."""
    lookup = drafters.entry(name).is_lookup
    own = replace(costs, draft_s=0.0, layers_s=(), again_s=0.0, ask_s=asked.ask_s) if lookup else costs
    found = arithmetic.candidates(name, asked.traces, own, trees=runtime.verifier.leaves > 1)
    profile = measured_profile(own, asked.traces)
    walks, _ = arithmetic.automatic(asked.traces, own, profile, lookup=lookup)
    longest = max((one for one in found if one.tree == "none"), key=lambda one: one.speedup)
    found.append(arithmetic.candidate(name, "auto", "none", walks, own, longest=int(longest.N)))
    return Judged(name, found, asked.overlap if asked.overlap is not None else longest.alpha, own)


def measured_profile(costs: Costs, traces: Sequence[Trace]) -> Profile:
    """As a controller starts from it. Passes for several streams side by side say nothing about one.

    Among plain passes a wide one stands alone: it and the plain one behind it are passes over another number.
    """
    costs = replace(costs, streams=1)
    verify = tuple(
        (n, seconds + (costs.anew(n, 1) + costs.anew(1, n) if n > 1 else 0.0))
        for n, seconds in costs.verify_s
        if n <= arithmetic.LONGEST + 1
    )
    return Profile(verify, costs.draft_s or None, arithmetic.by_depth(traces))


def kept(
    runtime: Runtime,
    judged: Sequence[Judged],
    asked: Mapping[str, Asked | None],
    costs: Costs,
    request: Request,
    report: Report,
) -> tuple[Profile, Path | None]:
    """Write the profile of every drafter that was computed; the first one's, with its file if it could be written."""
    store, shown = Profiles(report), []
    for one in judged:
        traces = asked_traces(asked, one.drafter)
        alone = replace(one.costs, streams=1)
        profile = measured_profile(alone, traces)
        _, controller = arithmetic.automatic(traces, alone, profile, lookup=drafters.entry(one.drafter).is_lookup)
        profile = arithmetic.with_learned(profile, controller)
        path = None
        own = options_of(runtime, one.drafter, request)
        beside = runtime.circumstances("auto", "none", runtime.pair.completed("auto", {}))
        try:
            # A drafter is used alone, or as one of those that drafter auto chooses among.
            store.write(replace(beside, drafter=one.drafter), profile)
            path = store.write(runtime.circumstances(one.drafter, "none", own), profile)
        except OSError as error:
            report.warn(
                f"The profile could not be kept: {error.strerror or error}. LOCALSPEC_CACHE names another folder."
            )
        shown.append((profile, path))
    return shown[0] if shown else (Profile(((1, costs.verify(1)),)), None)


def asked_traces(asked: Mapping[str, Asked | None], name: str) -> list[Trace]:
    found = asked.get(name)
    return found.traces if found else []


def tried(
    runtime: Runtime,
    named_: Sequence[str],
    judged: Sequence[Judged],
    texts: Sequence[Text],
    costs: Costs,
    request: Request,
    report: Report,
) -> list[Judged]:
    """Drafters that have to be run: those asked for, and those that may do better here than the ones judged so far."""
    names = list(named_)
    if judged and len(runtime.pair.among) > 1:
        if len([one for one in judged if one.best.speedup >= WORTH]) > 1:
            names += ["auto", "cascade"]
        if costs.verify(16) < MEMORY_BOUND * costs.verify(1):
            names.append("lookahead")
    return [one for name in names if (one := attempted(runtime, name, texts[:TRIED], costs, request, report))]


def attempted(
    runtime: Runtime, name: str, texts: Sequence[Text], costs: Costs, request: Request, report: Report
) -> Judged | None:
    """`run`, unless that is not possible, which is told."""
    try:
        return run(runtime, name, texts, costs, request, report)
    except LocalspecError as error:
        report.warn(f"{name} could not be tried: {in_one_line(error)}")
        return None


def plain_s(texts: Sequence[Text]) -> float:
    """Seconds of a plain round."""
    return statistics.median(text.stats.decode_s / text.stats.verifier_passes for text in texts)


def run(runtime: Runtime, name: str, texts: Sequence[Text], costs: Costs, request: Request, report: Report) -> Judged:
    """Decode a few prompts twice with `--N auto`; the second time counts, when the controller knows what to expect."""
    runtime.respeculate(name, "auto", options_of(runtime, name, request), tree="none", resume=True)
    walks: list[Walk] = []
    ratios: list[float] = []
    for second in (False, True):
        for number, text in enumerate(texts):
            runtime.forget()
            stream = runtime.answer(text.prompt.tolist(), request.answer)
            for _ in stream:
                pass
            stats = stream.answer.stats
            report.progress(f"Trying {name}", second * len(texts) + number + 1, 2 * len(texts), "steps")
            if second and stats.tokens_per_s and text.stats.tokens_per_s:
                ratios.append(stats.tokens_per_s / text.stats.tokens_per_s)
                walks.append(
                    Walk(
                        stats.completion_tokens,
                        stats.decode_s,
                        stats.verifier_passes,
                        stats.drafted,
                        stats.tested,
                        stats.accepted,
                    )
                )
    if not walks:
        raise ContextFullError("its answers were empty", hint="Give other --prompts, or more --max-tokens.")
    whole = sum(walks, Walk())
    one = Candidate(
        name, "auto", "none", statistics.median(ratios), min(ratios), max(ratios), whole.seconds / whole.passes,
        plain_s(texts), whole,
    )  # fmt: skip
    return Judged(name, [one], one.alpha, costs, tried=True)


def choose(judged: Sequence[Judged], request: Request) -> tuple[Candidate | None, Candidate | None]:
    """The best way that is quick enough between two pieces, and the best of another drafter if that fails."""
    computed = max((one.best.speedup for one in judged if not one.tried), default=1.0)
    allowed = [
        one
        for each in judged
        for one in each.candidates
        # A trial is a few short runs: what it seems to gain has to be beyond doubt.
        if one.speedup >= (WORTH * max(1.0, computed) if each.tried else WORTH)
        and (request.latency_ms is None or 1000 * one.round_s <= request.latency_ms)
    ]
    if not allowed:
        return None, None
    best = max(allowed, key=lambda one: one.speedup)
    autos = [one for one in allowed if one.drafter == best.drafter and one.N == "auto"]
    if autos and autos[0].speedup >= AUTO * best.speedup:
        best = autos[0]
    others = [one for one in allowed if one.drafter != best.drafter]
    return best, max(others, key=lambda one: one.speedup, default=None)


def reasons(judged: Sequence[Judged], chosen: Candidate | None, request: Request) -> list[str]:
    """Why, in sentences."""
    found = []
    for one in judged:
        alpha = "nothing it drafted was tested" if one.alpha is None else f"alpha {one.alpha:.2f}"
        how = "tried" if one.tried else "computed"
        found.append(f"{one.drafter}: {alpha}, at best {one.best.speedup:.2f}x with {said(one.best)} ({how}).")
    if chosen is None:
        found.append(f"Nothing gains {100 * (WORTH - 1):.0f} % or more: plain decoding is the best there is here.")
    elif chosen.N == "auto":
        found.append("N=auto starts from this profile, keeps up with the best fixed length and follows the text.")
    if request.latency_ms is not None:
        found.append(f"No round may take longer than {request.latency_ms:g} ms, drafting included.")
    if request.parallel > 1:
        found.append(
            f"{request.parallel} streams: their rows share one pass, t({request.parallel} x n); this is what a "
            "batching server does. localspec itself answers one at a time."
        )
    found.append("Only drafter, N and tree were weighed: sampling, precision and cache stay as you asked for them.")
    return found


def said(one: Candidate) -> str:
    """N=3, or tree 4,2,2."""
    return f"N={one.N}" if one.tree in ("none", "auto") else f"tree {one.tree}"
