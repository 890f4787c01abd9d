"""The same recommendation for other engines: only documented flags, and what has no equivalent is said."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from localspec.drafters.registry import REGISTRY
from localspec.errors import UsageError
from localspec.services.plan.engines import ENGINES, STEADY, Recommended, Serving, serving

DOCS = Path(__file__).parents[2] / "docs" / "engines.md"

# Flags as documented by the projects themselves; docs/engines.md says where and in which version.
DOCUMENTED = {
    "llama-server": {
        "--model", "--ctx-size", "--parallel", "--spec-type", "--spec-draft-model", "--spec-draft-n-max",
        "--spec-draft-n-min", "--spec-draft-p-min", "--spec-ngram-simple-size-n", "--spec-ngram-simple-size-m",
    },
    "vllm": {"--speculative-config", "--max-model-len", "--max-num-seqs"},
    "sglang": {
        "--model-path", "--load-format", "--context-length", "--max-running-requests", "--speculative-algorithm",
        "--speculative-draft-model-path", "--speculative-num-steps", "--speculative-eagle-topk",
        "--speculative-num-draft-tokens", "--speculative-ngram-min-match-window-size",
        "--speculative-ngram-max-match-window-size", "--speculative-ngram-max-bfs-breadth",
    },
}  # fmt: skip
VALUES = {
    "spec-type": {"draft-simple", "draft-eagle3", "ngram-simple"},
    "method": {"ngram", "draft_model", "eagle", "eagle3", "medusa"},
    "speculative-algorithm": {"EAGLE", "EAGLE3", "STANDALONE", "NGRAM"},
    "load-format": {"gguf"},
}
KEYS = {"method", "num_speculative_tokens", "model", "prompt_lookup_max", "prompt_lookup_min"}
"""Of --speculative-config."""
DRAFTERS = ("none", "model", "ngram", "lookahead", "cascade", "auto", "eagle3", "eagle1", "medusa")


def wanted(drafter: str = "model", **more: Any) -> Recommended:
    return Recommended(**{"verifier": "big.gguf", "draft": "small.gguf", "drafter": drafter, "N": 5, **more})


def value(made: Serving, flag: str) -> str:
    return made.command[made.command.index(flag) + 1]


@pytest.mark.parametrize("engine", ENGINES)
def test_only_documented_flags_and_values_are_used(engine: str) -> None:
    for drafter, N, tree, size in itertools.product(DRAFTERS, (3, "auto"), ("none", "auto", "4,2,2"), (None, 4096)):
        made = serving(engine, wanted(drafter, N=N, tree=tree, ctx_size=size, parallel=size and 2))
        flags = {word for word in made.command if word.startswith("--")}
        assert flags <= DOCUMENTED[engine], flags - DOCUMENTED[engine]
        assert shlex.split(made.line) == list(made.command)
        config = made.configuration
        assert set(config.get("speculative-config", {})) <= KEYS
        assert {config.get("speculative-config", {}).get("method")} <= VALUES["method"] | {None}
        assert set((config.get("spec-type") or "draft-simple").split(",")) <= VALUES["spec-type"]
        for name in ("speculative-algorithm", "load-format"):
            assert config.get(name) in VALUES[name] | {None}
        assert None not in config.values()
        assert json.loads(json.dumps(made.as_dict()))["engine"] == engine


@pytest.mark.parametrize("engine", ENGINES)
def test_every_drafter_of_the_registry_is_mapped_or_said_to_have_no_equivalent(engine: str) -> None:
    for name in REGISTRY:
        made = serving(engine, wanted(name))
        speculates = any("spec" in word for word in made.command)
        lost = any("no equivalent: it is served without" in note for note in made.notes)
        assert speculates or lost or name == "none", name


def test_a_draft_model() -> None:
    made = serving("llama-server", wanted())
    assert made.line == (
        "llama-server --model big.gguf --spec-type draft-simple --spec-draft-model small.gguf --spec-draft-n-max 5 "
        "--spec-draft-n-min 0"
    )
    made = serving("vllm", wanted(verifier="Qwen/Qwen3-8B", draft="Qwen/Qwen3-0.6B"))
    assert made.command[:3] == ("vllm", "serve", "Qwen/Qwen3-8B")
    assert json.loads(value(made, "--speculative-config")) == {
        "method": "draft_model",
        "num_speculative_tokens": 5,
        "model": "Qwen/Qwen3-0.6B",
    }
    made = serving("sglang", wanted())
    assert value(made, "--speculative-algorithm") == "STANDALONE"
    assert [value(made, f"--speculative-{name}") for name in ("num-steps", "eagle-topk", "num-draft-tokens")] == [
        "5",
        "1",
        "6",
    ]


def test_prompt_lookup() -> None:
    assert value(serving("llama-server", wanted("ngram")), "--spec-ngram-simple-size-m") == "5"
    config = json.loads(value(serving("vllm", wanted("ngram")), "--speculative-config"))
    assert config == {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 1}
    assert value(serving("sglang", wanted("ngram")), "--speculative-algorithm") == "NGRAM"
    for engine in ENGINES:
        assert "small.gguf" not in serving(engine, wanted("ngram")).line


def test_heads() -> None:
    assert value(serving("llama-server", wanted("eagle3")), "--spec-type") == "draft-eagle3"
    assert serving("vllm", wanted("medusa")).configuration["speculative-config"]["method"] == "medusa"
    assert serving("sglang", wanted("eagle1")).configuration["speculative-algorithm"] == "EAGLE"
    made = serving("llama-server", wanted("medusa"))
    assert made.command == ("llama-server", "--model", "big.gguf")
    assert "Drafter medusa has no equivalent: it is served without speculation." in made.notes


@pytest.mark.parametrize("drafter", ["cascade", "auto"])
def test_several_drafters(drafter: str) -> None:
    assert value(serving("llama-server", wanted(drafter)), "--spec-type") == "ngram-simple,draft-simple"
    for engine in ("vllm", "sglang"):
        made = serving(engine, wanted(drafter))
        assert "small.gguf" in made.line
        assert any("Several drafters have no equivalent: model alone" in note for note in made.notes)
    alone = serving("vllm", wanted(drafter, among=["lookahead", "ngram"]))
    assert alone.configuration["speculative-config"]["method"] == "ngram"
    assert "Drafter lookahead has no equivalent: the others remain." in alone.notes


def test_trees() -> None:
    made = serving("sglang", wanted("eagle3", tree="4,2,2"))
    assert [value(made, f"--speculative-{name}") for name in ("num-steps", "eagle-topk", "num-draft-tokens")] == [
        "3",
        "4",
        "29",
    ]
    for engine in ("llama-server", "vllm"):
        assert any("chain is drafted" in note for note in serving(engine, wanted(tree="4,2,2")).notes)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_measured_here_is_said_to_be_fixed_there(engine: str) -> None:
    made = serving(engine, wanted("model", N="auto"))
    assert any("N=auto has no equivalent" in note for note in made.notes)
    assert str(STEADY) in made.line
    assert any("coupled" in note for note in made.notes)
    plain = serving(engine, wanted("none"))
    assert not any("spec" in word for word in plain.command)


def test_gguf_files_where_they_are_strangers() -> None:
    assert any("GGUF" in note for note in serving("vllm", wanted()).notes)
    assert value(serving("sglang", wanted()), "--load-format") == "gguf"
    assert "--load-format" not in serving("sglang", wanted(verifier="Qwen/Qwen3-8B")).command
    assert not any("GGUF" in note for note in serving("vllm", wanted(verifier="a/b", draft="c/d")).notes)


def test_an_engine_that_is_not_in_the_table() -> None:
    with pytest.raises(UsageError, match="no engine 'ollama'") as caught:
        serving("ollama", wanted())
    assert "llama-server" in caught.value.hint


def test_the_page_names_every_flag() -> None:
    page = DOCS.read_text(encoding="utf-8")
    for engine, flags in DOCUMENTED.items():
        section = re.search(rf"^## {engine}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
        assert section, engine
        for flag in flags:
            assert f"`{flag}" in section[1], (engine, flag)
