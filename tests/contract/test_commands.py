"""Every command: its example parses and runs, results and messages go to their own streams, mistakes change nothing."""

import ast
import csv
import dataclasses
import io
import re
import shlex
import shutil
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer.main

import sigmazero as sz
from sigmazero import data, models
from sigmazero.__main__ import load
from sigmazero.store import Store
from tests.helpers.commands import run_command

ROOT = Path(__file__).parents[2]
NET = """
import torch

def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(60, 4))

class Round(torch.nn.Module):
    def forward(self, x):
        return x.round()

def rounds():
    return torch.nn.Sequential(Round(), build())

def interrupted():
    raise KeyboardInterrupt

def broken():
    return lambda x: x.detach().flatten(1)[:, :4]
"""
PLAN = """
steps = 30
[data.rows]
source = "mine.npz"
[[grid]]
models = ["net.py:build"]
data = ["rows"]
attacks = ["sigma-zero"]
"""
LOANS = "age,job,loan\n30,clerk,yes\n40,cook,no\n50,nurse,yes\n35,clerk,no\n"
CARD = 'name = "mine"\nmodel = "net.py:build"\nboards = ["mnist"]\n'
FEW = "--limit 2 --steps 5 --device cpu"

# The examples in the help in an order in which they can run, with options that make them short: the last one counts.
RUNS = {
    "demo --limit 20 -o demo/": "--limit 2 --steps 5",
    "demo --tabular": "--limit 2 --steps 5 -o tabular",
    "attack net.py:build mine.npz --weights net.pt -o mine.png": FEW,
    "attack net.py:build adult.npz --space adult.toml --attack sigma-swap --store runs/adult.db": f"{FEW} --steps 20",
    "auto net.py:build mine.npz --weights net.pt --eps 24": "--cascade quick --limit 2",
    "certify demo mnist-5k-heldout --limit 20": "--limit 1 --time-limit 0.5 --each",
    "certify demo mnist-5k-heldout --limit 20 --store runs/demo.db": "--limit 1 --time-limit 0.5 --attack none",
    "doctor net.py:build mine.npz --weights net.pt": "",
    "list attacks": "",
    "list attacks sigma-zero": "",
    "list attacks --needs scores": "",
    "list models": "",
    "list datasets": "",
    "space draft mine.npz > mine.space.toml": "",
    "space draft loans.csv > loans.toml": "",
    "space check mine.space.toml mine.npz": "",
    "run experiments/small.toml --shard 1/2": "--limit 2 --store runs/small-part-1.db",
    "run experiments/small.toml --shard 2/2": "--limit 2 --store runs/small-part-2.db",
    "run experiments/small.toml --shard 3/16": "--limit 2 --store runs/shard.db",
    "merge runs/small-part-*.db -o runs/small.db": "",
    "run experiments/small.toml": "--limit 2 --store runs/small.db",
    "run mine.toml --trust-code": "--limit 2 --store runs/mine.db",
    "run experiments/minimum-norm-1000.toml --model M1 --model M2 --attack sigma-zero --dry-run": "",
    "status runs/small.db": "",
    "verify runs/small.db --eight-bit": "",
    "verify runs/small.db --rerun 5%": "",
    "export runs/small.db -o small.csv": "",
    "export runs/mine.db --attack sigma-zero -o mine.npz": "-o sigma-zero.npz",
    "transfer runs/small.db": "",
    "plot runs/small.db transfer -o transfer.png": "",
    "plot runs/small.db curves -o curves.pdf --set log=true": "",
    "plot runs/small.db pareto -o pareto.svg": "",
    "plot runs/small.db pictures --set rows=4": "",
    "report runs/small.db": "",
    "report runs/small.db -o report.html": "",
    "report runs/small.db --intervals --k 5,10,24": "",
    "report runs/adult.db --cost": "",
    "report runs/small.db runs/minimum-norm-1000.db --bundle site/": "",
    "board example my-board --limit 100": "--limit 1",
    "board init my-board mnist mnist --limit 1000": "--limit 12",
    "board init my-board cifar10-pixels cifar10 --limit 1000 --unit pixel": "--limit 2",
    'board add my-board cards/mine.toml --by "Ada Lovelace"': "--cascade none --trust-code",
    'board submit my-board runs/mine.db --by "Ada Lovelace"': "--trust-code",
    'board submit my-board points.npz --entry demo --by "Ada Lovelace" --tool "my attack"': "--entry mine --trust-code",
    "board prove my-board demo --up-to 1 --time-limit 60": "--time-limit 0.5",
    "board verify my-board": "--trust-code",
    "board site my-board --out site": "--out pages",
}
OWN = {"mnist": "mine.npz", "cifar10": "mine.npz"}  # data to download: the folder's own in their place
LEFT = {
    "auto M1 mnist --limit 1000 --eps 24 --fail-under 60 --json gate.json --quiet": "weights and data to download",
    "fetch M1": "weights to download",
    "demo": "the longer example runs",
    "board example my-board": "the longer example runs",
    "certify net.onnx mine.npz --up-to 2 --time-limit 60 --store proofs.db": "an ONNX file",
    "run experiments/minimum-norm-1000.toml --limit 64 --device cuda": "a GPU",
    "run experiments/small.toml --engine processes --workers 4": "processes: tests/system",
    "report before.db after.db": "two runs of one plan: tests/judge",
    "report runs/minimum-norm-1000.db -o table.tex --compare paper": "hours of a plan of the paper: tests/report",
    "export runs/loans.db --fields loans.csv -o changes.csv": "a store of a table's rows: test_own_files",
    "view runs/small.db --open": "serves until it is interrupted: tests/system",
}


@cache
def shown(*path: str) -> str:
    """The help of a command."""
    done = run_command(*path, "--help", columns=200)
    assert (done.code, done.stderr) == (0, "")
    return done.stdout


@cache
def paths() -> list[tuple[str, ...]]:
    """Every command and sub-command, as the helps list them."""
    found: list[tuple[str, ...]] = []
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        path = waiting.pop()
        panels = re.findall(r"^╭─ (.+?) ─.*?^╰", shown(*path), re.MULTILINE | re.DOTALL)
        assert panels, path
        names = re.findall(r"^│ ([a-z][a-z0-9-]+) ", shown(*path), re.MULTILINE)
        found += [(*path, name) for name in names]
        waiting += [(*path, name) for name in names]
    return found


def examples(*path: str) -> list[str]:
    """The lines of the help's example that call sigmazero, without that word."""
    return re.findall(r"^ +sigmazero (.*?) *$", shown(*path).partition("Example:")[2].partition("╭─")[0], re.MULTILINE)


def parse(words: list[str]) -> None:
    """Read the arguments of a command as the command line does, and stop there."""
    called: Any = typer.main.get_command(load())
    while words and words[0] in getattr(called, "commands", {}):
        called, words = called.commands[words[0]], words[1:]
    called.make_context("sigmazero", words)


def plain(example: str) -> list[str]:
    """The words of an example, without where a shell sends its output."""
    return shlex.split(example.partition(" > ")[0])


@pytest.fixture
def world(tmp_path, monkeypatch):
    """The current folder, with every file that the examples name, and nothing of the machine's own folders."""
    for name in ("SIGMAZERO_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "experiments", "experiments")
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(60, 4))
    torch.save(network.state_dict(), "net.pt")
    images = torch.rand(12, 3, 4, 5, generator=torch.Generator().manual_seed(1))
    rows = {"images": images.numpy(), "labels": network(images).argmax(1).numpy()}
    np.savez("mine.npz", **rows)
    np.savez("adult.npz", **rows)
    for name, text in {"net.py": NET, "mine.toml": PLAN, "loans.csv": LOANS, "adult.toml": "cost = 2.0\n"}.items():
        Path(name).write_text(text, encoding="utf-8")
    Path("cards").mkdir()
    Path("cards/net.py").write_text(NET, encoding="utf-8")
    Path("cards/mine.toml").write_text(CARD, encoding="utf-8")
    points = sz.get("sigma-zero", steps=30).run(network, images, torch.from_numpy(rows["labels"]))
    np.savez("points.npz", x_adv=points.x_adv[2:].numpy(), ids=np.arange(2, 12))
    return tmp_path


def files() -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in Path().rglob("*") if path.is_file()}


def test_every_command_has_examples_that_parse():
    listed = [example for path in [(), *paths()] for example in examples(*path)]
    assert {*RUNS, *LEFT} == {*listed}, "say in RUNS how a new example runs"
    assert not RUNS.keys() & LEFT.keys()
    for path in paths():
        assert any(plain(example)[: len(path)] == list(path) for example in examples(*path)), path
    for example in listed:
        parse(plain(example))


def test_examples_run_where_their_files_are_bundled(world):
    wrong = []
    for example, short in RUNS.items():
        if example.startswith("export"):
            shutil.copy("runs/small.db", "runs/minimum-norm-1000.db")
        first, *rest = plain(example)
        words = [
            first,
            *(OWN.get(word, word) if first == "board" and at == 3 else word for at, word in enumerate(rest)),
        ]
        words += shlex.split(short)
        expanded = [sorted(map(str, Path().glob(word))) if "*" in word else [word] for word in words]
        done = run_command(*(each for part in expanded for each in part))
        if target := example.partition(" > ")[2]:
            Path(target).write_text(done.stdout, encoding="utf-8")
        codes = (0, 1) if example.startswith("board prove") else (0,)  # 1: nothing was proved in so short a time
        if done.code not in codes or not (done.stdout or "wrote" in done.stderr) or "error" in done.stderr:
            wrong.append(f"{example}: {done}")
    assert not wrong, "\n".join(wrong)


ATTACK = ("attack", "net.py:build", "mine.npz", "--steps", 5, "--limit", 3)
GATE = ("auto", "net.py:build", "mine.npz", "--cascade", "quick", "--limit", 2, "--eps", 24)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, ATTACK),
        (0, (*GATE, "--fail-under", 0)),
        (1, (*GATE, "--fail-under", 100)),
        (3, ("doctor", "net.py:broken", "mine.npz")),
        (1, ("space", "check", "narrow.toml", "mine.npz")),
        (1, ("run", "missing.toml", "--store", "s.db")),
        (2, (*ATTACK, "--attack", "sigma-one")),
        (3, ("attack", "net.py:rounds", "rounded.npz", "--steps", 5)),
        (130, ("doctor", "net.py:interrupted", "mine.npz")),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else " ".join(map(str, value[:2])),
)
def test_exit_codes(world, code, words):
    Path("narrow.toml").write_text("upper = 0.5\n")
    Path("missing.toml").write_text(PLAN.replace("net.py:build", "M1"))
    with np.load("mine.npz") as rows:
        images = torch.from_numpy(rows["images"])
    labels = models.load("net.py:rounds")(images).argmax(1)
    np.savez("rounded.npz", images=images.numpy(), labels=labels.numpy())
    done = run_command(*words)
    assert done.code == code, done
    assert "Traceback" not in done.stderr
    if code in (2, 130):
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1


def test_a_word_for_a_number_and_an_unknown_option_are_refused(world):
    before = files()
    number = re.compile(r"^│[ *]+(--[a-z0-9-]+) +(?:-\w +)?(?:N|SECONDS)\b", re.MULTILINE)
    asked = [(path, option) for path in paths() for option in [*number.findall(shown(*path)), "--no-such-option"]]
    assert len(asked) > 40
    for path, option in asked:
        done = run_command(*path, option, "x7x")
        assert (done.code, done.stdout) == (2, ""), (path, option, done)
        assert option in done.stderr
    assert files() == before


@pytest.mark.parametrize("words", [("demo", "--limit", "x7x"), ("demo", "--x7x"), ("x7x",)], ids=" ".join)
def test_a_mistake_that_typer_finds_is_one_line_that_names_it(words):
    done = run_command(*words)
    assert "x7x" in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_a_stored_name_writes_no_line_of_its_own(world):
    run_command("run", "mine.toml", "--trust-code", "--store", "s.db", "--limit", 2)
    with Store("s.db") as store:
        info = store.cells()[0]
        facts = store.facts(info.key)
    forged = dataclasses.replace(info, provenance={}, attack="fmn\nall facts verified\n", model_sha256="0" * 64)
    with Store("forged.db", write=True) as store:
        store.register([forged])
        store.append(forged.key, 0, facts, run=store.begin({}))
    for command in ("verify", "status", "report"):
        done = run_command(command, "forged.db")
        assert "all facts verified" not in (done.stdout + done.stderr).splitlines(), command


def test_a_name_is_no_html_in_a_notebook(world):
    rows = dataclasses.replace(data.load("mine.npz", limit=2), name='<img src=x onerror="alert(1)">')
    made = sz.evaluate(models.load("net.py:build"), rows, ["sigma-zero"], store="s.db", steps=2)
    assert "<img" not in made._repr_markdown_()


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ((*ATTACK, "--attack", "sigma-one"), "sigma-one"),
        ((*ATTACK, "--set", "stepp=1"), "stepp"),
        ((*ATTACK, "--rows", "0:100:7"), "0:100:7"),
        ((*ATTACK, "--rows", "99"), "99"),
        ((*ATTACK, "--unit", "byte"), "byte"),
        ((*ATTACK, "--device", "abacus"), "abacus"),
        ((*ATTACK, "--steps", 0), "0"),
        ((*ATTACK, "--limit", -1), "-1"),
        ((ATTACK[0], ATTACK[1], "none.npz", *ATTACK[3:]), "none.npz"),
        ((*ATTACK, "--weights", "none.pt"), "none.pt"),
        ((ATTACK[0], ATTACK[1], "mnits", *ATTACK[3:]), "did you mean 'mnist'"),
        ((ATTACK[0], "net.py:nothing", *ATTACK[2:]), "nothing"),
        ((*GATE, "--cascade", "standard9"), "standard9"),
        ((*GATE, "--fail-under", 101), "101"),
        (("list", "attacks", "sigma-swp"), "sigma-swap"),
        (("list", "attacks", "--needs", "words"), "words"),
        (("list", "models", "--needs", "scores"), "scores"),
        (("list", "datasets", "mnits"), "did you mean 'mnist'"),
        (("fetch", "M3"), "M3"),
        (("run", "none.toml", "--dry-run"), "none.toml"),
        (("run", "mine.toml"), "net.py:build"),
        (("run", "mine.toml", "--engine", "steam", "--trust-code"), "steam"),
        (("run", "mine.toml", "--shard", "5/3", "--trust-code"), "5/3"),
        (("run", "mine.toml", "--attack", "fnm"), "fnm"),
        (("status", "none.db"), "none.db"),
        (("report", "none.db"), "none.db"),
        (("verify", "mine.npz"), "mine.npz"),
        (("export", "none.db", "--out", "x.csv"), "none.db"),
        (("board", "verify", "none"), "none"),
        (("space", "check", "none.toml", "mine.npz"), "none.toml"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(map(str, value[:2])),
)
def test_a_mistake_is_one_line_that_names_it_and_writes_nothing(world, words, value):
    before = files()
    done = run_command(*words)
    assert (done.code, done.stdout) == (2, ""), done
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert value in done.stderr
    assert files() == before


def test_results_go_to_stdout_and_messages_to_stderr(world):
    done = run_command("run", "mine.toml", "--trust-code", "--store", "s.db", "--limit", 2)
    assert "sigma-zero" in done.stdout
    table = list(csv.DictReader(io.StringIO(run_command("report", "s.db", "--to", "csv").stdout)))
    assert [row["attack"] for row in table] == ["sigma-zero"]
    tomllib.loads(run_command("space", "draft", "loans.csv").stdout)
    draft = run_command("space", "draft", "mine.npz")
    assert tomllib.loads(draft.stdout) == {}
    assert draft.stderr
    gated = run_command(*GATE, "--json", "gate.json", "--quiet")
    assert gated.stderr == ""
    assert gated.stdout.count("\n") == 1


def test_a_table_on_stdout_has_no_other_line(world):
    run_command("run", "mine.toml", "--trust-code", "--store", "s.db", "--limit", 2)
    done = run_command("report", "s.db", "--to", "csv")
    assert next(csv.reader(io.StringIO(done.stdout)))[0] == "model"
    done = run_command("export", "s.db", "-o", "-")
    assert len(list(csv.DictReader(io.StringIO(done.stdout)))) == 2
    for words in (("plot", "s.db", "curves", "-o", "c.png"), ("report", "s.db", "-o", "page.html")):
        done = run_command(*words)
        assert (done.code, done.stdout, done.stderr) == (0, "", f"wrote {words[-1]}\n")


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--model", "demo", "experiments/small.toml", "--dry-run"),
        ("attack", "--limit", "1", "--steps", "2", "net.py:build", "mine.npz"),
        ("attack", "net.py:build", "mine.npz", "--limit", "1", "--steps", "2", "--debug"),
    ],
    ids=" ".join,
)
def test_options_may_stand_anywhere(world, words):
    assert run_command(*words).code == 0


def test_missing_files_name_the_command_or_option_that_helps(world):
    for named, help_ in ((("M1", "mine.npz"), "sigmazero fetch M1"), (("net.py:build", "mnist"), "SIGMAZERO_HOME")):
        done = run_command("attack", *named)
        assert (done.code, done.stdout) == (2, "")
        assert help_ in done.stderr
    assert (
        "sigmazero fetch" not in run_command("attack", "C1", "mine.npz").stderr
    )  # there is no address to fetch it from


def test_the_error_of_a_model_keeps_its_kind(world):
    Path("net.py").write_text("def build():\n    def ask(x):\n        raise KeyError('logits')\n    return ask\n")
    for command in (ATTACK, GATE, ("doctor", "net.py:build", "mine.npz")):
        done = run_command(*command)
        assert done.code == (3 if command[0] == "doctor" else 2), done
        text = done.stdout if command[0] == "doctor" else done.stderr
        assert "KeyError" in text, done
        assert "logits" in text
        if command == ATTACK:
            assert re.search(r"net.py\W+line 3", text), done


def test_another_seed_attacks_the_same_rows(world):
    for seed in (0, 1):
        run_command(*ATTACK, "--seed", seed, "-o", f"{seed}.npz")
    with np.load("0.npz") as one, np.load("1.npz") as other:
        assert one["ids"].tolist() == other["ids"].tolist()


def test_version_and_lists():
    assert run_command("--version").stdout == f"sigmazero {sz.__version__}\n"
    listed = run_command("list", "attacks").stdout
    assert all(re.search(rf"^ {name} .*{attack.kind}", listed, re.MULTILINE) for name, attack in sz.ATTACKS.items())
    assert all(code in run_command("list", "models").stdout for code in models.entries())
    assert all(name in run_command("list", "datasets").stdout for name in data.DATASETS)
    for name, attack in sz.ATTACKS.items():
        about = run_command("list", "attacks", name).stdout
        unexplained = [
            each for each in attack.parameters() if not re.search(rf"^ {each} +\S.*  \w", about, re.MULTILINE)
        ]
        assert not unexplained, f"{name}: {unexplained}"
    assert models.get("M1").weights[0].file in run_command("list", "models", "M1").stdout
    assert "t10k-images" in run_command("list", "datasets", "mnist").stdout
    labels = run_command("list", "attacks", "--needs", "labels").stdout
    assert "label-swap" in labels
    assert "sparse-rs" not in labels


def test_demo_writes_its_picture_and_its_page(world):
    done = run_command("demo", "--limit", 2, "--steps", 5, "-o", "new")
    assert "of 2 images are fooled" in done.stdout.splitlines()[0]
    assert "wrote new/demo.png" in done.stderr
    assert Path("new/demo.png").read_bytes().startswith(b"\x89PNG")
    assert "</html>" in Path("new/report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("before", [("--no",), ("x",), ("attack", "--no"), ("demo", "x"), ("list", "x"), ("run", "x")])
def test_control_characters_of_arguments_do_not_reach_the_terminal(before):
    evil = "\x1b[31m\x07\x9b31m\u202e\u2028\u2066"
    done = run_command(*before[:-1], f"{before[-1]}{evil}")
    assert done.code == 2
    assert "\\x1b[31m\\x07\\x9b31m\\u202e\\u2028\\u2066" in done.stderr
    assert not set(evil) & set(done.stderr) - set("[31m")


def test_debug_shows_where_an_error_came_from():
    with pytest.raises(models.UnknownModel, match="M3"):
        run_command("--debug", "fetch", "M3")


def test_errors_of_the_library_name_no_option_and_no_command():
    spoken = re.compile(rf"(?<![\w-])--[a-z]|\bsigmazero ({'|'.join(path[0] for path in paths())})\b")
    wrong = {}
    for path in sorted((ROOT / "src" / "sigmazero").rglob("*.py")):
        if "cli" not in path.parts and path.name != "__main__.py":
            raised = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Raise)]
            parts = [part.value for node in raised for part in ast.walk(node) if isinstance(part, ast.Constant)]
            if texts := [text for text in parts if isinstance(text, str) and spoken.search(text)]:
                wrong[str(path)] = texts
    assert not wrong
