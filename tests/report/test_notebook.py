"""What a result offers in a notebook; tests/judge has the numbers and pixels."""

import re
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
import torch

import sigmazero as sz

mpl.use("agg")


@pytest.fixture(scope="module")
def images():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3))
    x = torch.rand(5, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    return sz.get("sigma-zero", steps=20).run(model, x, model(x).argmax(1))


def test_a_cascade_and_a_verdict_show_their_attacks_and_samples():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3)).requires_grad_(False)
    x = torch.rand(5, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    verdict = sz.gate(model, (x, model(x).argmax(1)), eps=40, at_least=0.5, version="quick", doctor=False)
    for shown, headline in ((verdict.result, verdict.result.headline), (verdict, str(verdict))):
        text = shown._repr_html_()
        ElementTree.fromstring(re.sub(r"(<img[^>]*)>", r"\1/>", text))
        assert headline in unescape(text)
        assert {"sigma-swap", "sparse-rs"} <= set(re.findall(r">([^<]+)</t[hd]>", text))
        assert text.count("<img") == 1
    assert "<img" not in type(verdict).model_validate_json(verdict.to_json())._repr_html_()


def test_what_a_result_does_not_know_is_left_out(images):
    """Neither the true classes nor the goal are in a result, so there is no clean accuracy."""
    cells = re.findall(r">([^<]*)</t[hd]>", unescape(images._repr_html_()))
    assert "clean accuracy" not in cells
    assert "–" not in cells
    assert cells[cells.index("already wrong") + 1] == "0.0 %"


def test_plot_is_plot_curve(images):
    assert images.plot(label="mine").get_legend().get_texts()[0].get_text() == "mine"


def test_misuse_names_the_value(images):
    unknown = replace(images, x=None)
    with pytest.raises(ValueError, match="plot_examples"):
        unknown.plot_examples()
    with pytest.raises(ValueError, match=r"\(2, 3, 4, 4\)"):
        unknown.plot_changes(images.x[:2])
    with pytest.raises(ValueError, match=r"\(48,\)"):
        replace(images, x=images.x.flatten(1), x_adv=images.x_adv.flatten(1)).plot_examples()
