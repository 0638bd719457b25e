import re

import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero.cli.options import value

MINE = ("attack", "--model", "net.py:build", "--data", "mine.npz", "--device", "cpu")


def _arrays(path):
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def test_own_model_and_data(sigmazero, own):
    done = sigmazero(*MINE, "--steps", 40, "--out", "result")
    assert done.exit_code == 0, done.output
    for name in ("clean accuracy", "ASR at ∞", "median l0", "mean l0"):
        assert name in done.stdout
    assert "queries per sample" in done.stdout
    assert "seconds per sample" in done.stdout
    assert "100.0 %" in done.stdout
    assert (own / "result/result.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in (own / "result").iterdir()) == ["result.npz", "result.png"]


def test_saved_result_can_be_checked_again(sigmazero, own):
    assert sigmazero(*MINE, "--steps", 40, "--rows", "2:8", "--out", "kept.npz").exit_code == 0
    kept, mine = _arrays(own / "kept.npz"), _arrays(own / "mine.npz")
    wanted = ["x_adv", "success", "l0", "l0_pixel", "step_found", "forwards", "backwards", "outcome", "ids", "labels"]
    assert set(wanted) <= set(kept)
    assert kept["ids"].tolist() == [2, 3, 4, 5, 6, 7]
    assert (kept["labels"] == mine["labels"][2:8]).all()
    changed = (kept["x_adv"] != mine["images"][2:8]).reshape(6, -1).sum(1)
    assert (kept["l0"][kept["success"]] == changed[kept["success"]]).all()
    assert (own / "kept.png").is_file()


def test_weights_normalisation_budget_and_pixels(sigmazero, own):
    torch.save({"1.weight": torch.zeros(4, 60), "1.bias": torch.arange(4.0)}, own / "net.pt")
    more = ("--weights", "net.pt", "--normalize", "0.5,0.5", "--budget", 3, "--unit", "pixel", "--steps", 3)
    done = sigmazero(*MINE, *more, "--no-doctor")
    assert done.exit_code == 0, done.output
    assert "ASR at 3 (pixels)" in done.stdout
    assert "median l0" not in done.stdout
    assert "SZ0" not in done.output


def test_failures_show_as_infinity(sigmazero, own):
    torch.save({"1.weight": torch.zeros(4, 60), "1.bias": torch.tensor([0.0, 9, 0, 0])}, own / "net.pt")
    np.savez(own / "ones.npz", images=np.zeros((4, 3, 4, 5), np.float32), labels=np.ones(4, int))
    done = sigmazero("attack", "--model", "net.py:build", "--weights", "net.pt", "--data", "ones.npz", "--steps", 2)
    assert done.exit_code == 3, done.output  # and the doctor says why
    shown = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines() if " l0 " in line)
    assert {name.strip(): text for name, text in shown.items()} == {"median l0": "∞", "mean l0": "∞"}
    assert "0.0 %" in done.stdout


def test_target_class_leaves_its_own_rows_out(sigmazero, own):
    done = sigmazero(*MINE, "--targeted", "--target-class", 1, "--steps", 60, "--out", "kept.npz")
    assert done.exit_code == 0, done.output
    kept = _arrays(own / "kept.npz")
    assert (kept["targets"] == 1).all()
    assert (kept["labels"] != 1).all()
    assert (kept["prediction"][kept["success"]] == 1).all()
    assert f"{12 - len(kept['ids'])} of 12 rows left out" in done.stderr


def test_targets_from_a_file(sigmazero, own):
    labels = _arrays(own / "mine.npz")["labels"]
    (own / "goals.txt").write_text("\n".join(str((label + 1) % 4) for label in labels))
    done = sigmazero(*MINE, "--targets", "goals.txt", "--steps", 60, "--out", "kept.npz")
    assert done.exit_code == 0, done.output
    kept = _arrays(own / "kept.npz")
    assert (kept["targets"] == (labels + 1) % 4).all()


def test_other_parameters(sigmazero, own):
    more = ("--attack", "sigma-zero-star", "--set", "threshold=0.2", "--set", "projection=off")
    assert sigmazero(*MINE, "--steps", 2, *more).exit_code == 0


def test_an_attack_inside_another_goes_by_its_name():
    assert value("attack", "sigma-zero-star", sz.get("sigma-zero")) == sz.get("sigma-zero-star")
    assert value("start", "(1, 2)", None) == (1, 2)
    assert value("start", "pool", None) == "pool"


def test_flat_inputs_have_no_picture(sigmazero, own):
    (own / "flat.py").write_text("import torch\ndef build(): return torch.nn.Linear(5, 3)\n")
    np.savez(own / "flat.npz", images=np.full((9, 5), 0.5, np.float32), labels=np.zeros(9, int))
    done = sigmazero("attack", "--model", "flat.py:build", "--data", "flat.npz", "--steps", 3, "--out", "result")
    assert done.exit_code == 0, done.output
    assert [path.name for path in (own / "result").iterdir()] == ["result.npz"]


def test_findings_of_the_doctor_come_first(sigmazero, own):
    done = sigmazero("attack", "--model", "net.py:softmax", "--data", "mine.npz", "--steps", 2)
    assert done.exit_code == 0, done.output
    assert "SZ001" in done.stderr
    assert "SZ001" not in done.stdout


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--attack", "sigma-zer"), "did you mean sigma-zero"),
        (("--steps", "0"), "steps=0 must be a whole number"),
        (("--set", "thresold=1"), "has no parameter 'thresold'"),
        (("--set", "threshold"), "write --set threshold=VALUE"),
        (("--set", "threshold=x"), "threshold=x must be a number"),
        (("--set", "projection=maybe"), "projection=maybe must be true or false"),
        (("--steps", "3", "--set", "steps=4"), "steps is given twice"),
        (("--unit", "row"), "--unit row is not one of feature, pixel"),
        (("--device", "toaster"), "there is no device called 'toaster'"),
        (("--targeted",), "--targeted needs the classes to reach"),
        (("--targets", "none.txt"), "none.txt: no such file"),
        (("--targets", "net.py"), "not a list of classes"),
        (("--targets", "net.py", "--target-class", "1"), "not both"),
        (("--target-class", "9", "--no-doctor"), "label 9"),
        (("--rows", "0:99"), "there are 12 rows"),
        (("--out", "net.py"), "--out net.py is a file"),
        (("--weights", "mine.npz"), "mine.npz"),
        (("--model", "net.py:nothing"), "has no function 'nothing'"),
        (("--model", "net.py:broken"), "this network cannot be built"),
        (("--model", "M99"), "unknown model 'M99'"),
        (("--data", "nowhere.npz"), "nowhere.npz: no such file"),
        (("--batch-size", "0"), "batch_size=0"),
        (("--budget", "-1"), "budget=-1"),
    ],
)
def test_wrong_options_are_named(sigmazero, own, more, said):
    done = sigmazero(*MINE, *more)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert "Traceback" not in done.output
    assert done.stderr.count("error: ") == 1


def test_unknown_options_and_missing_ones(sigmazero, own):
    assert sigmazero(*MINE, "--epsilon", 3).exit_code == 2
    missing = sigmazero("attack", "--model", "net.py:build")
    assert missing.exit_code == 2
    assert "--data" in missing.stderr


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def build():\n    return torch.nn.Lineaar(3, 4)\n", "net.py:build failed: AttributeError: .*line 3"),
        ("def build(:\n", "net.py failed: SyntaxError: .*line 2"),
        ("def build():\n    return lambda x: 1 // 0\n", "ZeroDivisionError: .*--debug"),
        ("def build(size):\n    return None\n", "net.py:build failed: TypeError: .*without arguments"),
    ],
)
def test_errors_of_a_users_code_are_one_line(sigmazero, own, code, said):
    (own / "net.py").write_text(f"import torch\n{code}")
    done = sigmazero(*MINE, "--no-doctor")
    assert done.exit_code == 2
    assert re.search(said, done.stderr), done.stderr
    assert done.stderr.count("\n") == 1


def test_a_margin_can_be_asked_for(sigmazero, own):
    done = sigmazero(*MINE, "--steps", 40, "--margin", 0.25, "--precision", "fp32", "--out", "kept.npz")
    assert done.exit_code == 0, done.output
    kept = _arrays(own / "kept.npz")
    assert kept["success"].any()
    assert (kept["margin"][kept["success"]] <= -0.25).all()
    assert kept["given_up"].shape == kept["l0"].shape
    wrong = sigmazero(*MINE, "--margin", -1)
    assert wrong.exit_code == 2
    assert "margin=-1.0 must be a finite number, 0 or more" in wrong.stderr
