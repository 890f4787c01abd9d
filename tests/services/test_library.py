"""The library: what is here, what is not, what was begun; and what goes away when it is removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.catalog.inventory import inventory
from localspec.catalog.registry import Registry, load, read
from localspec.catalog.store import hub_folder
from localspec.errors import DownloadError, UsageError
from localspec.services import library
from tests import wrecks, zoo
from tests.catalog.conftest import Listener
from tests.hub import COMMIT, Hub, Repo

REGISTRY = """\
default = "pair"
[models.big]
source = "hf:owner/big/big-F32.gguf"
[models.small]
source = "hf:owner/small:F32"
note = "small and quick"
[models.mine]
source = "mine.gguf"
unverified = true
[pairs.pair]
verifier = "big"
drafter = "model"
draft = "small"
memory = 4
[pairs.other]
verifier = "mine"
drafter = "model"
draft = "small"
[pairs.alone]
verifier = "big"
drafter = "ngram"
"""


@pytest.fixture
def registry(clean: Path) -> Registry:
    return read(REGISTRY, "models.toml", folder=clean)


@pytest.fixture
def served(hub: Hub, tiny: bytes) -> Hub:
    hub.repos["owner/big"] = Repo({"big-F32.gguf": tiny})
    hub.repos["owner/small"] = Repo({"small-F32.gguf": tiny, "mmproj-F32.gguf": tiny})
    return hub


def states(registry: Registry) -> dict[str, library.State]:
    return {entry.model.name: entry.state for entry in library.list_models(registry)}


def test_nothing_is_here_and_nothing_is_asked(served: Hub, registry: Registry) -> None:
    assert states(registry) == {"big": "absent", "small": "absent", "mine": "absent"}
    assert [(entry.pair.name, entry.state, entry.is_default) for entry in library.list_pairs(registry)] == [
        ("pair", "absent", True),
        ("other", "absent", False),
        ("alone", "absent", False),
    ]
    assert [details.state for details in library.show("pair", registry)] == ["absent", "absent"]
    assert not served.log


def test_a_pair_is_pulled_whole_and_once(
    served: Hub, registry: Registry, listener: Listener, tiny: bytes, clean: Path
) -> None:
    files = library.pull(["pair", "big"], registry, listener)
    assert [file.path.name for file in files] == ["big-F32.gguf", "small-F32.gguf"]
    assert states(registry) == {"big": "present", "small": "present", "mine": "absent"}
    pair, other, alone = library.list_pairs(registry)
    assert (pair.state, other.state, alone.state) == ("present", "partial", "present")
    assert (pair.size, other.size) == (2 * len(tiny), None)
    assert (pair.weights, other.unverified) == ("F32", True)
    asked = len(served.log)
    library.pull(["pair"], registry, listener)
    assert len(served.log) == asked


def test_an_unknown_name_is_said_before_anything_is_fetched(
    served: Hub, registry: Registry, listener: Listener
) -> None:
    with pytest.raises(UsageError, match="'bgi'"):
        library.pull(["big", "bgi"], registry, listener)
    assert not served.log


def test_what_was_begun_is_listed_and_removable_B71(
    served: Hub, registry: Registry, listener: Listener, tiny: bytes
) -> None:
    served.cuts = [100_000, 0, 0, 0, 0, 0]
    with pytest.raises(DownloadError):
        library.pull(["big"], registry, listener)
    (begun,) = [entry for entry in library.list_models(registry) if entry.state == "partial"]
    assert begun.model.name == "big"
    assert 0 < begun.bytes <= 100_000
    assert library.remove("big", registry).bytes == begun.bytes
    assert states(registry)["big"] == "absent"


def test_models_outside_the_registry_are_listed_by_a_reference_that_works(
    served: Hub, registry: Registry, listener: Listener, tiny: bytes, tiny_parts: dict[str, bytes]
) -> None:
    served.repos["owner/others"] = Repo({"deep/other-F32.gguf": tiny} | tiny_parts)
    library.pull(["big", f"hf:owner/others@{COMMIT}/deep/other-F32.gguf"], registry, listener)
    library.pull(["hf:owner/others/tiny-00001-of-00002.gguf"], registry, listener)
    served.cuts = [100_000, 0, 0, 0, 0, 0]
    with pytest.raises(DownloadError):
        library.pull(["hf:owner/big/big-F32.gguf", "hf:owner/small/mmproj-F32.gguf"], registry, listener)
    others = library.list_others(registry)
    assert {(str(found.source), found.is_partial) for found in others} == {
        ("hf:owner/others/deep/other-F32.gguf", False),
        ("hf:owner/others/tiny-00001-of-00002.gguf", False),
        ("hf:owner/small/mmproj-F32.gguf", True),
    }
    for found in others:
        library.remove(str(found.source), registry)
    assert [str(found.source) for found in inventory()] == ["hf:owner/big/big-F32.gguf"]


def test_removing_a_pair_keeps_what_another_pair_here_needs(
    served: Hub, registry: Registry, listener: Listener, tiny: bytes, clean: Path
) -> None:
    (clean / "mine.gguf").write_bytes(tiny)
    library.pull(["pair"], registry, listener)
    removed = library.remove("pair", registry)
    assert set(removed.kept) == {"small"}
    assert states(registry) == {"big": "absent", "small": "present", "mine": "present"}
    library.remove("small", registry)
    assert not [path for path in hub_folder().rglob("*") if path.is_file() and path.stat().st_size > 1000]
    with pytest.raises(UsageError, match="Nothing of small"):
        library.remove("small", registry)


def test_a_file_of_the_user_is_never_removed(registry: Registry, clean: Path, tiny: bytes) -> None:
    (clean / "mine.gguf").write_bytes(tiny)
    with pytest.raises(UsageError, match="a file of yours"):
        library.remove("mine", registry)
    assert (clean / "mine.gguf").read_bytes() == tiny


def test_show_reads_the_file_and_says_what_is_wrong_with_it(registry: Registry, clean: Path) -> None:
    path = zoo.tiny_llama(clean / "mine.gguf")
    (details,) = library.show("mine", registry)
    assert details.file is not None
    assert (details.state, details.file.architecture, details.problem) == ("present", "llama", "")
    path.write_bytes(path.read_bytes()[:-10])
    (details,) = library.show("mine", registry)
    assert details.file is None
    assert "cut short" in details.problem


def test_check_compares_by_reference(registry: Registry, clean: Path, listener: Listener) -> None:
    plain = zoo.tiny_llama(clean / "plain.gguf")
    odd = zoo.tiny_llama(clean / "odd one.gguf", vocabulary=zoo.byte_vocabulary().renamed({150: "odd"}))
    checked = library.check(str(plain), str(odd), registry, listener)
    assert checked.comparison.blocked == (150,)
    assert library.named_pair("pair", None, registry) == ("big", "small")
    with pytest.raises(UsageError, match="no second model"):
        library.named_pair("alone", None, registry)
    head = wrecks.unknown_architecture(clean / "head.gguf", "eagle3")
    with pytest.raises(UsageError, match="drafting head"):
        library.check(str(plain), str(head), registry, listener)


def test_what_came_with_localspec_is_here_and_stays() -> None:
    known = load()
    entry = next(entry for entry in library.list_models(known) if entry.model.is_shipped)
    assert (entry.state, entry.size) == ("present", entry.model.size)
    with pytest.raises(UsageError, match="came with localspec") as caught:
        library.remove(entry.model.name, known)
    assert "pip uninstall" in caught.value.hint
    assert entry.paths[0].is_file()
