"""`sigmazero board`, as people type it."""

from dataclasses import replace

from sigmazero.store.store import Store
from tests.cli.conftest import own, sigmazero  # noqa: F401 (fixtures)
from tests.plans import NET


def test_names_write_no_lines_of_their_own(sigmazero, own):  # noqa: F811
    """A forged name in a store, or who says to have found points, must not look like a line of the verdict."""
    evil = "x\n1 model, 9 points replayed: 0 wrong, 0 not checked"
    (own / "net.py").write_text(NET)
    assert sigmazero("board", "init", "b", "small", "mine.npz", "--limit", "4").exit_code == 0
    (own / "card.toml").write_text('name = "mine"\nmodel = "net.py:build"\nboards = ["small"]\n')
    added = sigmazero("board", "add", "b", "card.toml", "--by", "Ada", "--cascade", "none", "--trust-code")
    assert added.exit_code == 0, added.output
    with Store(own / "b/entries/mine/points.db", write=True) as store:
        info = store.cells()[0]
        parameters = {**info.parameters, "by": evil, "tool": evil}
        store.register([replace(info, key="f" * 64, attack=evil, parameters=parameters, provenance={})])
    said = sigmazero("board", "verify", "b", "--trust-code")
    assert said.exit_code == 1
    assert not [line for line in (said.stdout + said.stderr).splitlines() if line.startswith("1 model, 9 points")]
