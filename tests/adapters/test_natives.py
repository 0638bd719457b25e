"""Our attacks as natives of other libraries: what comes out is what our own call gives."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import sigmazero as sz
from sigmazero.adapters import adv_lib, art, foolbox, secmlt, torchattacks

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of libraries that are not ours
STEPS = 30
FEW = {"sigma-zero": {"steps": STEPS}, "sigma-swap": {"queries": 3 * STEPS}}
BRIDGES = {"foolbox": foolbox, "torchattacks": torchattacks, "art": art, "secml-torch": secmlt}


KNOWN: dict[str, sz.Result] = {}


def ours(subject, name, options, **how):
    """Our own call, made once."""
    key = f"{name} {options} {how}"
    if key not in KNOWN:
        KNOWN[key] = sz.get(name, **options).run(subject.model, subject.x, subject.y, **how)
    return KNOWN[key]


def same(found, expected):
    """The points are equal, and so are success and l0."""
    found = torch.as_tensor(found)
    assert torch.equal(found, expected.x_adv)
    assert expected.success.sum() > len(expected) / 2  # or the test would say little


def in_foolbox(peer, subject, name, options, targets=None):
    library = peer("foolbox")
    fmodel = library.PyTorchModel(subject.model, bounds=(0, 1))
    criterion = subject.y if targets is None else library.criteria.TargetedMisclassification(targets)
    raw, clipped, is_adv = foolbox.wrap(name, **options)(fmodel, subject.x, criterion, epsilons=None)
    assert torch.equal(raw, clipped)
    return raw, is_adv


def in_torchattacks(peer, subject, name, options, targets=None):
    peer("torchattacks")
    attack = torchattacks.wrap(name, subject.model, **options)
    if targets is not None:
        attack.set_mode_targeted_by_label(quiet=True)
    return attack(subject.x, subject.y if targets is None else targets), None


def in_art(peer, subject, name, options, targets=None):
    made = peer("art", "estimators.classification").PyTorchClassifier
    loss, shape = torch.nn.CrossEntropyLoss(), tuple(subject.x.shape[1:])
    classifier = made(subject.model, loss=loss, input_shape=shape, nb_classes=10, clip_values=(0, 1), device_type="cpu")
    attack = art.wrap(name, classifier, targeted=targets is not None, **options)
    labels = subject.y if targets is None else targets
    return attack.generate(subject.x.numpy(), np.eye(10)[labels.numpy()]), None


def in_secmlt(peer, subject, name, options, targets=None):
    peer("secml-torch", "adv.evasion.base_evasion_attack")
    attack = secmlt.wrap(name, y_target=None if targets is None else int(targets[0]), **options)
    loader = attack(subject.model, DataLoader(TensorDataset(subject.x, subject.y), batch_size=len(subject.x)))
    return torch.cat([x for x, _ in loader]), None


def in_adv_lib(peer, subject, name, options, targets=None):
    del peer
    labels = subject.y if targets is None else targets
    return adv_lib.run(name, subject.model, subject.x, labels, targeted=targets is not None, **options), None


WAYS = {
    "foolbox": in_foolbox,
    "torchattacks": in_torchattacks,
    "art": in_art,
    "secml-torch": in_secmlt,
    "adv-lib": in_adv_lib,
}


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("way", WAYS)
def test_the_same_points(peer, subject, way, name):
    found, is_adv = WAYS[way](peer, subject, name, FEW[name])
    expected = ours(subject, name, FEW[name])
    same(found, expected)
    if is_adv is not None:
        assert torch.equal(is_adv, expected.success)


@pytest.mark.parametrize("way", WAYS)
def test_targets(peer, subject, way):
    targets = torch.full_like(subject.y, 3)
    found, _ = WAYS[way](peer, subject, "sigma-zero", FEW["sigma-zero"], targets)
    same(found, sz.get("sigma-zero", steps=STEPS).run(subject.model, subject.x, targets, targeted=True))


def test_foolbox_budgets(peer, subject):
    """Epsilons are numbers of changes; the smallest is the budget if all are numbers."""
    fmodel = peer("foolbox").PyTorchModel(subject.model, bounds=(0, 1))
    attack = foolbox.SigmaZero(steps=STEPS)
    _, clipped, is_adv = attack(fmodel, subject.x, subject.y, epsilons=[5, 15, None])
    free = ours(subject, "sigma-zero", FEW["sigma-zero"])
    for row, epsilon in zip(is_adv, (5, 15, float("inf")), strict=True):
        assert torch.equal(row, free.success & (free.l0 <= epsilon))
    assert ((clipped[0] != subject.x).flatten(1).sum(1) <= 5).all()
    raw, _, is_adv = attack(fmodel, subject.x, subject.y, epsilons=[15, 25])
    assert torch.equal(raw[0], ours(subject, "sigma-zero", FEW["sigma-zero"], budget=15).x_adv)
    fixed = foolbox.SparseRs(steps=50)
    _, clipped, is_adv = fixed(fmodel, subject.x[:4], subject.y[:4], epsilons=40)
    expected = sz.get("sparse-rs", steps=50).run(subject.model, subject.x[:4], subject.y[:4], budget=40)
    assert torch.equal(clipped, expected.x_adv)
    assert torch.equal(is_adv, expected.success)


class Normalised(torch.nn.Module):
    """A network that takes normalised inputs, with a dropout layer that somebody has in eval mode on purpose."""

    def __init__(self, inner, mean, std):
        super().__init__()
        self.inner, self.mean, self.std, self.frozen = inner, mean, std, torch.nn.Dropout(0.9)

    def forward(self, x):
        return self.frozen(self.inner(x * self.std + self.mean))


def test_torchattacks_normalisation_and_modes(peer, subject):
    peer("torchattacks")
    model = Normalised(subject.model, 0.1307, 0.3081).train()
    model.inner.eval()
    modes = {name: module.training for name, module in model.named_modules()}
    attack = torchattacks.SigmaZero(model, steps=STEPS)
    attack.set_normalization_used([0.1307], [0.3081])
    x = (subject.x - 0.1307) / 0.3081
    adv = attack(x, subject.y)
    assert {name: module.training for name, module in model.named_modules()} == modes
    changes = (adv != x).flatten(1).sum(1)
    expected = ours(subject, "sigma-zero", FEW["sigma-zero"])
    found = model.eval()(adv).argmax(1) != subject.y
    assert torch.equal(found, expected.success)
    apart = changes[found].float().mean() - expected.l0[found].mean()
    assert abs(float(apart)) < 2  # a way to [0, 1] and back would change 4 features more


def test_torchattacks_targets_by_mode(peer, subject):
    library = peer("torchattacks")
    attack = torchattacks.SigmaZero(subject.model, steps=STEPS)
    attack.set_mode_targeted_by_function(lambda images, labels: (labels + 1) % 10, quiet=True)
    goal = (subject.y + 1) % 10
    same(
        attack(subject.x, subject.y),
        sz.get("sigma-zero", steps=STEPS).run(subject.model, subject.x, goal, targeted=True),
    )
    for choose in (attack.set_mode_targeted_random, attack.set_mode_targeted_least_likely):
        choose(quiet=True)
        adv = attack(subject.x[:4], subject.y[:4])
        hit = (adv != subject.x[:4]).flatten(1).any(1)
        assert hit.any()
        assert (subject.model(adv[hit]).argmax(1) != subject.y[:4][hit]).all()
    few = torchattacks.Fmn(subject.model, steps=3)
    both = library.MultiAttack([few, torchattacks.SigmaZero(subject.model, steps=STEPS)])
    assert (subject.model(both(subject.x, subject.y)).argmax(1) != subject.y).float().mean() > 0.5


def test_art_any_classifier(peer, subject):
    """A classifier without gradients runs what needs scores alone; a mask and other labels are honoured."""
    made = peer("art", "estimators.classification").BlackBoxClassifier
    answer = lambda x: subject.model(torch.as_tensor(x)).detach().numpy()  # noqa: E731
    classifier = made(answer, tuple(subject.x.shape[1:]), 10, clip_values=(0, 1))
    x, mask = subject.x[:3].numpy(), np.ones(subject.x.shape[1:])
    mask[:, :14] = 0
    adv = art.SparseRsMin(classifier, steps=60).generate(x, mask=mask)
    assert (adv[:, :, :14] == x[:, :, :14]).all()
    assert (adv != x).any()
    with pytest.raises((TypeError, ValueError), match="gradient"):
        art.SigmaZero(classifier, steps=3).generate(x)


def test_secmlt_trackers(peer, subject):
    peer("secml-torch", "adv.evasion.base_evasion_attack")
    tracker = peer("secml-torch", "trackers").PredictionTracker()
    attack = secmlt.SigmaZero(steps=5, trackers=tracker)
    list(attack(subject.model, DataLoader(TensorDataset(subject.x, subject.y), batch_size=20), stream=True))
    assert tracker.get().shape[0] == len(subject.x)
