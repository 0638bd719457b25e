"""docs/public-names.md is the list of what is promised: it is complete, and the tests of the outer ring use no more."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sigmazero as sz

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "sigmazero"
TEXT = (ROOT / "docs" / "public-names.md").read_text(encoding="utf-8")
FOLDERS = ("judge", "contract", "golden", "system", "helpers")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / "tests" / folder).rglob("*.py"))]
RING = [path for path in FILES if path != Path(__file__)]  # this file has examples of what is refused
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def listed() -> dict[str, list[str]]:
    """The names on the page, by module: lines of nothing but names."""
    parts = re.split(r"^##+ `(sigmazero[\w.]*)`$", TEXT, flags=re.MULTILINE)
    lines = [re.findall(r"^(?:`\w+`,? ?)+$", text, re.MULTILINE) for text in parts[2::2]]
    rows = [re.findall(r"`(\w+)`", " ".join(each)) for each in lines]
    assert all(len(set(each)) == len(each) for each in rows), "a name is listed twice"
    return dict(zip(parts[1::2], rows, strict=True))


PAGE = listed()
PRIVATE = {"core", "spaces", "run", "cli"}
PROMISED = [name for name in PAGE if not name.startswith(("sigmazero.core", "sigmazero.cli", "sigmazero.report."))]
NATIVES = [name for name in PAGE if name.startswith("sigmazero.adapters.") and not name.endswith(".foreign")]


def test_every_package_but_the_private_ones_is_on_the_page():
    packages = {path.parent.name for path in SOURCES.glob("*/__init__.py")}
    assert {name.split(".")[1] for name in PROMISED if "." in name} == packages - PRIVATE | {"__main__"}
    for package in sorted(packages - PRIVATE):
        assert getattr(sz, package) is importlib.import_module(f"sigmazero.{package}")


@pytest.mark.parametrize("module", PROMISED)
def test_page_and_module_promise_the_same(module):
    assert sorted(PAGE[module]) == sorted(importlib.import_module(module).__all__)


def test_the_page_has_the_order_of_the_package():
    assert PAGE["sigmazero"] == sz.__all__


@pytest.mark.parametrize("module", PAGE)
def test_every_name_exists_and_says_what_it_is_for(module):
    home = importlib.import_module(module)
    for name in PAGE[module]:
        thing = getattr(home, name, None) or importlib.import_module(f"{module}.{name}")
        if inspect.ismodule(thing) or inspect.isclass(thing) or inspect.isroutine(thing):
            assert thing.__doc__, f"{module}.{name} has no docstring"


def modules_below(name: str) -> bool:
    """Whether a dotted name is a module or package of the source tree."""
    path = SOURCES.parent / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def refused(name: str) -> str | None:
    """The first part of a dotted name that is not promised; None if all of it is."""
    parts = name.split(".")
    home = parts[0]
    for part in parts[1:]:
        inner = f"{home}.{part}"
        if part in PAGE.get(home, ()) and inner not in PAGE:
            return None  # the attributes of a promised class or function are not listed
        if inner in PAGE or any(each.startswith(f"{inner}.") for each in PAGE):
            home = inner
        elif (home in NATIVES and not part.startswith("_") and part in dir(importlib.import_module(home))) or (
            part.startswith("__") and part.endswith("__")
        ):
            return None
        else:
            return inner
    return None


def names(tree: ast.AST) -> dict[str, str]:
    """What is imported of sigmazero: the whole name by the one that stands for it."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "sigmazero":
                    found[alias.asname or "sigmazero"] = alias.name if alias.asname else "sigmazero"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sigmazero":
            found.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return found


def dotted(node: ast.AST, known: dict[str, str]) -> str | None:
    """The whole name of an expression such as `sz.models.load`."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute) and (inner := dotted(node.value, known)):
        return f"{inner}.{node.attr}"
    return None


def used(source: str) -> Iterator[str]:
    """Every name of sigmazero in a source text: imports, attributes, and texts that name modules or are code."""
    tree = ast.parse(source)
    known = names(tree)
    yield from known.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "sigmazero")
        elif isinstance(node, ast.Attribute) and (name := dotted(node, known)):
            yield name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for name in re.findall(r"\bsigmazero(?:\.\w+)+", node.value):
                if modules_below(".".join(name.split(".")[:2])):
                    yield name
            for module, imported in re.findall(r"\bfrom (sigmazero[\w.]*) import ([\w, ]+)", node.value):
                yield from (f"{module}.{each.split()[0]}" for each in imported.split(",") if each.split())


def changed(source: str) -> Iterator[str]:
    """Every name of sigmazero that a source text replaces: by setattr, by mock, or by assignment."""
    tree = ast.parse(source)
    known = names(tree)
    for node in ast.walk(tree):
        places = []
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("setattr", "delattr", "patch", "object"):
                places = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "target")]
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
            places = [each for each in targets if isinstance(each, ast.Attribute)]
        for place in places:
            if isinstance(place, ast.Constant) and str(place.value).startswith("sigmazero"):
                yield str(place.value)
            elif name := dotted(place, known):
                yield name


def test_the_ring_uses_public_names_alone():
    wrong = {}
    for path in RING:
        source = path.read_text(encoding="utf-8")
        private = {name for name in used(source) if refused(name)} | {f"{name} replaced" for name in changed(source)}
        private.update(re.findall(r"^ *(from tests\.[\w.]*\btest_\w+) import", source, re.MULTILINE))
        if private:
            wrong[path.relative_to(ROOT).as_posix()] = sorted(private)
    assert not wrong, "\n".join(f"{path}: {', '.join(private)}" for path, private in wrong.items())


def test_documents_and_examples_use_public_names_alone():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.py")]
    wrong = {}
    for path in pages:
        text = path.read_text(encoding="utf-8")
        lines = "\n".join([text] if path.suffix == ".py" else BLOCK.findall(text)).splitlines()
        imports = [line for line in lines if re.match(r"(>>> |\s*)(from|import) sigmazero\b", line)]
        code = "\n".join(line.removeprefix(">>> ").strip() for line in imports)
        if private := [name for name in used(code) if refused(name)]:
            wrong[path.name] = private
    assert not wrong


def test_the_check_finds_private_names():
    """The check itself: each of these lines is refused, and none of the last ones."""
    for line in (
        "from sigmazero.core import noise, faults",
        "import sigmazero.cli.app",
        "import sigmazero as sz\nsz.models.zoo.parse('')",
        "from sigmazero import run",
        "import importlib\nimportlib.import_module('sigmazero.bench.plan')",
        "code = 'from sigmazero.cli import app'",
        "from sigmazero.adapters._peers import PEERS",
    ):
        assert [name for name in used(line) if refused(name)], line
    for line in (
        "from sigmazero import data, models\nmodels.load('demo')\ndata.Rows.take",
        "import sigmazero as sz\nsz.Space.image8(x)\nsz.__version__\nsz.certifier.suite.run",
        "from sigmazero.adapters.foolbox import SigmaZero",
        "from sigmazero.core import losses\nlosses.get",
        "store = 'sigmazero.db'",
    ):
        assert not [name for name in used(line) if refused(name)], line
    for line in ("sz.get = 1", "monkeypatch.setattr(sz.models, 'load', f)", "mock.patch('sigmazero.data.load')"):
        assert list(changed(f"import sigmazero as sz\n{line}")), line
    assert not list(changed("import sigmazero as sz\nx.y = sz.get\nmonkeypatch.setattr(sys, 'argv', [])"))
