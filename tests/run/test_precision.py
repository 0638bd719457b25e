"""Numbers of the caller: they are read and restored whichever way they were set, and a success holds in both kinds."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import sigmazero as sz
from sigmazero.core.inputs import make_problem
from sigmazero.core.result import Outcome
from sigmazero.run import Hardware, Session
from sigmazero.run.precision import Numbers, Settings, strictly

COARSE = Numbers("cpu", conv="tf32", rnn="tf32")
STRICT = Numbers.strict("cpu")


@pytest.fixture(autouse=True)
def own_flags() -> Iterator[None]:
    before, general = Settings.read(), getattr(torch.backends, "fp32_precision")  # noqa: B009 - unknown to torch's types
    yield
    setattr(torch.backends, "fp32_precision", general)  # noqa: B010
    torch.backends.cudnn.fp32_precision = "none"
    before.write()
    assert Settings.read() == before


@pytest.fixture
def as_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flags of CUDA devices count on the processor; torch's default is TF32 for convolutions, as there."""
    monkeypatch.setattr("sigmazero.run.precision.BACKENDS", {"cpu": "cuda"})


def use(statement: str) -> None:
    exec(f"import torch; {statement}")


WAYS = {
    "pass": "conv-tf32",
    "torch.backends.cudnn.allow_tf32 = False": "fp32",
    "torch.set_float32_matmul_precision('high')": "tf32",
    "torch.set_float32_matmul_precision('high'); torch.backends.cudnn.allow_tf32 = False": "matmul-tf32",
    "torch.backends.fp32_precision = 'tf32'": "tf32",
    "torch.backends.cudnn.conv.fp32_precision = 'ieee'": "rnn-tf32",
    "torch.backends.cudnn.rnn.fp32_precision = 'ieee'": "conv-tf32+rnn-ieee",
    "torch.backends.cudnn.allow_tf32 = False; torch.backends.cuda.matmul.fp32_precision = 'tf32'": "matmul-tf32",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wanted", ["fp32", "tf32", "conv-tf32"])
def test_flags_are_read_set_and_put_back_whichever_way_they_were_set(way, wanted):
    use(way)
    before = Settings.read()
    assert Numbers.current("cuda").name == WAYS[way]
    target = Numbers.from_name(wanted, "cuda")
    with target.applied():
        assert Numbers.current("cuda") == target
        if before.cudnn is not None and before.matmul is not None:
            # Where the older flags could be read they still can: torch itself reads them when it compiles.
            assert torch.backends.cudnn.allow_tf32 == (target.conv == "tf32")
            assert torch.backends.cuda.matmul.allow_tf32 == (target.matmul == "tf32")
    assert Settings.read() == before


@pytest.mark.parametrize("name", ["", "fp16", "conv", "autocast-bfloat17", "conv-tf32+fp32"])
def test_names_of_settings_lead_back(name):
    for known in ("fp32", "tf32", "conv-tf32", "matmul-tf32+autocast-bfloat16", "rnn-tf32"):
        assert Numbers.from_name(known, "cuda").name == known
    with pytest.raises(ValueError, match="not a name of float32 settings"):
        Numbers.from_name(name, "cuda")


class Rounding(nn.Module):
    """A network whose input is rounded to eight bits where convolutions may use TF32; the gradient passes by."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x: Tensor) -> Tensor:
        if torch.backends.cudnn.allow_tf32:
            x = x + ((x * 256).round() / 256 - x).detach()
        answer: Tensor = self.net(x)
        return answer


def question(n: int = 100) -> tuple[Rounding, Tensor, Tensor]:
    net = Rounding()
    x = torch.rand(n, 16, generator=torch.Generator().manual_seed(1))
    with STRICT.applied():
        return net, x, net(x).argmax(1)


def wrong_in(net: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
    found = []
    for each in (COARSE, STRICT):
        with each.applied(), torch.no_grad():
            found.append(net(x).argmax(1) != y)
    return found


@pytest.mark.parametrize("precision", [None, "fp32"])
def test_every_success_holds_in_both_numbers(as_on_cuda, precision):
    net, x, y = question()
    flags = Settings.read()
    result = sz.get("sigma-zero", steps=100).run(net, x, y, hardware=sz.Hardware(precision=precision))
    assert Settings.read() == flags
    coarse, strict = wrong_in(net, result.x_adv, y)
    assert (coarse & strict)[result.success].all()
    assert result.success.float().mean() > 0.9
    # The search aims beyond the goal by what the formats may disagree: almost nothing it finds fails in one of them.
    assert int(result.given_up.sum()) <= 2
    assert (result.forwards == 100 + 2 + 2).float().mean() > 0.95  # clean check and verification ask in both formats
    # In strict numbers alone some of the points would have been believed.
    with STRICT.applied():
        alone = sz.get("sigma-zero", steps=100).run(net, x, y)
    assert not wrong_in(net, alone.x_adv, y)[0][alone.success].all()


def test_the_search_computes_as_the_caller_does(as_on_cuda):
    seen: dict[str | None, set[bool]] = {}

    class Watching(Rounding):
        def forward(self, x: Tensor) -> Tensor:
            if x.requires_grad:
                seen.setdefault(name, set()).add(torch.backends.cudnn.allow_tf32)
            return super().forward(x)

    x = torch.rand(4, 16)
    for name in (None, "fp32", "tf32"):
        sz.get("sigma-zero", steps=3).run(
            Watching(), x, torch.zeros(4, dtype=torch.int64), hardware=sz.Hardware(precision=name)
        )
    assert seen == {None: {True}, "fp32": {False}, "tf32": {True}}


@pytest.mark.parametrize(("name", "precision"), [("sigma-zero", None), ("sigma-zero", "fp32"), ("sigma-swap", None)])
def test_clean_inputs_that_are_wrong_in_one_kind_of_numbers_are_searched(as_on_cuda, name, precision):
    def wavering(x: Tensor) -> Tensor:
        """Wrong about the first input in TF32, about the second in fp32, about the third in both."""
        coarse = torch.backends.cudnn.allow_tf32
        wrong = x[:, 0] > 0.8
        wrong |= (x[:, 1] > 0.8) if coarse else (x[:, 2] > 0.8)
        own = torch.where(wrong, -0.1, 0.1)
        return torch.stack([own, torch.zeros_like(own)], 1) + 5 * torch.stack([0 * x[:, 3], (x[:, 3] - 0.5)], 1)

    x = torch.tensor([[0.1, 0.9, 0.1, 0.5], [0.1, 0.1, 0.9, 0.5], [0.9, 0.1, 0.1, 0.5], [0.1, 0.1, 0.1, 0.5]])
    result = sz.get(name, steps=60).run(
        wavering, x, torch.zeros(4, dtype=torch.int64), hardware=sz.Hardware(precision=precision)
    )
    assert result.outcome.tolist() == [Outcome.FOUND, Outcome.FOUND, Outcome.ALREADY, Outcome.FOUND]
    assert result.forwards[2] == 2  # both answers about the clean input
    assert (result.x_adv[:, 3] > 0.5)[torch.tensor([0, 1, 3])].all()


def test_between_batches_and_after_errors_the_numbers_are_the_callers(as_on_cuda):
    net, x, y = question(6)
    flags = Settings.read()
    session = Session(sz.get("sigma-zero", steps=5), net, Hardware("fp32"), batch_size=2)
    for _ in session.batches(make_problem(x, y)):
        assert Settings.read() == flags

    def failing(x: Tensor) -> Tensor:
        if x.requires_grad:
            raise KeyError("on purpose")
        answer: Tensor = net(x)
        return answer

    with pytest.raises(KeyError):
        sz.get("sigma-zero", steps=5).run(failing, x, y, hardware=sz.Hardware(precision="fp32"))
    assert Settings.read() == flags
    with pytest.raises(KeyError), strictly(net, x.device):
        raise KeyError
    assert Settings.read() == flags
