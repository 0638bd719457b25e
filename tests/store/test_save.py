import numpy as np
import torch

import sigmazero as sz
from sigmazero.store.results import save_result


def test_every_tensor_is_saved(tmp_path):
    x, y = torch.rand(3, 4), torch.tensor([0, 1, 0])
    result = sz.get("sigma-zero", steps=2).run(lambda x: x[:, :2], x, y)
    save_result(tmp_path / "r.npz", result, labels=y, targets=None)
    with np.load(tmp_path / "r.npz", allow_pickle=False) as saved:
        assert "targets" not in saved
        assert saved["labels"].tolist() == y.tolist()
        assert np.array_equal(saved["x_adv"], result.x_adv.numpy())
        assert np.array_equal(saved["outcome"], result.outcome.numpy())
