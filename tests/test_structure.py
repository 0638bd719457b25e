"""The house rules that a machine can check: who imports whom, directly or through others, and how long things get."""

import ast
import importlib
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import LONG, is_long

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "sigmazero"
SOURCES = sorted(PACKAGE.rglob("*.py"))
EVERYWHERE = [
    p for folder in ("src", "tests", "benchmarks", "examples", "scripts") for p in (ROOT / folder).rglob("*.py")
]

# What a package may load, directly or through others, besides itself. docs/architecture.md draws it.
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "run": {"core"},
    "attacks": {"core"},
    "adapters": {"core", "attacks"},
    "data": {"core"},
    "models": {"core", "data"},
    "truth": {"core", "run", "attacks", "data", "models"},
    "store": {"core"},
    "report": {"core", "store"},
    "bench": {"core", "run", "attacks", "adapters", "data", "models", "truth", "store", "report"},
    "auto": {"core", "run", "attacks", "adapters", "data", "models", "truth", "store", "report", "bench"},
    "testing": {"core", "run", "attacks", "adapters", "data", "models", "truth", "store", "report", "bench", "auto"},
    "board": {"core", "run", "attacks", "adapters", "data", "models", "truth", "store", "report", "bench", "auto"},
    "cli": {"core", "run", "attacks", "adapters", "data", "models", "store", "report", "bench", "auto", "board"}
    | {"truth"},
}
# Loaded when a function is called, not with the module: the contract opens a session and asks what a model is, and a
# result is drawn and saved.
LATE = {
    ("core.attack", "run"),
    ("core.attack", "models"),
    ("core.result_face", "report"),
    ("core.result_face", "store"),
}


def module(path: Path) -> str:
    """The name of a file's module below the package: `core.ops`, or `core` for its __init__."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module(path): path for path in SOURCES}


@cache
def imported(name: str) -> tuple[frozenset[str], frozenset[str]]:
    """The modules of ours that a module imports when it is loaded, and those that it imports later."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    hints = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    checked = {id(child) for node in hints for child in ast.walk(node)}
    inside = {id(child) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for child in ast.walk(node)}
    now: set[str] = set()
    late: set[str] = set()
    for node in ast.walk(tree):
        if id(node) not in checked:
            (late if id(node) in inside else now).update(_targets(node))
    return frozenset(now), frozenset(late)


def _targets(node: ast.AST) -> set[str]:
    """The modules of ours that an import names; the packages around a module are loaded with it."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sigmazero":
        names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    found = set()
    for name in names:
        parts = name.split(".")[1:] if name.startswith("sigmazero.") else []
        found |= {".".join(parts[: k + 1]) for k in range(len(parts))}
    return found & MODULES.keys()


@cache
def loaded(name: str) -> frozenset[str]:
    """Every module of ours that is loaded with a module, through whatever chain."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for other in imported(waiting.pop())[0] - found:
            found.add(other)
            waiting.append(other)
    return frozenset(found)


def package(name: str) -> str:
    return name.split(".")[0]


def test_the_root_holds_the_packages_alone():
    assert {name for name in MODULES if "." not in name} == {*ALLOWED, "", "__main__"}


@pytest.mark.parametrize("name", [name for name in MODULES if package(name) in ALLOWED])
def test_imports_flow_one_way(name):
    allowed = ALLOWED[package(name)] | {package(name)}
    wrong = sorted(other for other in loaded(name) if package(other) not in allowed)
    assert not wrong, f"{name} loads {len(wrong)} modules it may not, {', '.join(wrong[:5])} among them"
    late = {package(other) for other in imported(name)[1]} - allowed
    assert {(name, other) for other in late} <= LATE, f"{name} imports {', '.join(late)} inside a function"


def test_what_is_allowed_late_is_needed():
    assert all(any(package(other) == far for other in imported(name)[1]) for name, far in LATE)


def test_no_module_loads_itself():
    """A package is loaded before the modules in it, so chains that pass through one say nothing."""
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}

    def chain(name: str) -> set[str]:
        found: set[str] = set()
        waiting = [name]
        while waiting:
            new = imported(waiting.pop())[0] - packages - found
            found |= new
            waiting += new
        return found

    assert not [name for name in MODULES if name not in packages and name in chain(name)]


def test_attacks_round_alike_everywhere():
    """exp2 rounds differently at the end of a vector on a CPU: a result would depend on the place in the batch."""
    for path in (PACKAGE / "attacks").glob("*.py"):
        assert "torch.exp2(" not in path.read_text(encoding="utf-8"), f"{path.name} uses exp2; write it with exp"


def test_no_attack_imports_another():
    public = {name for name in MODULES if name.startswith("attacks.") and not name.split(".")[1].startswith("_")}
    for name in MODULES:
        if name.startswith("attacks.") and name != "attacks.functions":
            assert not imported(name)[0] & public, f"{name} imports another attack"


@pytest.mark.parametrize("path", EVERYWHERE, ids=lambda p: str(p.relative_to(ROOT)))
def test_sizes(path):
    text = path.read_text(encoding="utf-8")
    limit = 400
    assert len(text.splitlines()) <= limit, f"over {limit} lines: split it"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 60, f"{node.name} has {length} lines, 60 are allowed"


# Words that several modules may use for a thing of their own: a state is an attack's, the others are local shorthands.
LOCAL = {"State", "Array", "Floats", "DataDir", "Compare"}


def test_one_word_for_one_thing():
    """No name of a class or of a type stands for two things."""
    owners: dict[str, list[str]] = {}
    for name, path in MODULES.items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            found = node.name if isinstance(node, ast.ClassDef) else ""
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found = node.targets[0].id
            if found[:1].isupper() and not found.isupper() and found not in LOCAL:
                owners.setdefault(found, []).append(name)
    assert not {word: places for word, places in owners.items() if len(places) > 1}


def test_public_names_exist():
    package = importlib.import_module("sigmazero")
    assert all(hasattr(package, name) for name in package.__all__)


def test_what_is_left_to_make_rest_is_there():
    """Each run reads its own files alone: a name in the list that no file has would leave one to the other run."""
    here = Path(__file__).parent
    files = [path.relative_to(here).as_posix() for path in here.rglob("test_*.py")]
    assert not [name for name in LONG if not any(file.startswith(name) for file in files)]
    assert is_long(here / "hard" / "test_fuzz.py")
    assert not is_long(here / "test_structure.py")
    assert not is_long(here.parent / "src" / "hard" / "test_fuzz.py")
