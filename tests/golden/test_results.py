"""Results of every attack change only with its version.

`results/NAME.npz` has the counts of every setting, and the changed features of its points, as an attack of this version
found them. If a change is meant, raise `version` of the attack, then run `pytest tests/golden --update-golden NAME`.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import sigmazero as sz
from tests.helpers.networks import Linear, TinyNet

FOLDER = Path(__file__).parent / "results"
NAMES = sorted(sz.ATTACKS)
COLUMNS = ("l0", "l0_pixel", "cost", "success", "outcome", "forwards", "backwards", "step_found", "own_l0")
ROWS = 6
NEAR = 1e-9  # on another processor points differ by less than 1e-12
# A step of some solves a problem, is taken again in nine rounds, asks many times, or is a run of another method; others
# find little in 15 steps.
STEPS = {"bb": 4, "bb-dataset": 4, "ead": 3, "ead-paper": 3, "genetic": 5, "corner": 9, "corner-at": 9}
STEPS |= dict.fromkeys(("fmn", "label-swap", "sparse-rs", "sparse-rs-inner", "sparse-rs-min"), 40)
STEPS |= {"query-swap": 90}  # 37 of them are a look at all sites
STEPS |= {"sparsefool": 4, "sparsefool-paper": 4, "vfga": 6, "pgd-l0": 4, "sigma-swap": 60, "swap-search": 25}
FEW = {"bb": {"directions": 60, "blends": 60}, "sparsefool-paper": {"inner_steps": 3}}
Setting = tuple[torch.nn.Module, Tensor, Tensor, dict[str, Any]]


def tiny(kind: str, **options: Any) -> Setting:
    net = TinyNet(kind)
    return net, net.x, net.y, options


def masked() -> Setting:
    mask = torch.zeros(1, 8, 8, dtype=torch.bool)
    mask[:, 1:, ::2] = True
    return tiny("conv", mask=mask)


def targeted() -> Setting:
    """The last sample is at its target already."""
    net = TinyNet("rgb")
    return net, net.x, (net.y + 1) % 4, {"targeted": True}


def flat() -> Setting:
    """The model is wrong about the last sample, and one feature alone may change in the sample before."""
    model = Linear((16,), seed=3)
    x = torch.rand(ROWS, 16, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    y = model(x).argmax(1)
    y[-1] = (y[-1] + 1) % 4
    mask = torch.ones(ROWS, 16, dtype=torch.bool)
    mask[-2, 1:] = False
    return model, x, y, {"mask": mask}


def mixed() -> Setting:
    """Whole numbers, switches that only go on, a finite set, categories, real numbers that are dear."""
    model = Linear((12,), seed=5)
    g = torch.Generator().manual_seed(6)
    x = torch.rand(ROWS, 12, generator=g, dtype=torch.float64)
    x[:, :3] = (9 * x[:, :3]).round()
    x[:, 3:5] = (x[:, 3:5] > 0.7).double()
    x[:, 5] = torch.tensor([0.0, 0.25, 1.0])[torch.randint(3, (ROWS,), generator=g)]
    x[:, 6:9] = torch.eye(3)[torch.randint(3, (ROWS,), generator=g)]
    space = sz.Space(
        kind={0: "integer", 1: "integer", 2: "integer", **dict.fromkeys((3, 4, 6, 7, 8), "binary")},
        upper=dict.fromkeys((0, 1, 2), 9),
        values={5: [0.0, 0.25, 1.0]},
        direction={3: "up", 4: "up", 2: "down"},
        one_hot={"category": [6, 7, 8]},
        cost={0: 2, 9: 4, 10: 4, 11: 0.5},
        around={1: 3},
    )
    return model, x, model(x).argmax(1), {"space": space}


def eight_bits() -> Setting:
    net = TinyNet("conv")
    x = (net.x * 255).round() / 255
    return net, x, net(x).argmax(1), {"space": sz.Space.image8()}


SETTINGS: dict[str, Callable[[], Setting]] = {
    "box": lambda: tiny("conv"),
    "channels": lambda: tiny("rgb"),
    "pixel": lambda: tiny("rgb", unit="pixel"),
    "mask": masked,
    "targeted": targeted,
    "bounds": lambda: tiny("rgb", bounds=(-1.0, 3.0)),
    "budget": lambda: tiny("conv", budget=5),
    "seed": lambda: tiny("conv", seed=1),
    "flat": flat,
    "mixed": mixed,
    "eight-bits": eight_bits,
}
SETTING = {name: cache(make) for name, make in SETTINGS.items()}
LEFT_OUT = {
    "corner": ("eight-bits",),  # it tries each of 16,384 single changes
    "corner-at": ("eight-bits",),
}


def settings_of(attack: sz.Attack) -> list[str]:
    """Return the settings that an attack can answer in a moment."""
    cannot = {*([] if attack.spaces else ["mixed", "eight-bits"]), *LEFT_OUT.get(attack.name, ())}
    cannot |= set() if "targeted" in attack.goals else {"targeted"}
    return [name for name in SETTINGS if name not in cannot]


def few_steps(name: str) -> sz.Attack:
    return sz.get(name, steps=STEPS.get(name, 15), **FEW.get(name, {}))


def run(attack: sz.Attack, setting: str) -> sz.Result:
    """Attack the samples of a setting; attacks with a fixed budget have four changes where it gives none."""
    model, x, y, options = SETTING[setting]()
    usual: dict[str, Any] = {"budget": 4} if attack.kind == "budget" else {}
    return attack.run(model, x, y, batch_size=4, hardware=sz.Hardware(prepare="none"), **usual | options)


def measured(attack: sz.Attack) -> dict[str, Any]:
    """Return all that a file of results holds."""
    names, counts, places, values = settings_of(attack), [], [], []
    for i, setting in enumerate(names):
        result = run(attack, setting)
        own = result if result.own is None else result.own
        arrays = {column: getattr(result, column) for column in COLUMNS[:-1]} | {"own_l0": own.l0}
        counts.append(torch.stack([arrays[column].double() for column in COLUMNS], 1))
        changed = result.x_adv != SETTING[setting]()[1]
        row, feature = changed.flatten(1).nonzero().unbind(1)
        places.append(torch.stack([torch.full_like(row, i), row, feature], 1))
        values.append(result.x_adv[changed])
    return {
        "version": np.array(attack.version),
        "settings": np.array(names),
        "counts": torch.stack(counts).numpy(),
        "places": torch.cat(places).to(torch.uint8).numpy(),
        "values": torch.cat(values).numpy(),
    }


def stored(name: str, folder: Path) -> dict[str, Any]:
    file = folder / f"{name}.npz"
    assert file.exists(), f"{name} has no golden results; write them: pytest tests/golden --update-golden {name}"
    with np.load(file) as arrays:
        return dict(arrays)


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return a line for each count, and for each setting's points, that are not the stored ones."""
    names = new["settings"].tolist()
    if old["settings"].tolist() != names:
        return [f"the settings are {names}, those stored {old['settings'].tolist()}"]
    found = []
    for i, setting in enumerate(names):
        for column, before, now in zip(COLUMNS, old["counts"][i].T, new["counts"][i].T, strict=True):
            if not np.array_equal(before, now):
                found.append(f"{setting}: {column} is {now.tolist()}, was {before.tolist()}")
        (where, before), (there, now) = (
            (each["places"][each["places"][:, 0] == i], each["values"][each["places"][:, 0] == i])
            for each in (old, new)
        )
        if not np.array_equal(where, there):
            rows = sorted({row for _, row, _ in {*map(tuple, where.tolist())} ^ {*map(tuple, there.tolist())}})
            found.append(f"{setting}: x_adv changes other features in rows {rows}")
        elif len(now) and (apart := np.abs(now - before)).max() > NEAR:
            found.append(
                f"{setting}: x_adv differs by {apart.max():.1e} in rows {np.unique(where[apart > NEAR, 1]).tolist()}"
            )
    return found


def compare(attack: sz.Attack, folder: Path) -> None:
    """Fail where results are not those of the attack's version."""
    name, old = attack.name, stored(attack.name, folder)
    write = f"pytest tests/golden --update-golden {name}"
    version = int(old["version"])
    assert version == attack.version, f"results of {name} are of version {version}, it is {attack.version}: {write}"
    lines = differences(old, measured(attack))
    advice = f"if that is meant, raise `version` of {name} to {version + 1}, then {write}"
    assert not lines, "\n".join([f"{name} has other results than version {version} had:", *lines, advice])


def update(attack: sz.Attack, folder: Path) -> None:
    """Write the results of an attack, unless there are some of its version already."""
    name = attack.name
    file = folder / f"{name}.npz"
    if file.exists() and attack.version <= (version := int(stored(name, folder)["version"])):
        raise ValueError(f"{name} has results of version {version} and is version {attack.version}: raise it first")
    np.savez_compressed(file, **measured(attack))


@pytest.mark.parametrize("name", NAMES)
def test_results_change_only_with_the_version(name, request):
    attack = few_steps(name)
    if name in (request.config.getoption("--update-golden") or ()):
        update(attack, FOLDER)
    compare(attack, FOLDER)


def test_every_file_belongs_to_an_attack(request):
    assert sorted(file.stem for file in FOLDER.glob("*.npz")) == NAMES
    assert set(request.config.getoption("--update-golden") or ()) <= set(NAMES)


def test_settings_show_every_outcome_that_a_search_has():
    """Else a change of what they mean would go unseen."""
    seen = {
        int(outcome)
        for name in NAMES
        for outcome in stored(name, FOLDER)["counts"][:, :, COLUMNS.index("outcome")].flat
    }
    wanted = ("FOUND", "ALREADY", "NOT_FOUND", "BEYOND_BUDGET", "NO_START")
    assert seen >= {sz.Outcome[name] for name in wanted}


def test_results_of_the_same_version_are_not_overwritten(tmp_path):
    attack = few_steps("saliency")
    with pytest.raises(AssertionError, match="--update-golden saliency"):
        compare(attack, tmp_path)
    update(attack, tmp_path)
    compare(attack, tmp_path)
    held = (tmp_path / "saliency.npz").read_bytes()
    with pytest.raises(ValueError, match=f"version {attack.version}"):
        update(attack, tmp_path)
    assert (tmp_path / "saliency.npz").read_bytes() == held

    class Newer(type(attack)):
        version = attack.version + 1

    newer = Newer(**attack.parameters())
    with pytest.raises(AssertionError, match=f"version {attack.version}.*{newer.version}"):
        compare(newer, tmp_path)
    update(newer, tmp_path)
    assert stored("saliency", tmp_path)["version"] == newer.version
    with pytest.raises(
        AssertionError, match=r"(?s)box: forwards is .*raise `version` of saliency to .*--update-golden"
    ):
        compare(Newer(**attack.parameters() | {"steps": 1}), tmp_path)


@pytest.mark.parametrize(
    ("array", "place", "by", "words"),
    [
        ("counts", (0, 1, COLUMNS.index("forwards")), 1, "box: forwards is "),
        ("counts", (2, 0, COLUMNS.index("l0")), -1, "pixel: l0 is "),
        ("values", 0, 1e-8, "box: x_adv differs by 1.0e-08 in rows [0]"),
        ("places", (0, 2), 1, "box: x_adv changes other features in rows [0]"),
        ("values", slice(None), 1e-12, None),
    ],
)
def test_changes_are_named_and_rounding_is_none(array, place, by, words):
    held, altered = stored("corner", FOLDER), stored("corner", FOLDER)
    altered[array][place] += by
    lines = differences(held, altered)
    assert len(lines) == (words is not None)
    assert all(line.startswith(words) for line in lines)
