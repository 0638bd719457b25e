"""When a copy is compiled, for how many shapes, and what is remembered of it; without a device and a real compiler."""

import json
import logging

import pytest
import torch
from torch import nn

import sigmazero as sz
from sigmazero.core.inputs import make_problem
from sigmazero.core.oracle import Oracle
from sigmazero.run.compiled import Compiler, SearchModel
from sigmazero.run.graphs import Frame, Frames, stepper
from sigmazero.run.ledger import Ledger
from sigmazero.run.search import search
from tests.helpers.networks import TinyNet
from tests.run.test_frames import ROWS, Retaken, problem

ATTACK = sz.get("sigma-zero", steps=60)


@pytest.fixture(autouse=True)
def own_ledger(monkeypatch, tmp_path):
    """No test knows what another has compiled, nor what this machine has."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("sigmazero.run.ledger._here", set())


@pytest.fixture
def compilations(monkeypatch):
    """What torch.compile was asked to compile, for which rows, each time it saw something new."""
    seen: list[int] = []

    def compile_(model, **how):
        assert how == {"dynamic": False, "fullgraph": True}
        shapes: set[tuple[int, bool]] = set()

        def fast(x):
            if (len(x), torch.is_grad_enabled()) not in shapes:
                shapes.add((len(x), torch.is_grad_enabled()))
                seen.append(len(x))
            return model(x)

        return fast

    monkeypatch.setattr(torch, "compile", compile_)
    monkeypatch.setattr(Frame, "_capture", lambda frame: setattr(frame, "graph", Retaken(frame)))
    return seen


class Shared:
    """What recordings share, with a clock that tells what it is told to."""

    insist = False

    def __init__(self, compiler: Compiler, milliseconds: list[float] | None = None) -> None:
        self.compiler, self.milliseconds = compiler, [None, *(milliseconds or [])]  # nothing was timed before

    def begin(self, frame: Frame) -> None:
        self.compiler.begin(frame)

    def look(self, frame: Frame, left: int) -> None:
        if self.compiler.watches(frame) and self.milliseconds and (took := self.milliseconds.pop(0)) is not None:
            self.compiler.look(frame, took, left)


class Phase:
    def __init__(self, frames: Frames) -> None:
        self.attack, self.frames = frames.attack, frames

    def begin(self, oracle, before):
        self.frames.left = self.attack.iterations
        return stepper(self.frames, oracle, self.attack.init(oracle))


def found(model, shared: Shared, question):
    frames = Frames(ATTACK, ROWS, shared)  # type: ignore[arg-type]
    with torch.no_grad():
        return search([Phase(frames)], Oracle(model, question), True, None, lambda _: None).tally


@pytest.fixture
def net():
    return TinyNet("conv")


def plain(net, question):
    model = SearchModel(net)
    return found(model, Shared(Compiler(model, "fold", None, Ledger())), question)


def same(one, two) -> None:
    for name in ("points", "counts", "forwards", "backwards", "step_found"):
        assert torch.equal(getattr(one, name), getattr(two, name)), name


@pytest.mark.parametrize("budget", [None, 5])
def test_compile_means_at_once_and_at_most_three_times(net, compilations, budget):
    question = problem(net, budget)
    model = SearchModel(net)
    tally = found(model, Shared(Compiler(model, "compile", False, Ledger())), question)
    same(tally, plain(net, question))
    assert compilations[0] == ROWS
    assert len(compilations) <= 3


def test_fold_compiles_nothing(net, compilations):
    plain(net, problem(net, None))
    assert compilations == []


def test_what_the_compiler_refuses_is_searched_as_it_is(net, compilations, monkeypatch, caplog):
    def refuse(model, **how):
        def fast(x):
            raise RuntimeError("graph break\nin line 3")

        return fast

    monkeypatch.setattr(torch, "compile", refuse)
    model = SearchModel(net)
    tally = found(model, Shared(Compiler(model, "compile", False, Ledger())), problem(net, None))
    same(tally, plain(net, problem(net, None)))
    assert caplog.messages == ["the model is searched uncompiled (graph break)"]
    assert model.compiled == set()


def test_auto_compiles_in_mid_run_once_that_pays(net, compilations, tmp_path, caplog):
    model, ledger = SearchModel(net), Ledger(tmp_path / "ledger.json")
    with caplog.at_level(logging.INFO, "sigmazero"):
        tally = found(model, Shared(Compiler(model, "auto", False, ledger), [3000.0, 1500.0]), problem(net, None))
    same(tally, plain(net, problem(net, None)))
    assert compilations == [ROWS]
    (message,) = caplog.messages
    assert message.startswith(
        f"compiling the model for {ROWS} rows: 50 steps of 3000.00 ms would save 45.0 s; it takes"
    )
    (entry,) = json.loads((tmp_path / "ledger.json").read_text()).values()
    assert entry["gain"] == 0.5
    assert entry["cold"] > 0


def test_auto_waits_until_as_much_was_missed_as_it_costs(net, compilations, tmp_path):
    runs = []
    for _ in range(4):  # 50 steps of 260 ms, 30 % of which are 3.9 s, against 12
        model = SearchModel(net)
        compiler = Compiler(model, "auto", False, Ledger(tmp_path / "ledger.json"))
        found(model, Shared(compiler, [260.0, 200.0]), problem(net, None))
        runs.append(bool(model.compiled))
    assert runs == [False, False, False, True]


def test_a_ledger_knows_what_is_in_the_cache(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "ledger.json")
    assert not ledger.judge("a", 10.0, 1000)[0]
    ledger.spent("a", 8.0)
    ledger.gained("a", 0.5)
    assert ledger.judge("a", 10.0, 200)[0]  # 1 s saved, and this process has it at hand
    monkeypatch.setattr("sigmazero.run.ledger._here", set())
    assert ledger.judge("a", 10.0, 1000)[0]  # 5 s saved; what took 8 s takes 1.3 from the cache
    assert not ledger.judge("a", 10.0, 200)[0]
    ledger.spent("a", 0.9)
    monkeypatch.setattr("sigmazero.run.ledger._here", set())
    assert ledger.judge("a", 10.0, 190)[0]
    pays, why = ledger.judge("b", 10.0, 1000)  # another model: what was measured for the first one
    assert not pays
    assert "would save 3.0 s; it takes 8.0 s" in why


@pytest.mark.parametrize("content", ["", "[]", '{"a": 3}', '{"a": {"other": 1}}', "\x00"])
def test_a_damaged_ledger_is_written_anew(tmp_path, content, caplog):
    path = tmp_path / "ledger.json"
    path.write_text(content)
    ledger = Ledger(path)
    ledger.spent("a", 8.0)
    assert "it is written anew" in caplog.text
    assert json.loads(path.read_text())["a"]["cold"] == 8.0


def test_a_ledger_that_cannot_be_written_is_said_and_that_is_all(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    Ledger(tmp_path / "file" / "ledger.json").spent("a", 8.0)
    assert "cannot be remembered" in caplog.text


def test_keys_tell_models_shapes_and_attacks_apart(net, compilations):
    keys = set()
    for model in (SearchModel(net), SearchModel(nn.Sequential(net))):
        compiler = Compiler(model, "auto", False, Ledger())
        for rows in (4, 8):
            oracle = Oracle(model, make_problem(net.x[:1].repeat(rows, 1, 1, 1), net.y[:1].repeat(rows)))
            with torch.no_grad():
                frame = Frame(ATTACK, oracle, ATTACK.init(oracle), Shared(compiler))  # type: ignore[arg-type]
                compiler.begin(frame)
            keys |= {compiler._key(frame)}
    assert len(keys) == 4


@pytest.mark.parametrize(("gain", "at_once"), [(None, True), (0.2, True), (-0.1, False)])
def test_what_this_process_has_compiled_is_compiled_at_once(net, compilations, tmp_path, monkeypatch, gain, at_once):
    monkeypatch.setattr("sigmazero.run.compiled._LONG", ATTACK.iterations)
    ledger = Ledger(tmp_path / "ledger.json")
    for how in ("compile", "auto"):
        model = SearchModel(net)
        tally = found(model, Shared(Compiler(model, how, False, ledger)), problem(net, None))
        same(tally, plain(net, problem(net, None)))
        if how == "compile" and gain is not None:
            (key,) = json.loads(ledger.path.read_text())
            ledger.gained(key, gain)
    assert bool(model.compiled) == at_once


def test_what_cannot_be_fused_is_compiled_all_the_same(net, compilations, monkeypatch, caplog):
    record = Frame.record

    def refuse(frame, *, compiled=False, fused=False):
        if fused:
            raise IndexError("tuple index out of range")
        record(frame, compiled=compiled)

    monkeypatch.setattr(Frame, "record", refuse)
    model = SearchModel(net)
    tally = found(model, Shared(Compiler(model, "compile", True, Ledger())), problem(net, None))
    same(tally, plain(net, problem(net, None)))
    assert caplog.messages == ["the attack's arithmetic is uncompiled (tuple index out of range)"]
    assert compilations == [ROWS]


def test_the_arithmetic_is_a_second_decision(net, compilations, tmp_path, monkeypatch, caplog):
    fused: list[bool] = []
    record = Frame.record

    def noted(frame, **how):
        fused.append(how.pop("fused", False))
        record(frame, **how)

    monkeypatch.setattr(Frame, "record", noted)
    model = SearchModel(net)
    compiler = Compiler(model, "auto", None, Ledger(tmp_path / "ledger.json"))
    with caplog.at_level(logging.INFO, "sigmazero"):
        found(model, Shared(compiler, [3000.0, 1000.0, 900.0]), problem(net, None))
    assert fused == [False, False]  # a quarter of a millisecond in 25 steps is not worth it
    assert caplog.messages[1].startswith(f"not compiling the attack's arithmetic for {ROWS} rows")


@pytest.mark.parametrize("wrong", ['{"missed": "much"}', '{"missed": null}', '{"cold": NaN}', '{"other": 1}', "3"])
def test_a_ledger_with_something_else_in_it_is_written_anew(wrong, tmp_path, caplog):
    """It lies in a folder for temporary files, which others may write to."""
    ledger = Ledger(tmp_path / "ledger.json")
    ledger.path.write_text(f'{{"a": {wrong}}}')
    assert not ledger.judge("a", 10.0, 1000)[0]
    assert "it is written anew" in caplog.text
    assert json.loads(ledger.path.read_text())["a"]["missed"] == pytest.approx(3.0)


def test_a_user_without_a_name_has_a_ledger_too(monkeypatch):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    monkeypatch.setattr("getpass.getuser", nobody)
    assert Ledger().path.parent.name.startswith("torchinductor_u")
