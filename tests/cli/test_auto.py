import numpy as np
import pytest

import sigmazero as sz
from sigmazero.auto import versions

MINE = ("auto", "--model", "net.py:build", "--data", "mine.npz", "--device", "cpu", "--version", "quick")


def test_a_table_a_file_and_a_state(sigmazero, own):
    done = sigmazero(*MINE, "--eps", 3, "--rows", "2:8", "--state", "s.npz", "--out", "result")
    assert done.exit_code == 0, done.output
    assert "quick 1, 6 samples, at most 3 features: clean accuracy 100.0%" in done.stdout
    for name in ("member", "robust accuracy at 3", "fooled", "queries per sample", "sigma-swap"):
        assert name in done.stdout
    assert "sigma-swap: robust accuracy" in done.stderr
    assert "sigma-swap: robust accuracy" not in done.stdout
    with np.load(own / "result/result.npz", allow_pickle=False) as kept, np.load(own / "mine.npz") as mine:
        assert kept["ids"].tolist() == [2, 3, 4, 5, 6, 7]
        changed = (kept["x_adv"] != mine["images"][2:8]).reshape(6, -1).sum(1)
        assert (changed <= 3).all()
        assert (kept["l0"][kept["success"]] == changed[kept["success"]]).all()
    assert (own / "result/result.png").is_file()
    again = sigmazero(*MINE, "--eps", 3, "--rows", "2:8", "--state", "s.npz")
    assert again.stdout.split("wrote")[0].strip() == done.stdout.split("wrote")[0].strip()
    other = sigmazero(*MINE, "--eps", 4, "--rows", "2:8", "--state", "s.npz")
    assert other.exit_code == 2
    assert "eps is 3 there, 4 here" in other.stderr


def test_without_a_budget(sigmazero, own):
    done = sigmazero(*MINE, "--limit", 4, "--unit", "pixel")
    assert done.exit_code == 0, done.output
    assert "as few pixels as possible" in done.stdout
    assert "robust accuracy at 10" in done.stdout  # of 20 pixels
    assert "median l0" in done.stdout


def test_warnings_are_shown_once(sigmazero, own, monkeypatch):
    # sigma-swap draws blindly too and fools this network; an attack by gradients alone does not.
    members = (sz.get("sigma-zero", steps=50), sz.get("sparse-rs", steps=500))
    monkeypatch.setitem(versions.VERSIONS, "quick", versions.Version("quick", 0, members, ()))
    (own / "masked.py").write_text(
        "import torch\n"
        "class Masked(torch.nn.Module):\n"
        "    weight = torch.randn(60, 3, generator=torch.Generator().manual_seed(1))\n"
        "    def forward(self, x):\n"
        "        return (x.flatten(1) - 0.5).sign() @ self.weight\n"
        "def build(): return Masked()\n"
    )
    images = np.random.default_rng(0).random((20, 3, 4, 5), dtype=np.float32)
    np.savez(own / "masked.npz", images=images, labels=_labels(own, images))
    done = sigmazero("auto", "--model", "masked.py:build", "--data", "masked.npz", "--eps", 4, "--version", "quick")
    assert done.exit_code == 3, done.output
    assert "SZ004" in done.stderr
    assert done.stderr.count("SZ014") == 1


def _labels(own, images):
    import runpy

    import torch

    return runpy.run_path(str(own / "masked.py"))["build"]()(torch.from_numpy(images)).argmax(1).numpy()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--eps", "0"), "eps=0 must be a whole number"),
        (("--version", "plus"), "version='plus' is not one of"),
        (("--batch-size", "0"), "bs=0"),
        (("--unit", "row"), "--unit row is not one of"),
    ],
)
def test_wrong_options_are_named(sigmazero, own, more, said):
    done = sigmazero(*MINE, *more)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
