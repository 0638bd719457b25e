"""What makes a result doubtful is said by every door of Python, and asked for by none of them."""

import pytest
import torch
from torch import Tensor, nn

import sigmazero as sz

X = torch.rand(8, 1, 4, 4, generator=torch.Generator().manual_seed(0))


class Linear(nn.Module):
    """A linear model that counts its calls; it may round its inputs, or add noise to its answers."""

    def __init__(self, rounds: bool = False, noise: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 3, generator=torch.Generator().manual_seed(2)))
        self.rounds, self.noise, self.asked = rounds, noise, 0

    def forward(self, x: Tensor) -> Tensor:
        self.asked += len(x)
        logits = (x.round() if self.rounds else x).flatten(1) @ self.weight
        return logits + self.noise * torch.randn_like(logits)


def _labels(net: Linear) -> Tensor:
    labels = ((X.round() if net.rounds else X).flatten(1) @ net.weight).argmax(1)
    return labels.detach()


@pytest.mark.parametrize(
    ("net", "code", "said"),
    [
        (Linear(rounds=True), "SZ004", "8 of 8 rows (100%) had no gradient at all"),
        (Linear(noise=0.1), "SZ003", "answered differently within one run"),
    ],
    ids=["masked", "random"],
)
def test_a_run_warns_of_what_it_saw_and_its_result_keeps_it(net, code, said, tmp_path):
    with pytest.warns(UserWarning, match=code):
        result = sz.get("sigma-zero", steps=30).run(net, X, _labels(net), batch_size=4)
    assert [each.code for each in result.findings] == [code]
    assert said in str(result)
    assert f"{code}: doubtful" in repr(result)
    assert result.take(torch.tensor([0])).findings == result.findings
    assert sz.load_result(result.save(tmp_path / "kept")).findings == result.findings
