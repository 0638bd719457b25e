"""What a result offers in a notebook."""

import io
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

import sigmazero as sz
from sigmazero.report.png import png

LABELS = torch.tensor([0, 1, 0, 1, 0])


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3))


@pytest.fixture(scope="module")
def images(model):
    x = torch.rand(5, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    return sz.get("sigma-zero", steps=20).run(model, x, model(x).argmax(1))


def test_repr_is_one_line_with_the_figures(images, model):
    assert repr(images).count("\n") == 0
    assert f"{len(images)} samples" in repr(images)
    assert f"median l0 {images.median_l0:g}" in repr(images)
    bounded = sz.get("pgd-l0", steps=5).run(model, images.x, model(images.x).argmax(1), budget=3)
    assert "within 3 features" in repr(bounded)
    assert "median" not in repr(bounded)
    assert repr(images.take(torch.tensor([], dtype=torch.int64))) == "<Result of 0 samples>"


def test_html_has_the_table_the_curve_and_examples_and_fetches_nothing(images):
    text = images._repr_html_()
    ElementTree.fromstring(text.replace("<br>", "").replace("&nbsp;", "").replace('alt="">', 'alt=""/>'))
    assert f"<td>{images.median_l0:g}" in text
    assert text.count("<img") == 2 * 4
    assert "<svg" in text
    assert not re.findall(r'(?:src|href)="(?!data:image/png)', text)
    assert "<img" not in replace(images, x=None)._repr_html_()
    assert "<svg" not in images.take(torch.tensor([], dtype=torch.int64))._repr_html_()


def test_rows_of_a_table_are_shown_in_words():
    model = torch.nn.Linear(3, 2).requires_grad_(False)
    model.weight.copy_(torch.tensor([[0.0, 3.0, 0.0], [0.0, 0.0, 3.0]]))
    model.bias.zero_()
    x = torch.tensor([[0.5, 1.0, 0.0], [0.25, 1.0, 0.0]])
    turned = torch.tensor([[0.5, 0.0, 1.0], [0.25, 1.0, 0.0]])
    result = sz.check(model, x, torch.zeros(2, dtype=torch.int64), turned)
    told = replace(result, x=x, names=("age", "job=cook", "job=<nurse>"), classes=("no", "yes"))._repr_html_()
    assert "<li>row 0, no → yes, 2 changed: job: cook → &lt;nurse&gt;</li>" in told
    assert told.count("<li>") == 1
    assert "age" not in told
    assert "median l0 ∞, mean ∞ features" in told
    assert str(result).splitlines()[0] == "1 of 2 samples is fooled; weakest: row 0, 2 values."


def test_own_png_is_what_others_read():
    from PIL import Image

    for channels in (1, 3):
        pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels), dtype=np.uint8)
        read = np.asarray(Image.open(io.BytesIO(png(pixels))))
        assert np.array_equal(read.reshape(pixels.shape), pixels)


@pytest.mark.parametrize("name", ["sigma-zero", "ead"])
def test_saved_and_loaded_it_is_the_same(tmp_path, images, model, name):
    x = images.x
    result = sz.get(name, steps=5).run(model, x, model(x).argmax(1), unit="pixel")
    if name == "ead":
        assert result.own is not None
    path = result.save(tmp_path / "r")
    assert path.name == "r.npz"
    assert_same(result, sz.load_result(path))


def assert_same(one, two):
    for each in fields(one):
        a, b = getattr(one, each.name), getattr(two, each.name)
        if isinstance(a, Tensor):
            assert torch.equal(a, b), each.name
            assert a.dtype == b.dtype, each.name
        elif each.name == "own" and a is not None:
            assert_same(a, b)
        else:
            assert a == b, each.name


def test_a_file_that_is_no_result_is_said(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros(3))
    with pytest.raises(ValueError, match=r"a\.npz is no result: it has no backwards"):
        sz.load_result(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_text("nothing")
    with pytest.raises(ValueError, match=r"b\.npz is no result, or a damaged one"):
        sz.load_result(tmp_path / "b.npz")


def test_frame_has_a_line_per_sample(images):
    frame = images.to_pandas()
    assert frame.index.tolist() == images.ids.tolist()
    assert frame.l0.tolist() == images.l0.tolist()
    assert set(frame.outcome) <= {outcome.name.lower() for outcome in sz.Outcome}


def test_plots_give_axes_that_show_the_facts(images):
    import matplotlib as mpl
    from matplotlib import pyplot

    mpl.use("agg")
    axis = images.plot_curve(label="one")
    assert axis.lines[0].get_ydata()[-1] == pytest.approx(100 * images.asr())
    assert images.plot_curve(axis, label="two") is axis
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["one", "two"]
    assert images.plot_examples(count=3).shape == (2, 3)
    named = replace(images, classes=("automobile", "aeroplane", "truck")).plot_examples(count=4)
    named[0, 0].figure.canvas.draw()
    places = [axis.xaxis.label.get_window_extent() for axis in named[1]]
    assert all(one.x1 < two.x0 for one, two in pairwise(places))
    drawn = images.plot_changes().images[0].get_array()
    changed = (images.x != images.x_adv)[images.success].double().mean(0).amax(0)
    assert np.allclose(drawn, 100 * changed.numpy())
    wrong = torch.where(images.success, sz.Outcome.ALREADY, images.outcome)
    wrong[0] = sz.Outcome.FOUND
    drawn = replace(images, outcome=wrong.to(images.outcome)).plot_changes().images[0].get_array()
    assert drawn.max() == 100  # of the one that was found; those wrong already have no changes to be shares of
    flat = replace(images, x=images.x.flatten(1), x_adv=images.x_adv.flatten(1))
    assert len(flat.plot_changes(count=7).patches) == 7
    pyplot.close("all")


def test_misuse_names_the_fix(images):
    unknown = replace(images, x=None)
    with pytest.raises(ValueError, match=r"pass them: result\.plot_examples\(x\)"):
        unknown.plot_examples()
    with pytest.raises(ValueError, match=r"x has shape \(2, 3, 4, 4\), the result is about \(5, 3, 4, 4\)"):
        unknown.plot_changes(images.x[:2])
    with pytest.raises(ValueError, match="are no images; use plot_changes"):
        replace(images, x=images.x.flatten(1), x_adv=images.x_adv.flatten(1)).plot_examples()
