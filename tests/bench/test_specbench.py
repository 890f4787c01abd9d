"""The harness end to end, on tiny models in place of the real ones: every table can be made and is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import quantize, results, specbench, weights
from bench.specbench import Size
from tests import zoo

ASKED = {"lookup": Size(1, 6, 1, ("code-edit",))}
SMALL = Size(1, 6, 1, ("qa",))


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verifier and a draft that often agrees, where SmolLM2 and its other formats would be."""
    verifier = zoo.tiny_llama(tmp_path / "verifier.gguf", context=2048)
    draft = zoo.tiny_llama(tmp_path / "draft.gguf", context=2048, noise=0.02)
    monkeypatch.setattr(weights, "smollm2", lambda: verifier)
    monkeypatch.setattr(quantize, "variant", lambda source, name: draft if name == "Q4_0" else verifier)


@pytest.mark.parametrize("name", list(specbench.TABLES))
@pytest.mark.usefixtures("tiny")
def test_every_table_can_be_made(name: str, tmp_path: Path) -> None:
    document, text = specbench.TABLES[name](ASKED.get(name, SMALL))
    page = results.save(name, results.facts() | document, text, folder=tmp_path / "results")
    assert page.read_text(encoding="utf-8").count("\n|") > 2
    kept = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    assert {"command", "date", "machine", "llama_cpp", "load_average"} < set(kept)


@pytest.mark.usefixtures("tiny")
def test_at_temperature_0_all_rules_keep_the_same_drafts() -> None:
    kept = specbench.acceptance(SMALL)[0]["rules"]
    accepted = {rule: kept[f"T=0, {rule}"]["accepted"] for rule in ("rejection", "coupled", "stock")}
    assert accepted["rejection"] == accepted["coupled"] == accepted["stock"] > 0


@pytest.mark.usefixtures("tiny")
def test_localspec_and_llama_say_the_same() -> None:
    (q4_1, f32) = specbench.plain(SMALL)[0]["files"]
    assert set(q4_1["same_text"].values()) == set(f32["same_text"].values()) == {1.0}


@pytest.mark.usefixtures("tiny")
def test_b66_no_text_of_a_real_loop_is_flagged() -> None:
    document = specbench.pair(SMALL)[0]["benchmarks"]["T=0"]
    assert [row["differing"] for row in document["rows"]] == [0] * len(document["rows"])
    assert document["rows"][-1]["accepted"] > 0
