"""What `plan` looks at besides speed: vocabularies, how the verifier forgets, memory; and what deserves a warning.

Looks and judges; measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.catalog.modelfile import read_model
from localspec.core.sampling import Sampling
from localspec.planner.plan import Costs
from localspec.services.heads import heads

HOT = 1.0
"""Temperature above which acceptance falls quickly."""
TINY_S = 0.005
"""A plain pass shorter than this leaves little to save."""
COMPUTE_BOUND = 2.0
"""Plain passes that four rows cost from which on a machine is bound by compute, not by memory."""
DEAR_DRAFT = 0.5

ROLLBACKS = {
    "truncation": "rejected tokens are cut off the cache, which costs nothing",
    "snapshots": "the memory is put back to a snapshot, which costs nothing; trees are not possible",
    "state copy": "the state is copied before each draft and put back; trees are not possible",
}


@dataclass(frozen=True)
class Check:
    """One check and how it ended; ok None: it could not be made."""

    name: str
    ok: bool | None
    text: str

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "ok": self.ok, "text": self.text}


def checks(settings: Mapping[str, Any], *, needed: Mapping[str, int], free: int | None, leaves: int) -> list[Check]:
    """All of them. `needed`: bytes of weights and cache of each model; `free`: bytes before they were loaded."""
    return [tokenizer(settings), rollback(str(settings["rollback"]), leaves), memory(needed, free)]


def tokenizer(settings: Mapping[str, Any]) -> Check:
    """Do both models speak the same tokens?"""
    if settings["draft"] is None:
        return Check("tokenizer", True, "there is no second model; prompt lookup drafts the verifier's own tokens")
    verifier, draft = (read_model(Path(settings[role])) for role in ("verifier", "draft"))
    found = heads.compare(draft, verifier)
    if not found.is_compatible:
        return Check("tokenizer", False, found.fatal[0])
    blocked = f", {len(found.blocked)} of them with another text and never proposed" if len(found.blocked) else ""
    return Check("tokenizer", True, f"verifier and draft share {found.known:,} ids{blocked}")


def rollback(name: str, leaves: int) -> Check:
    """How does the verifier forget what was rejected?"""
    said = ROLLBACKS.get(name.lower().replace("_", " "), name)
    return Check("rollback", True, said if leaves > 1 or "trees" in said else f"{said}; chains only")


def memory(needed: Mapping[str, int], free: int | None) -> Check:
    """Is there room for the models and their caches?"""
    total = sum(needed.values())
    parts = " + ".join(f"{role} {size / 1e9:.2f}" for role, size in needed.items())
    said = f"{total / 1e9:.2f} GB for weights and cache ({parts})"
    if free is None:
        return Check("memory", None, f"{said}; this system does not tell what is free")
    return Check("memory", total <= free, f"{said}, {free / 1e9:.1f} GB were free")


def warnings(costs: Costs, sampling: Sampling, *, has_draft: bool) -> list[str]:
    """What makes speculation hard here."""
    found = []
    if sampling.temperature > HOT:
        found.append(
            f"At temperature {sampling.temperature:g} the text is hard to foretell, and fewer drafts are accepted."
        )
    plain = costs.verify(1)
    if plain < TINY_S:
        found.append(
            f"The verifier is tiny (a pass takes {1000 * plain:.1f} ms): what a round costs besides weighs as much as "
            "what it saves."
        )
    ratio = costs.verify(4) / plain
    if ratio > COMPUTE_BOUND:
        found.append(
            f"This machine is bound by compute here: a pass over 4 tokens takes {ratio:.1f} times as long as one "
            "over 1, so rejected tokens are dear. A GPU, or weights in a larger format, would be bound by memory."
        )
    if has_draft and costs.draft_s > DEAR_DRAFT * plain:
        found.append(
            f"A draft token costs {costs.draft_s / plain:.2f} of a plain pass: the draft is too large for this "
            "verifier, or on another device."
        )
    return found


def fits(found: Sequence[Check]) -> bool:
    """False when one of the checks failed."""
    return all(check.ok is not False for check in found)
