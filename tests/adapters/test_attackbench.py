"""AttackBench runs our attacks; its counts are ours, and its limit of queries costs no success."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import sigmazero as sz
from sigmazero.adapters import attackbench
from sigmazero.adapters._natives import configure
from tests.adapters.conftest import subject_named

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
ROWS, LIMIT = 4, 120


@pytest.mark.parametrize("name", ["sigma-zero", "sigma-swap"])
@pytest.mark.parametrize("network", ["M1", "M2"])
def test_counts_agree(peer, network, name):
    library = peer("attackbench")
    subject = subject_named(network, ROWS)
    attack = getattr(attackbench, name.replace("-", "_"))
    loader = DataLoader(TensorDataset(subject.x, subject.y), batch_size=1)
    how = {"device": torch.device("cpu"), "query_budget": LIMIT, "debug": True}
    found = library.run_attack(subject.model, loader, attack, "l0", **how)
    limited = attackbench.within(configure(name, {}), LIMIT).attack
    pairs = zip(subject.x, subject.y, strict=True)
    expected = [limited.run(subject.model, x[None], y[None], hardware=sz.Hardware(prepare="none")) for x, y in pairs]
    ours = sz.Result.join(expected)
    assert found["num_forwards"] == ours.forwards.tolist()
    assert found["num_backwards"] == ours.backwards.tolist()
    assert found["adv_success"] == ours.success.tolist()
    assert found["final_distances"]["l0"] == ours.l0.tolist()
    assert max(map(sum, zip(found["num_forwards"], found["num_backwards"], strict=True))) <= LIMIT
    assert (found["metadata"]["attack_name"], found["metadata"]["attack_lib"]) == (name.replace("-", "_"), "sigmazero")
