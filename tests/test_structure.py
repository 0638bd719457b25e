"""The house rules that a machine can check: who imports whom, and how long things may get."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "sigmazero").rglob("*.py"))
EVERYWHERE = [
    p for folder in ("src", "tests", "benchmarks", "examples", "scripts") for p in (ROOT / folder).rglob("*.py")
]

# A room may import from the rooms listed for it, besides itself; what is not listed (cli, docs) may use all.
ALLOWED: dict[str, set[str]] = {
    "problem": set(),
    "ops": set(),
    "noise": set(),
    "progress": set(),
    "result": {"problem"},
    "pose": {"problem"},
    "oracle": {"problem", "ops"},
    "loop": {"ops", "oracle", "problem", "progress"},
    "capture": {"loop", "oracle", "problem"},
    "engine": {"capture", "loop", "oracle", "problem"},
    "batches": {"engine", "oracle", "problem"},
    "verify": {"engine", "loop", "oracle", "problem", "result"},
    "drive": {"batches", "engine", "loop", "oracle", "problem", "progress", "result", "verify"},
    "attack": {"drive", "engine", "oracle", "pose", "problem", "result"},
    "attacks": {"attack", "oracle", "problem", "noise", "ops"},
    "models": set(),
    "data": set(),
    "doctor": set(),
    "files": set(),
    "auto": {"attack", "attacks", "doctor", "engine", "files", "oracle", "pose", "problem", "result"},
    "bench": {
        "attack",
        "attacks",
        "data",
        "doctor",
        "engine",
        "files",
        "models",
        "pose",
        "problem",
        "progress",
        "result",
    },
    "report": {"bench", "files", "result"},
}


def room(path: Path) -> str:
    """The part of the package a file belongs to: its folder, or its own name at the top."""
    first = path.relative_to(ROOT / "src" / "sigmazero").parts[0]
    return first.removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Rooms of ours that a file imports, wherever in the file."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "sigmazero" else [f"sigmazero.{a.name}" for a in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("sigmazero.")}
    return rooms


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_flow_one_way(path):
    here = room(path)
    if here not in ALLOWED:
        return
    wrong = imported(path) - ALLOWED[here] - {here}
    assert not wrong, f"{here} may not import {', '.join(sorted(wrong))}"


def test_attacks_round_alike_everywhere():
    """exp2 rounds differently at the end of a vector on a CPU: a result would depend on the place in the batch."""
    for path in (ROOT / "src" / "sigmazero" / "attacks").glob("*.py"):
        assert "torch.exp2(" not in path.read_text(encoding="utf-8"), f"{path.name} uses exp2; write it with exp"


def test_no_attack_imports_another():
    folder = ROOT / "src" / "sigmazero" / "attacks"
    public = {p.stem for p in folder.glob("*.py") if not p.name.startswith("_")}
    for path in folder.glob("*.py"):
        if path.name == "__init__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sigmazero.attacks."):
                assert (node.module or "").split(".")[-1] not in public, f"{path.name} imports {node.module}"


def test_core_needs_torch_and_numpy_alone():
    code = "import sys, sigmazero; print(sorted(m for m in sys.modules if '.' not in m))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for extra in ("typer", "rich", "matplotlib", "PIL", "sklearn", "mlxtend", "pandas", "torchvision", "safetensors"):
        assert f"'{extra}'" not in out


@pytest.mark.parametrize("path", EVERYWHERE, ids=lambda p: str(p.relative_to(ROOT)))
def test_sizes(path):
    text = path.read_text(encoding="utf-8")
    limit = 400
    assert len(text.splitlines()) <= limit, f"over {limit} lines: split it"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 60, f"{node.name} has {length} lines, 60 are allowed"


def test_public_names_exist():
    package = importlib.import_module("sigmazero")
    assert all(hasattr(package, name) for name in package.__all__)
