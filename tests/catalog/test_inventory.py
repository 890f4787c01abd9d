"""What lies in the caches: models whoever put them there, and nothing that only looks like one."""

from __future__ import annotations

from pathlib import Path

from localspec.catalog.fetch import look_up, present
from localspec.catalog.inventory import derived_folder, inventory, short
from localspec.catalog.reference import LocalFile
from localspec.catalog.store import cache_folder, hub_folder
from tests.catalog.conftest import NOTHING


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF")
    return path


def test_empty_caches_hold_nothing(clean: Path) -> None:
    assert inventory() == []


def test_files_of_wheels_are_found_by_a_reference_that_works(clean: Path) -> None:
    wheels = cache_folder() / "models" / "pypi"
    path = put(wheels / "tiny-model-1.0" / "tiny_model" / "data" / "tiny.gguf")
    put(wheels / "tiny-model-2.0" / "tiny_model" / "tiny.gguf.fetching" / "tiny.gguf")  # what a killed fetch left
    (wheels / "tiny-model-1.0" / "folder.gguf").mkdir()
    (found,) = inventory()
    assert str(found.source) == "pypi:tiny-model==1.0/tiny_model/data/tiny.gguf"
    assert (found.path, found.is_partial) == (path, False)
    assert present(look_up(str(found.source), NOTHING)) == [path]


def test_drafts_that_were_made_here_are_found(clean: Path) -> None:
    path = put(derived_folder() / "draft.gguf")
    put(derived_folder() / "notes.txt")
    (derived_folder() / "folder.gguf").mkdir()
    (found,) = inventory()
    assert found.path == path
    assert isinstance(found.source, LocalFile)


def test_folders_of_the_hub_that_are_no_repository_are_passed_over(clean: Path) -> None:
    put(hub_folder() / "models--nameless" / "snapshots" / ("0" * 40) / "a.gguf")
    path = put(hub_folder() / "models--owner--name" / "snapshots" / ("1" * 40) / "deep" / "a.gguf")
    (found,) = inventory()
    assert found.path == path
    assert str(found.source) == f"hf:owner/name@{'1' * 40}/deep/a.gguf", "no branch points at it"


def test_paths_are_written_as_people_do(clean: Path) -> None:
    assert short(Path.home() / "models" / "a.gguf") == str(Path("~/models/a.gguf"))
    assert short(Path("/srv/a.gguf")) == str(Path("/srv/a.gguf"))
