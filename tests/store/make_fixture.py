"""Write a store of the present schema to be kept for good: `python -m tests.store.make_fixture`.

It is for the moment when the schema has been raised; the stores of older schemas are never written again.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from sigmazero.attacks import get
from sigmazero.bench.cells import Loader, expand
from sigmazero.bench.evaluate import evaluate
from sigmazero.bench.plan import read_plan
from sigmazero.bench.run import execute
from sigmazero.core.space import Space
from sigmazero.store import Store, database
from sigmazero.store.migrations import SCHEMA
from sigmazero.store.proofs import Proof, ProofKey, row_digests
from tests.helpers.networks import linear_problem

FIXTURES = Path(__file__).parent / "fixtures"
SPACE: dict[str, Any] = {"names": ["a", "b", "c", "d"], "cost": [1, 2, 3, 4], "direction": {"d": "none"}}
FINDING = {"code": "saturated", "problem": "p", "advice": "a", "about": "b"}


@patch.object(database, "myself", lambda: "process 1 of somebody on some machine")
def main() -> None:
    path, loader = FIXTURES / f"schema-{SCHEMA}.db", Loader()
    if path.exists():
        raise FileExistsError(f"{path} is kept for good; raise the schema first")
    cells, missing = expand(read_plan(FIXTURES / "plan.toml").questions, loader)
    assert not missing
    with Store(path, write=True) as store:
        execute(cells, store, loader)
        store.diagnose(cells[1].info.key, [FINDING])
        gaps = expand([replace(cells[0].question, label="fmn", attack=get("fmn", steps=10))], loader)[0][0]
        store.register([gaps.info])
        facts = store.facts(cells[0].info.key)
        store.append(gaps.info.key, [1, 4], facts.take(np.array([1, 4])), run=1)
        store.append(gaps.info.key, 2, facts.take(np.array([2])), run=1)
        store.fail(gaps.info.key, "RuntimeError: stopped on purpose", span=(3, 4), tries=3)
        store.note_progress({})
        rows = loader.rows(cells[0].question.data)
        about, digests = ProofKey.of_cell(cells[0].info), row_digests(rows.images, rows.labels)
        assert about is not None
        store.keep_digests(rows.content_hash, digests)
        store.prove(about, {digests[0]: Proof(1, "by hand", 1, 0.5)})
    model, x, y = linear_problem((4,), 4)
    evaluate(model.float(), (x.float(), y), store=path, steps=10, name="given-net")
    evaluate(model.float(), (x.float(), y), store=path, steps=10, name="given-net", space=Space(**SPACE))
    path.with_name(f"{path.name}.lock").unlink()


if __name__ == "__main__":
    main()
