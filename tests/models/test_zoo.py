import pytest

from sigmazero.models import zoo

MINIMAL = """
[X1]
title = "a model"
architecture = "smallcnn"
dataset = "mnist"
threat_model = "none"
input_size = [1, 28, 28]
source = "nowhere"
weights = [{ file = "x1.pt" }]
"""


def test_known_traps():
    c6, c7, i3 = (zoo.get(code) for code in ("C6", "C7", "I3"))
    assert (c6.robustbench, c6.threat_model) == ("Gowal2021Improving_70_16_ddpm_100m", "Linf")
    assert (c7.threat_model, c7.clean_accuracy) == ("L2", 90.83)
    assert i3.threat_model == "corruptions"
    assert "logarithm" in zoo.get("C8").note
    assert zoo.get("I5").input_size == (3, 288, 288)
    assert all(len(zoo.get(code).weights[0].sha256 or "") == 64 for code in ("M1", "M2", "prn18-linf", "resnet20"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[X1]", '[X1]\ncolour = "red"', "unknown key 'colour'"),
        ("[X1]", "[X1]\nmeen = [0.5]", r"unknown key 'meen'; did you mean 'mean'\?"),
        ("[X1]", '[X1]\nparameters = "many"', "parameters = 'many'"),
        ('dataset = "mnist"', 'dataset = "svhn"', "dataset = 'svhn'"),
        ("[1, 28, 28]", "[28, 28]", "input_size"),
        ('source = "nowhere"\n', "", "source is missing"),
        ('"x1.pt"', '"../x1.pt"', r"file = '\.\./x1\.pt'"),
        ('"x1.pt"', '"x1.pt", sha256 = "XYZ"', "sha256 = 'XYZ'"),
        ("[X1]", "X2 = 1\n[X1]", "zoo.toml:2: X2 = 1"),
    ],
)
def test_wrong_values_are_refused(old, new, message):
    with pytest.raises(ValueError, match=message):
        zoo.parse(MINIMAL.replace(old, new))
