"""`sz.evaluate` and what it returns: in memory or in a store, from any data, printed, saved and read again."""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sigmazero as sz
from sigmazero.data import Rows
from tests.helpers import readers
from tests.helpers.judge import figures
from tests.helpers.networks import Linear, linear_problem

MODEL, X, Y = linear_problem((3, 4, 4), 12)
ATTACKS = ["sigma-zero", "fmn"]


CHANGED: list[int] = []  # outside of the model: what a model holds is a part of its identity


class Counting(Linear):
    """Note how many rows of each call are no clean inputs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        CHANGED.append(sum(bool((row != X).flatten(1).any(1).all()) for row in x.detach()))
        return super().forward(x)


def test_in_memory_it_finds_what_run_finds_and_leaves_no_file():
    done = sz.evaluate(MODEL, (X, Y), ATTACKS, steps=20)
    assert [*done] == ATTACKS
    assert len(done) == 2
    assert done.verify().disagreements == []
    for name in done:
        alone = sz.get(name, steps=20).run(MODEL, X, Y)
        for word in ("x_adv", "success", "l0", "outcome", "prediction", "forwards", "backwards", "ids"):
            assert torch.equal(getattr(done[name], word), getattr(alone, word)), (name, word)
        assert done[name].x is not None
        assert done[name].asr(5) == alone.asr(5)
    path = done.store
    assert path.is_file()
    del done
    gc.collect()
    assert not path.parent.exists()


def test_a_store_is_kept_and_the_second_time_no_sample_is_attacked_again(tmp_path):
    how: Any = {"store": tmp_path / "runs" / "s.db", "steps": 20, "name": "mine"}
    model = Counting((3, 4, 4))
    first = sz.evaluate(model, (X, Y), ATTACKS, **how)
    assert sum(CHANGED) > 100
    CHANGED.clear()
    again = sz.evaluate(model, (X, Y), ATTACKS, **how)
    assert sum(CHANGED) <= 16 * len(ATTACKS)  # it confirms stored points of each cell; nothing is searched
    assert again == first
    more = sz.evaluate(model, (X, Y), [*ATTACKS, "vfga"], **how)
    assert [*more] == [*ATTACKS, "vfga"]
    for name in ATTACKS:
        assert torch.equal(first[name].x_adv, more[name].x_adv)
        assert first[name].seconds == more[name].seconds


@pytest.mark.filterwarnings("ignore:the inputs are float64 and the model float32")
@pytest.mark.parametrize("kind", ["arrays", "doubles", "lists", "rows", "pairs"])
def test_data_of_any_kind(kind):
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 4))
    net[1].weight.data, net[1].bias.data = MODEL.weight.data.float(), MODEL.bias.data.float()
    x = X.float()
    given: Any = {
        "arrays": (x.double().numpy(), Y.numpy()),
        "doubles": (x.double(), Y),
        "lists": (x.tolist(), Y.tolist()),
        "rows": Rows(x, Y, torch.arange(len(x)), "mine"),
        "pairs": list(zip(x, Y, strict=True)),
    }[kind]
    done = sz.evaluate(net, given, "sigma-zero", steps=5)["sigma-zero"]
    assert torch.equal(done.x_adv, sz.get("sigma-zero", steps=5).run(net, x, Y).x_adv)


def test_saved_and_loaded_it_is_the_same(tmp_path):
    how: Any = {"steps": 20, "name": "mine"}
    sz.evaluate(MODEL, (X, Y), ["vfga"], store=tmp_path / "s.db", **how)  # which is not to be saved
    mask = np.ones((3, 4, 4), bool)
    for made in (
        sz.evaluate(MODEL, (X, Y), ATTACKS, **how),
        sz.evaluate(MODEL, (X, Y), ATTACKS, store=tmp_path / "s.db", mask=mask, **how),
    ):
        saved = made.save(tmp_path / "saved.db")
        read = type(made).load(saved)
        assert (str(read), [*read]) == (str(made), [*made])
        assert read.records() == made.records()
        assert torch.equal(read["fmn"].x_adv, made["fmn"].x_adv)
        verdict = read.verify()  # the model was an object of this process
        assert (verdict.disagreements, len(verdict.skipped)) == ([], 2)
        with pytest.raises(ValueError, match=r"saved\.db"):
            read.save(saved)
    with pytest.raises(FileNotFoundError, match=r"none\.db"):
        type(made).load(tmp_path / "none.db")


@pytest.mark.parametrize("most", [1.0, torch.linspace(1, 2, 784).view(1, 28, 28)])
def test_a_saved_evaluation_of_a_named_model_can_be_verified(most, tmp_path):
    bounds: Any = (0.0, most)
    made = sz.evaluate("demo", (torch.rand(3, 1, 28, 28), [1, 2, 3]), "vfga", steps=10, bounds=bounds)
    verdict = type(made).load(made.save(tmp_path / "saved.db")).verify()
    assert (verdict.rows, verdict.disagreements, verdict.skipped) == (3, [], [])


def test_a_model_whose_helper_was_edited_is_another_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    helper = tmp_path / "helper_of_net.py"
    build = "torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3).double())"
    text = "import torch\nimport helper_of_net\n\ndef build():\n    torch.manual_seed(helper_of_net.SEED)\n"
    (tmp_path / "net.py").write_text(f"{text}    return {build}\n")
    for edited in ("SEED = 1\n", "SEED = 1\n", "SEED = 1  # as before\n"):
        helper.write_text(edited)
        sz.evaluate("net.py:build", (X, Y), "fmn", steps=5, store="s.db")
    assert len(sz.Evaluation.load("s.db")) == 2


class Addressed(Linear):
    """Its text holds an address in memory."""

    def extra_repr(self) -> str:
        return object.__repr__(self)


def test_a_model_made_again_is_the_same_wherever_it_lies_in_memory(tmp_path):
    models = [Addressed((3, 4, 4)) for _ in range(2)]
    assert repr(models[0]) != repr(models[1])
    for model in models:
        sz.evaluate(model, (X, Y), "fmn", steps=5, name="mine", store=tmp_path / "s.db")
    assert len(sz.Evaluation.load(tmp_path / "s.db")) == 1


@pytest.mark.parametrize(
    ("attacks", "how"),
    [
        (["sigma-zero", "fmn"], {}),
        (["sigma-zero"], {"unit": "pixel"}),
        (["sparse-rs", "fmn"], {"budgets": [2, 4]}),
        (["sigma-zero"], {"margin": 1e6}),  # nothing is found
    ],
)
def test_it_prints_a_sentence_and_a_table(attacks, how):
    done = sz.evaluate(MODEL, (X, Y), attacks, steps=20, **how)
    assert done._repr_markdown_() == str(done)
    ((best, told),), shown_tables = readers.read_evaluation(str(done))
    (rows,) = shown_tables.values()
    assert len(rows) == len({name.partition(" ")[0] for name in done})
    budgets = how.get("budgets")
    figure = f"asr@{budgets[0]}" if budgets else "asr@inf" if "margin" in how else "median_l0"
    known = {}
    for name in done:
        result = done[name]
        if result.budget in (None, (budgets or [None])[0]):
            arrays = [each.detach().numpy() for each in (X, result.x_adv, Y, MODEL(X), MODEL(result.x_adv))]
            asked: Any = {"unit": result.unit, "budget": result.budget, "ks": budgets or ()}
            known[name.partition(" ")[0]] = figures(*arrays, **asked)
    order = min if figure == "median_l0" else max
    assert order(each[figure] for each in known.values()) == known[best][figure]
    assert told.pop("in_pixels", 0) == (how.get("unit") == "pixel")
    assert set(told) == {"samples", figure}
    for word, shown in told.items():
        assert isinstance(shown, readers.Shown)
        assert shown.agrees(known[best][word]), word


def test_one_line_says_what_it_is(tmp_path):
    kept = sz.evaluate(MODEL, (X, Y), ATTACKS, steps=3, store=tmp_path / "s.db")
    assert repr(kept) == f"<Evaluation of sigma-zero, fmn: {len(X)} samples, in {tmp_path / 's.db'}>"
    assert str(kept.verify()) == f"{2 * len(X)} rows checked, 0 disagreements"
    (tmp_path / "s.db").unlink()
    assert repr(kept) == f"<Evaluation in {tmp_path / 's.db'}, which cannot be read>"
    assert (
        repr(sz.evaluate(MODEL, (X, Y), steps=3))
        == f"<Evaluation of sigma-zero: {len(X)} samples, in a temporary file>"
    )


def test_figures_as_a_frame_and_a_drawing():
    done = sz.evaluate(MODEL, (X, Y), ATTACKS, steps=20)
    frame = done.to_pandas(ks=[3])
    assert list(frame["attack"]) == ATTACKS
    assert " ".join(list(frame)[1:11]) == "model dataset attack version steps unit goal budget seed precision"
    assert list(frame["asr_3"]) == [done[name].asr(3) for name in done]
    axis = done.plot().axes[0]
    assert {*ATTACKS} <= {text.get_text().partition(" ")[0] for text in axis.get_legend().get_texts()}


def test_names_of_attacks_are_taken_as_get_takes_them():
    done = sz.evaluate(MODEL, (X, Y), [sz.get("sigma-zero", steps=5), sz.get("sigma-zero", steps=9), "fmn"], limit=4)
    assert [*done] == ["sigma-zero, steps 5", "sigma-zero, steps 9", "fmn"]
    assert len(done["FMN"]) == 4
    with pytest.raises(KeyError, match=r"'sigma-zer'.*sigma-zero, steps 5"):
        done["sigma-zer"]


def test_an_attack_that_failed_says_why():
    with pytest.warns(RuntimeWarning, match="sparse-rs"):
        done = sz.evaluate(MODEL, (X, Y), ["sparse-rs", "fmn"], steps=5)
    with pytest.raises(KeyError, match="budget"):
        done["sparse-rs"]
    assert len(done["fmn"]) == len(X)
    assert "sparse-rs" in str(done)


def test_targets_and_double_precision():
    model, x = MODEL, X
    done = sz.evaluate(model, (x, Y), "sigma-zero", steps=20, target="next")["sigma-zero"]
    assert torch.equal(done.prediction[done.success], ((Y + 1) % 4)[done.success])
    fixed = sz.evaluate(model, (x, Y), "sigma-zero", steps=20, target=2)["sigma-zero"]
    assert len(fixed) == int((Y != 2).sum())
    single = nn.Sequential(nn.Flatten(), nn.Linear(48, 4))
    labels = single(x.float()).argmax(1)
    twice = sz.evaluate(single, (x.float(), labels), "sigma-zero", steps=20, double=True)
    assert twice["sigma-zero"].x_adv.dtype == torch.float64
    assert next(single.parameters()).dtype == torch.float32
    assert {row["precision"] for row in twice.records()} == {"fp64"}


def test_the_model_stays_on_its_device():
    """The meta device stands for a second one: a model that were moved there would have lost its weights."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 4)).to("meta")
    with pytest.raises(NotImplementedError, match="meta"):
        sz.evaluate(net, (X.float(), Y), "fmn", steps=2, device="cpu")
    assert {each.device.type for each in net.parameters()} == {"meta"}


def test_a_store_that_holds_other_runs_is_loaded_whole(tmp_path: Path):
    for part in (slice(0, 5), slice(5, 12)):
        sz.evaluate(MODEL, (X[part], Y[part]), "fmn", steps=5, store=tmp_path / "s.db", name=f"rows {part.start}")
    read = type(sz.evaluate(MODEL, (X[:2], Y[:2]), "fmn", steps=2)).load(tmp_path / "s.db")
    assert len(read) == 2
