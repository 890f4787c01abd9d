"""Who may import whom: the table of layers, read off every file of the package by its syntax tree.

ruff keeps the same rules while one types; what is here also covers the parts that a list of banned names cannot say.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "localspec"
FILES = sorted(PACKAGE.rglob("*.py"))

# A layer -> what of localspec it may import; a trailing dot means "and everything below".
ALLOWED = {
    "errors": (),
    "version": (),
    "core": ("core.", "errors"),
    "engine": ("engine.", "core.", "errors"),
    "drafters": ("drafters.", "engine.base", "core.", "errors"),
    "planner": ("planner.", "loop.control", "core.", "errors"),  # loop.control is the seam of length control
    "loop": ("loop.", "drafters.base", "engine.base", "core.", "errors"),
    "catalog": ("catalog.", "errors"),
    "services": ("services.", "loop.", "drafters.", "engine.", "planner.", "catalog.", "core.", "errors", "version"),
    "cli": ("cli.", "services.", "loop.", "drafters.registry", "planner.", "catalog.", "core.", "errors", "version"),
}
TERMINAL = {"typer", "click", "rich", "prompt_toolkit"}
# The composition root and its loaders alone put concrete parts together; the doctor only asks what there is.
CONCRETE_ENGINE = {
    "services.runtime": None,
    "services.loading": None,
    "services.heads.heads": None,
    "services.heads.ggmlheads": None,
    "services.theory.toy": {"engine.base", "engine.toy"},
    "services.doctor": {"engine.devices", "engine.native"},
    "services.derive.derive": {"engine.apart"},  # makes files, opens no model
    "services.derive.blocks": {"engine.base", "engine.context"},  # loads one model to look between its layers
    "services.train.data": {"engine.devices", "engine.farm", "engine.model"},
    "services.train.holding": {"engine.apart"},  # makes files, opens no model
    "services.train.making": {"engine.base", "engine.farm"},
    "services.train.head": {"engine.devices", "engine.farm", "engine.model"},
    "services.train.weights": {"engine.dequantise"},
}


@dataclass(frozen=True)
class Import:
    """One imported name: `target` is dotted, `at_load` says that it runs when the module is loaded."""

    module: str
    target: str
    at_load: bool

    @property
    def layer(self) -> str:
        return self.module.split(".")[0]

    @property
    def top(self) -> str:
        return self.target.split(".")[0]

    @property
    def inside(self) -> str | None:
        """What of localspec is imported: "core.draft"; None for other packages."""
        return self.target.partition(".")[2] if self.top == "localspec" else None


def dotted(path: Path) -> str:
    """localspec/core/draft.py -> core.draft, localspec/core/__init__.py -> core."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    path = PACKAGE.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def targets(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, "relative import"
    base = node.module or ""
    inside = base.partition(".")[2]
    return [
        f"{base}.{alias.name}"
        if base.split(".")[0] == "localspec" and is_module(f"{inside}.{alias.name}".lstrip("."))
        else base
        for alias in node.names
    ]


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def imports_below(node: ast.AST, module: str, at_load: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield from (Import(module, target, at_load) for target in targets(child))
        lazy = is_type_checking(child) or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports_below(child, module, at_load and not lazy)


def imports_of(path: Path) -> list[Import]:
    return list(imports_below(ast.parse(path.read_text(encoding="utf-8")), dotted(path), True))


IMPORTS = [found for path in FILES for found in imports_of(path)]


def complaints(bad: list[Import]) -> list[str]:
    return sorted({f"localspec.{item.module} imports {item.target}" for item in bad})


def covers(entry: str, name: str) -> bool:
    return name == entry.rstrip(".") or (entry.endswith(".") and name.startswith(entry))


def is_allowed(item: Import) -> bool:
    assert item.inside is not None
    # The package itself (localspec/__init__.py, __main__.py) stands above every layer.
    if item.layer in ("", "__main__"):
        return True
    return any(covers(entry, item.inside) for entry in ALLOWED[item.layer])


def test_every_folder_is_in_the_table() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert folders <= set(ALLOWED)


def test_the_walk_sees_the_package() -> None:
    assert {"core.draft", "engine.base", "loop.counters", "services.runtime"} <= {item.module for item in IMPORTS}
    assert any(item.inside == "core.law" and item.module == "core.draft" for item in IMPORTS)


def test_imports_point_down() -> None:
    assert complaints([item for item in IMPORTS if item.inside is not None and not is_allowed(item)]) == []


def test_llama_cpp_lives_in_the_engine() -> None:
    assert complaints([item for item in IMPORTS if item.top == "llama_cpp" and item.layer != "engine"]) == []


def test_the_terminal_lives_in_cli() -> None:
    assert complaints([item for item in IMPORTS if item.top in TERMINAL and item.layer != "cli"]) == []


def test_commands_compute_nothing() -> None:
    assert complaints([item for item in IMPORTS if item.top == "numpy" and item.layer == "cli"]) == []


def test_commands_load_what_is_heavy_only_when_they_run() -> None:
    light = ("cli", "errors", "version")
    heavy = [
        item
        for item in IMPORTS
        if item.layer == "cli" and item.at_load and (item.inside or "cli").split(".")[0] not in light
    ]
    assert complaints(heavy) == []


def test_core_knows_no_clock_no_file_no_global_randomness() -> None:
    banned = {"time", "datetime", "os", "io", "pathlib", "random", "secrets", "logging"}
    assert complaints([item for item in IMPORTS if item.layer == "core" and item.top in banned]) == []


def test_drafters_do_not_know_each_other() -> None:
    shared = {"drafters.base", "drafters.drawing", "drafters.following", "drafters.members", "drafters.registry"}
    concrete = [
        item
        for item in IMPORTS
        if item.layer == "drafters"
        and item.module not in ("drafters", "drafters.registry")
        and item.inside is not None
        and item.inside.startswith("drafters.")
        and item.inside not in shared
    ]
    assert complaints(concrete) == []


def test_one_place_puts_engines_and_drafters_together() -> None:
    bad = []
    for item in IMPORTS:
        if item.layer != "services" or item.inside is None:
            continue
        allowed = CONCRETE_ENGINE.get(item.module, {"engine.base", "engine.toy"})  # theory plays on the toy
        if item.inside.startswith("engine.") and allowed is not None and item.inside not in allowed:
            bad.append(item)
        concrete = item.inside.startswith("drafters.") and item.inside not in ("drafters.base", "drafters.registry")
        if concrete and item.module != "services.runtime":
            bad.append(item)
    assert complaints(bad) == []


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"]])
def test_the_command_line_starts_light(arguments: list[str]) -> None:
    """`localspec --help` loads neither numpy nor llama.cpp nor the hub's client."""
    program = f"""
import sys
sys.argv = ["localspec", *{arguments!r}]
from localspec.cli.app import main
if {arguments!r}:
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
heavy = {{"numpy", "llama_cpp", "huggingface_hub", "matplotlib", "prompt_toolkit", "torch"}} & set(sys.modules)
sys.exit(f"loaded {{sorted(heavy)}}" if heavy else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PACKAGE.parent, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
