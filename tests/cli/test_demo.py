"""`sigmazero demo`, and from a bare CSV file to an attack in three commands."""

from pathlib import Path

PEOPLE = [f"{20 + k % 40},{('cook', 'nurse')[k % 2]},{('no', 'yes')[k % 2]}" for k in range(40)]
CSV = "\n".join(["age,job,loan", *PEOPLE])
NET = """
import torch

def build():
    model = torch.nn.Linear(3, 2)
    model.weight.data, model.bias.data = torch.tensor([[0.0, 1, 0], [0.0, 0, 1]]), torch.zeros(2)
    return model
"""


def test_from_a_bare_file_to_an_attack(sigmazero, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("loans.csv").write_text(CSV)
    Path("net.py").write_text(NET)
    attack = ("attack", "net.py:build", "loans.csv", "--attack", "corner", "--rows", "0:2")
    done = sigmazero(*attack)
    assert done.exit_code == 2
    assert "sigmazero space draft loans.csv > loans.toml" in done.stderr
    Path("loans.toml").touch()  # as a shell does for `> loans.toml`
    drafted = sigmazero("space", "draft", "loans.csv")
    assert drafted.exit_code == 0, drafted.stderr
    assert "save it as loans.toml" in drafted.stderr
    Path("loans.toml").write_text(drafted.stdout)
    Path("loans.space.toml").touch()
    space = sigmazero("space", "draft", "loans.csv")
    assert space.stdout.startswith('[feature."age"]')
    Path("loans.space.toml").write_text(space.stdout)
    done = sigmazero(*attack)
    assert done.exit_code == 0, done.stderr
    assert "row 0, no → yes: job: cook → nurse" in done.stdout
