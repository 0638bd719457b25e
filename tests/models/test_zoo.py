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


def test_files_are_unique_and_hashes_whole_where_we_have_the_file():
    files = [weight.file for entry in zoo.entries().values() for weight in entry.weights]
    assert len(files) == len(set(files))
    for code in ("M1", "M2", "prn18-linf", "resnet20"):
        assert len(zoo.get(code).weights[0].sha256 or "") == 64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('colour = "red"', "unknown key 'colour'"),
        ("meen = [0.5]", r"unknown key 'meen'; did you mean 'mean'\?"),
        ("mean = [0.5]", "mean and std come together"),
        ("mean = [0.5]\nstd = [0.0]", "std must be positive"),
        ("mean = 0.5\nstd = 0.5", "mean = 0.5"),
        ('parameters = "many"', "parameters = 'many'"),
        ("clean_accuracy = [1]", r"clean_accuracy = \[1\]"),
        ("drop = [1]", "drop.0 = 1"),
        ('bundled = "demo.pt"', "either weights .* or bundled"),
    ],
)
def test_wrong_tables_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        zoo.parse(MINIMAL + change + "\n")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('dataset = "mnist"', 'dataset = "svhn"', "dataset = 'svhn'"),
        ('architecture = "smallcnn"', 'architecture = "vgg"', "architecture is one of"),
        ("[1, 28, 28]", "[28, 28]", "input_size"),
        ('source = "nowhere"\n', "", "source is missing"),
        ('"x1.pt"', '"../x1.pt"', r"file = '\.\./x1\.pt'"),
        ('"x1.pt"', '"x1.pt", sha256 = "XYZ"', "sha256 = 'XYZ'"),
        ('"x1.pt"', '"x1.pt", hash = "0"', "unknown key 'hash'"),
        ("[X1]", "X2 = 1\n[X1]", "zoo.toml:2: X2 = 1"),
    ],
)
def test_wrong_values_are_refused(old, new, message):
    with pytest.raises(ValueError, match=message):
        zoo.parse(MINIMAL.replace(old, new))
