"""Commands on what people have: folders of pictures, classes with names, attacks of other libraries."""

import numpy as np
import pytest
from PIL import Image

import sigmazero as sz
from tests.cli.conftest import NET


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """The current folder, with net.py and a folder of pictures that its network has right."""
    (tmp_path / "net.py").write_text(NET)
    rng = np.random.default_rng(0)
    space: dict[str, object] = {}
    exec(NET, space)
    build = space["build"]
    import torch

    model = build()
    for number in range(12):
        pixels = rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)
        label = int(model(torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255).argmax())
        place = tmp_path / "photos" / ("ant", "bee", "cat", "dog")[label] / f"{number:02}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place)
    for name in ("ant", "bee", "cat", "dog"):
        (tmp_path / "photos" / name).mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_of_pictures(sigmazero, photos):
    done = sigmazero("attack", "--model", "net.py:build", "--data", "photos/", "--steps", 20, "--out", "res/")
    assert done.exit_code == 0, done.output
    assert "sigma-zero against net.py:build on photos" in done.stdout
    assert "photos holds 8-bit values: they were divided by 255" in done.stderr
    assert sz.load_result("res/result.npz").classes == ("ant", "bee", "cat", "dog")


def test_a_class_to_reach_by_its_name(sigmazero, photos):
    asked = ("attack", "--model", "net.py:build", "--data", "photos", "--steps", 20, "--out", "res.npz")
    done = sigmazero(*asked, "--target-class", "cat")
    assert done.exit_code == 0, done.output
    result = sz.load_result("res.npz")
    assert set(result.prediction[result.success].tolist()) == {2}
    wrong = sigmazero(*asked, "--target-class", "cow")
    assert "--target-class cow is no class; its names are ant, bee, cat, dog" in wrong.stderr


def test_an_attack_of_another_library_that_is_not_there(sigmazero, photos, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "foolbox", None)
    asked = ("attack", "--model", "net.py:build", "--data", "photos", "--attack", "foolbox:L0FMNAttack")
    done = sigmazero(*asked)
    assert done.exit_code != 0
    assert "foolbox" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
