import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero.core.files import replacing
from sigmazero.store.results import save_result


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "file.txt"
    with replacing(path) as part:
        part.write_text("first")
        assert not path.exists()
    assert path.read_text() == "first"
    with pytest.raises(UnicodeEncodeError), replacing(path) as part, part.open("w", encoding="ascii") as file:
        file.write("second, and then \N{GREEK SMALL LETTER SIGMA}")
    assert path.read_text() == "first"
    assert [other.name for other in path.parent.iterdir()] == ["file.txt"]


def test_every_tensor_is_saved(tmp_path):
    x, y = torch.rand(3, 4), torch.tensor([0, 1, 0])
    result = sz.get("sigma-zero", steps=2).run(lambda x: x[:, :2], x, y)
    save_result(tmp_path / "r.npz", result, labels=y, targets=None)
    with np.load(tmp_path / "r.npz", allow_pickle=False) as saved:
        assert "targets" not in saved
        assert saved["labels"].tolist() == y.tolist()
        assert np.array_equal(saved["x_adv"], result.x_adv.numpy())
        assert np.array_equal(saved["outcome"], result.outcome.numpy())
