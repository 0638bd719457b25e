from collections.abc import Iterator

import pytest

from tests.helpers.trial import Judge


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """A process that judges claims and knows nothing of sigmazero."""
    process = Judge()
    yield process
    process.close()
