"""Make seeded mutations in the source and count how many the outer ring of tests notices.

    python -m scripts.mutants --seed 0 --count 60 [--packages core run] [--jobs 2] [--list] [--only 3 17]

A mutation changes one place: an operator, a constant, a condition, a dropped call, two neighbours swapped. Lines are
drawn uniformly by the seed among those of the packages that can be changed, then one change of the line. Nothing is
drawn in docstrings, strings, `__all__`, annotations, decorators, `raise` and `assert` statements, `TYPE_CHECKING`
blocks, and in code that needs a GPU: LEFT_OUT, statements that name cuda or triton, the branch of an `if` that does.

Everything runs in copies of the tree. One run without a mutation notes which test files execute a drawn line. Then
each mutant meets these files, the cheapest first, and tests/system at last, whose processes are not traced. It is
killed if a test fails, or if it takes over four times as long as without the mutation. A mutant that no traced file
reaches and that tests/system lets pass is "not reached" and counts as survived. Whether a survivor changes behaviour
at all is for a person to judge.
"""

import argparse
import ast
import compileall
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("core", "run", "attacks", "store", "report")
RING = ("tests/judge", "tests/contract", "tests/golden", "tests/system")
LEFT_OUT = ("run/captures.py",)
NOT_SLOW = "not slow"  # what the ring leaves out, as pytest -m has it
TOO_LONG = 1000
NOTES = "MUTANTS_NOTES"  # names a file with what to trace; what was found is written there
UNREACHABLE = re.compile(rb"cuda|triton|TYPE_CHECKING", re.IGNORECASE)
GENERIC = {"tuple", "dict", "list", "set", "type", "Callable", "Iterator", "Iterable", "Mapping", "Sequence"}
OPERATORS = (  # each with what it becomes
    "< <= >=; <= < >; > >= <=; >= > <; == !=; != ==; is is_not; is_not is; in not_in; not_in in; and or; or and; "
    "+ -; - +; * /; / *; // *; % //; ** *; & |; | &"
)
CHANGES = {old: new for old, *new in (words.split() for words in OPERATORS.split(";"))}
Span = tuple[int, int]


@dataclass(frozen=True)
class Mutant:
    """One change: the bytes from `start` to `end` of a file become `new`."""

    file: str
    line: int
    start: int
    end: int
    new: bytes
    lines: Span  # those of its statement; outside the bodies of functions, those of the function, class or file

    def source(self) -> bytes:
        """Return the file's text with the change."""
        source = (ROOT / self.file).read_bytes()
        return source[: self.start] + self.new + source[self.end :]

    def valid(self) -> bool:
        """Say whether Python can read the file and finds something else in it."""
        with suppress(SyntaxError):
            return ast.dump(ast.parse(self.source())) != ast.dump(ast.parse((ROOT / self.file).read_bytes()))
        return False

    def __str__(self) -> str:
        before = (ROOT / self.file).read_bytes()[self.start : self.end]
        change = " -> ".join(" ".join(text.decode().split())[:60] for text in (before, self.new))
        return f"{self.file}:{self.line}  {change}"


class Finder:
    """Find the mutations of one file."""

    def __init__(self, file: str) -> None:
        self.file, self.source, self.found = file, (ROOT / file).read_bytes(), list[Mutant]()
        self.starts = [0, *itertools.accumulate(len(line) + 1 for line in self.source.split(b"\n"))]
        tree = ast.parse(self.source)
        imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
        self.modules = {(name.asname or name.name).split(".")[0] for node in imports for name in node.names}
        for statement in tree.body:
            self._visit(statement, (1, 1), (1, len(self.starts)))

    def _place(self, node: Any) -> Span:
        """Return where a node begins and ends in the file's bytes."""
        start, end = self.starts[node.lineno - 1], self.starts[node.end_lineno - 1]
        return start + node.col_offset, end + node.end_col_offset

    def _code(self, node: Any) -> bytes:
        return self.source[slice(*self._place(node))]

    def _add(self, start: int, end: int, new: bytes) -> None:
        """Note a mutation, unless its statement is for a GPU."""
        if not UNREACHABLE.search(self.source[self.starts[self.span[0] - 1] : self.starts[self.span[1]]]):
            line = self.source.count(b"\n", 0, start) + 1
            self.found.append(Mutant(self.file, line, start, end, new, self.scope or self.span))

    def _operator(self, left: Any, right: Any) -> None:
        start, end = self._place(left)[1], self._place(right)[0]
        if match := re.search(rb"[^\s()](.*[^\s()])?", self.source[start:end]):
            for new in CHANGES.get(match[0].decode().replace(" ", "_"), []):
                self._add(start + match.start(), start + match.end(), new.replace("_", " ").encode())

    def _swap(self, parts: list[Any]) -> None:
        for one, two in itertools.pairwise(parts):
            if not isinstance(one, ast.Starred) and not isinstance(two, ast.Starred):
                (start, middle), (again, end) = self._place(one), self._place(two)
                self._add(start, end, self.source[again:end] + self.source[middle:again] + self.source[start:middle])

    def _visit(self, node: Any, span: Span, scope: Span | None) -> None:
        match node:
            case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
                return
            case ast.Expr(value=ast.Constant()) | ast.Assign(targets=[ast.Name(id="__all__")]):
                return
            case ast.Subscript(value=ast.Name(id=name)) if name in GENERIC:
                return
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            span = (node.lineno, max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno)
        self.span, self.scope = span, scope
        self._change_values(node)
        self._change_structure(node)
        for child, its_scope in self._children(node, scope):
            self._visit(child, span, its_scope)

    def _children(self, node: Any, scope: Span | None) -> Iterator[tuple[Any, Span | None]]:
        """Yield what is drawn from in a node, with its scope."""
        parts: list[Any] = list(ast.iter_child_nodes(node))
        match node:
            case ast.FunctionDef(args=arguments, body=body):
                own = (node.lineno, node.end_lineno or node.lineno)
                yield from ((default, own) for default in (*arguments.defaults, *arguments.kw_defaults) if default)
                parts, scope = body, None
            case ast.ClassDef(body=body):
                parts, scope = body, (node.lineno, node.end_lineno or node.lineno)
            case ast.AnnAssign(value=value):
                parts = [value] if value else []
            case ast.ExceptHandler(body=body):
                parts = body
            case ast.If(test=test, orelse=other) if UNREACHABLE.search(self._code(test)):
                parts = [] if isinstance(test, ast.UnaryOp) else other
        yield from ((part, scope) for part in parts)

    def _change_values(self, node: Any) -> None:
        """Note other operators and constants."""
        match node:
            case ast.Compare(left=left, ops=[_], comparators=[right]) | ast.BinOp(left=left, right=right):
                self._operator(left, right)
            case ast.BoolOp(values=[left, right, *_]):
                self._operator(left, right)
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                self._add(*self._place(node), self._code(operand))
            case ast.Constant(value=bool(value)):
                self._add(*self._place(node), f"{not value}".encode())
            case ast.Constant(value=int(value)):
                self._add(*self._place(node), f"{value + 1}".encode())
                self._add(*self._place(node), f"({value - 1})".encode())
            case ast.Constant(value=float(value)):
                self._add(*self._place(node), f"{value / 2!r}".encode())
                self._add(*self._place(node), f"({-value!r})".encode())

    def _change_structure(self, node: Any) -> None:
        """Note negated conditions, dropped calls and swapped neighbours."""
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                self._add(*self._place(test), b"not (" + self._code(test) + b")")
            case ast.Expr(value=ast.Call()) | ast.AugAssign():
                self._add(*self._place(node), b"pass")
            case ast.Call(func=ast.Name(id="isinstance" | "cast")):
                return
            case ast.Call(func=ast.Attribute(value=kept)) if getattr(kept, "id", "") not in self.modules:
                self._add(*self._place(node), self._code(kept))
                self._swap(node.args)
            case ast.Call(args=[kept, *_]):
                if not isinstance(kept, ast.Starred | ast.GeneratorExp):
                    self._add(*self._place(node), self._code(kept))
                self._swap(node.args)
            case ast.Tuple(elts=parts, ctx=ast.Load()) | ast.List(elts=parts, ctx=ast.Load()):
                self._swap(parts)
            case ast.Dict(keys=keys, values=parts) if None not in keys:
                self._swap(parts)


def draw(packages: list[str], seed: int, count: int) -> list[Mutant]:
    """Draw lines of the packages, and one mutation of each."""
    lines = defaultdict[tuple[str, int], list[Mutant]](list)
    for path in sorted(path for package in packages for path in (ROOT / "src/sigmazero" / package).rglob("*.py")):
        for mutant in Finder(path.relative_to(ROOT).as_posix()).found:
            if not mutant.file.endswith(LEFT_OUT):
                lines[mutant.file, mutant.line].append(mutant)
    chance = random.Random(seed)
    order = (chance.choice(lines[place]) for place in chance.sample(sorted(lines), len(lines)))
    return list(itertools.islice((mutant for mutant in order if mutant.valid()), count))


# From here a plugin of pytest, for the run without a mutation.
_watched: dict[str, dict[str, list[int]]] = (
    json.loads(Path(os.environ[NOTES]).read_text()) if NOTES in os.environ else {}
)
_labels: list[str] = []  # what runs now: a test file, or a fixture of several, by its folder
_reached, _seconds, _failed = defaultdict[int, set[str]](set), defaultdict[str, float](float), list[str]()


def _trace(frame: FrameType, event: str, arg: object) -> Any:
    lines = _watched.get(frame.f_code.co_filename)
    if lines is None or not _labels or not frame.f_code.co_flags & 1:  # 1: a function, no module or class that is read
        return None
    for number in lines.get(f"{frame.f_lineno}", []):
        _reached[number].add(_labels[-1])
    return _trace


if _watched:
    threading.settrace(_trace)
    sys.settrace(_trace)


def _labelled(label: str) -> Generator[None, Any, Any]:
    _labels.append(label)
    start = time.perf_counter()
    try:
        return (yield)
    finally:
        _seconds[_labels.pop()] += time.perf_counter() - start


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Generator[None, Any, Any]:
    """Trace a fixture that serves several files: all below its folder."""
    several = fixturedef.scope in ("session", "package")
    return (yield from _labelled(fixturedef.baseid)) if several else (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Trace a test."""
    return (yield from _labelled(item.nodeid.split("::")[0]))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note which tests fail without a mutation."""
    if report.failed:
        _failed.append(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write down what was found."""
    sys.settrace(None)
    found = {"reached": {number: sorted(labels) for number, labels in _reached.items()}}
    Path(os.environ[NOTES]).write_text(json.dumps({**found, "seconds": _seconds, "failed": _failed}))


def run_tests(copy: Path, tests: list[str], *options: str, seconds: float | None = None) -> tuple[int, str]:
    """Run tests in a copy of the tree; the exit code, or TOO_LONG, and what pytest printed."""
    env = {**os.environ, "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}", "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {NOTES: str(copy / "notes.json"), "OMP_NUM_THREADS": "1"}
    env.setdefault("SIGMAZERO_SHARED", str(ROOT.parent / "shared"))
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-rfE", "-p", "no:cacheprovider", *options, *tests]
    with (copy / "output").open("w+") as output:
        process = subprocess.Popen(command, cwd=copy, env=env, stdout=output, stderr=output, start_new_session=True)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = TOO_LONG
        with suppress(ProcessLookupError):  # whatever it started ends with it
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        return code, output.read()


def judge(mutant: Mutant, labels: list[str], found: dict[str, Any], copies: "SimpleQueue[Path]") -> str:
    """Say which test kills a mutant, or that none does."""
    cost: dict[str, float] = found["seconds"]
    reaching = {file for file in cost if any(file.startswith(label) for label in labels)}
    order = sorted(reaching, key=cost.__getitem__)
    order += sorted(file for file in cost if file.startswith("tests/system/") and file not in reaching)
    if not order:
        return "NOT REACHED"
    deselect = [f"--deselect={name}" for name in found["failed"]]
    copy = copies.get()
    try:
        (copy / mutant.file).write_bytes(mutant.source())
        limit = 4 * (found["spare"] + sum(cost[file] for file in order))
        code, output = run_tests(copy, order, "-x", "-m", NOT_SLOW, *deselect, seconds=limit)
    finally:
        shutil.copy2(ROOT / mutant.file, copy / mutant.file)
        copies.put(copy)
    if code == 0:
        return "SURVIVED" if reaching else "NOT REACHED"
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", output, re.MULTILINE)
    return f"killed by {failed[1] if failed else 'time' if code == TOO_LONG else 'a crash'}"


def main() -> None:
    """Draw mutants and let the ring judge them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--packages", nargs="+", default=PACKAGES, choices=PACKAGES)
    parser.add_argument("--tests", nargs="+", default=[folder for folder in RING if (ROOT / folder).is_dir()])
    parser.add_argument("--only", nargs="+", type=int, help="numbers of the mutants to run")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="show the mutants and run nothing")
    args = parser.parse_args()
    drawn = enumerate(draw(args.packages, args.seed, args.count), 1)
    mutants = {number: mutant for number, mutant in drawn if not args.only or number in args.only}
    if args.list:
        sys.stdout.writelines(f"{number:3} {mutant}\n" for number, mutant in mutants.items())
        return
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.jobs) as pool:
        places = [Path(folder, f"{job}", "tree") for job in range(args.jobs)]
        copies: SimpleQueue[Path] = SimpleQueue()
        for place in places:
            shutil.copytree(ROOT, place, ignore=shutil.ignore_patterns(".*", "__pycache__", "demo", "build", "runs"))
            compileall.compile_dir(place / "src", quiet=2)  # runs write no bytecode, so that none is of a mutant
            copies.put(place)
        watch = {str(places[0] / mutant.file): defaultdict[int, list[int]](list) for mutant in mutants.values()}
        for number, mutant in mutants.items():
            for line in range(mutant.lines[0], mutant.lines[1] + 1):
                watch[str(places[0] / mutant.file)][line].append(number)
        (places[0] / "notes.json").write_text(json.dumps(watch))
        start = time.perf_counter()
        code, output = run_tests(places[0], args.tests, "-p", "scripts.mutants", "-m", NOT_SLOW)
        if code not in (0, 1):
            raise SystemExit(output)
        found = json.loads((places[0] / "notes.json").read_text())
        found["seconds"] = {name: taken for name, taken in found["seconds"].items() if name.endswith(".py")}
        found["spare"] = time.perf_counter() - start - sum(found["seconds"].values())
        sys.stdout.write(f"fail without a mutation, and are left out: {', '.join(found['failed']) or 'none'}\n")
        reached = {number: found["reached"].get(f"{number}", []) for number in mutants}
        ends = {number: pool.submit(judge, mutants[number], reached[number], found, copies) for number in mutants}
        for number, end in ends.items():
            sys.stdout.write(f"{number:3} {mutants[number]}  {end.result()}\n")
            sys.stdout.flush()
    killed = sum(end.result().startswith("killed") for end in ends.values())
    sys.stdout.write(f"{killed} of {len(ends)} killed: {killed / len(ends):.1%}\n")


if __name__ == "__main__":
    main()
