from dataclasses import replace

import numpy as np
import pytest
import torch

import sigmazero as sz


def test_names_are_kept(tmp_path):
    class Named(torch.nn.Linear):
        classes = ("no", "yes")

    model = Named(3, 2)
    x = torch.rand(4, 3, generator=torch.Generator().manual_seed(0))
    space = sz.Space(names=["age", "income", "debt"])
    result = sz.get("sigma-zero", steps=5).run(model, x, model(x).argmax(1), space=space)
    assert (result.classes, result.names) == (("no", "yes"), ("age", "income", "debt"))
    assert [result.class_name(number) for number in (1, 7)] == ["yes", "7"]
    again = sz.load_result(result.save(tmp_path / "r"))
    assert (again.classes, again.names) == (result.classes, result.names)
    assert sz.load_result(replace(result, classes=None, names=None).save(tmp_path / "s")).classes is None
    with np.load(tmp_path / "r.npz") as file:
        np.savez(tmp_path / "t.npz", **{**file, "about": np.array([1, 2], dtype=np.uint8)})
    with pytest.raises(ValueError, match="no result, or a damaged one"):
        sz.load_result(tmp_path / "t.npz")


def test_what_is_no_result_is_named_with_the_fix(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nope\.npz: no such file; name a file that Result\.save"):
        sz.load_result(tmp_path / "nope.npz")
    np.savez(tmp_path / "i.npz", images=np.zeros((2, 3)), labels=np.arange(2), names=np.array(["age", "gain", "sex"]))
    with pytest.raises(ValueError, match=r"i\.npz is no result: it has no backwards; .*sz\.data\.load"):
        sz.load_result(tmp_path / "i.npz")
