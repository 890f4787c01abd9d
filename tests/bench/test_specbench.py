"""The harness end to end, on tiny models in place of the real ones: every table can be made and is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import quantize, results, specbench, weights
from bench.harness import Size
from localspec.errors import UsageError
from tests import eagle3, zoo

ASKED = {"lookup": Size(1, 6, 1, ("code-edit",)), "plan": Size(1, 12, 1, ("qa",))}
SMALL = Size(1, 6, 1, ("qa",))


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verifier and a draft that often agrees, where SmolLM2 and its other formats would be."""
    verifier = zoo.tiny_llama(tmp_path / "verifier.gguf", context=2048)
    draft = zoo.tiny_llama(tmp_path / "draft.gguf", context=2048, noise=0.02)
    head = eagle3.random_head(tmp_path / "head.gguf", verifier, ids=64, kind="F32")
    monkeypatch.setattr(weights, "smollm2", lambda: verifier)
    monkeypatch.setattr(weights, "head", lambda: head)
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
def test_a_part_of_a_table_with_other_trees() -> None:
    asked = replace(SMALL, only=("T=0",), trees=("2,2", "3,1"))
    document, _ = specbench.TABLES["trees"](asked)
    assert list(document["benchmarks"]) == ["T=0"]
    rows = {row[1]: row for row in document["summary"]["rows"]}
    assert list(rows) == ["model N=3", "model tree 2,2", "model tree 3,1", "model N=3 tree auto"]
    assert rows["model N=3"][4] == "1.000x"
    assert float(rows["model N=3 tree auto"][2]) > 3.0
    with pytest.raises(UsageError, match="no part 'F64'") as caught:
        specbench.TABLES["autotree"](replace(SMALL, only=("F64",)))
    assert "F32, Q4_1" in caught.value.hint


@pytest.mark.usefixtures("tiny")
def test_the_tree_of_the_cost_table_has_32_nodes_where_there_is_room() -> None:
    """Six tokens are too few for a full tree in every pass; more than a chain's it must be."""
    document, _ = specbench.TABLES["treecost"](replace(SMALL, only=("Q4_1",), max_tokens=24))
    rows = {row[1]: row for row in document["summary"]["rows"]}
    assert float(rows["model N=4 tree auto"][2]) > 20
    assert rows["model N=4 tree auto"][3].endswith(" %")


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
