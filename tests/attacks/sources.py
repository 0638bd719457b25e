"""Hashes of the code of registered attacks, kept beside their versions in sources.json.

A stored result is found again by its attack's version. So an edit that changes results must raise the version:
test_sources.py notices every edit. `python -m tests.attacks.sources` takes the hashes of now.
"""

import ast
import copy
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import sigmazero as sz
from sigmazero.core.source import plain

FILE = Path(__file__).with_name("sources.json")
ROOT = Path(sz.__file__).parent
# Code that decides what an attack asks. Contract, oracle and driver are not among it: golden traces watch those.
WATCHED = {f"sigmazero.attacks.{path.stem}": path for path in (ROOT / "attacks").glob("*.py")}
WATCHED |= {f"sigmazero.core.{name}": ROOT / "core" / f"{name}.py" for name in ("losses", "noise", "ops")}


def modules(attack: sz.Attack) -> set[str]:
    """The modules whose code makes an attack's results: of its class, of its bases, and what those import."""
    inner = [value for value in attack.parameters().values() if isinstance(value, sz.Attack)]
    waiting = [base.__module__ for base in type(attack).__mro__]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in WATCHED and name not in found:
            found.add(name)
            waiting += imported(name)
    return found.union(*map(modules, inner))


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(WATCHED[module].read_text(encoding="utf-8"))


def imported(module: str) -> list[str]:
    """Every name that a module imports, wherever in it; some of them are modules."""
    imports = [node for node in ast.walk(tree(module)) if isinstance(node, ast.ImportFrom)]
    return [name for node in imports for name in (node.module or "", *(f"{node.module}.{a.name}" for a in node.names))]


class WithoutImports(ast.NodeTransformer):
    """Where a name comes from is no matter: what watched modules hold is hashed itself."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Leave it out."""

    def visit_Import(self, node: ast.Import) -> None:
        """Leave it out."""


def hashed(module: str) -> str:
    """A hash of a module's code, without imports, comments, docstrings and layout."""
    bare = WithoutImports().visit(copy.deepcopy(tree(module)))
    return hashlib.sha256(plain(bare).encode()).hexdigest()[:16]


def now() -> dict[str, dict[str, Any]]:
    """Version of every registered attack, hash of every module they are made of."""
    every = sorted(set().union(*map(modules, sz.ATTACKS.values())))
    return {
        "versions": {name: attack.version for name, attack in sorted(sz.ATTACKS.items())},
        "modules": {name: hashed(name) for name in every},
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(now(), indent=2) + "\n", encoding="utf-8")
