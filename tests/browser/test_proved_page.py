"""What is proved, on the page as people see it."""

import re
from functools import partial

import numpy as np
from selenium.webdriver import Chrome
from selenium.webdriver.support.wait import WebDriverWait

from sigmazero.bench.constraints import Allowed
from sigmazero.bench.evaluate import evaluate
from sigmazero.bench.loader import Loader, clean_rows
from sigmazero.bench.proofs import keep_proofs, proof_key
from sigmazero.report.figures.curves import PROVED
from sigmazero.report.html.page import make_page, save_page
from sigmazero.store import Store
from tests.bench.test_proofs import MODEL, ROWS, TRUTH, N, X, Y
from tests.browser.test_page import find, find_all


def shows(page: Chrome, row: int) -> bool:
    """Whether a sample is open."""
    return find(page, ".sample h4").text.startswith(f"Row {row},")


def test_samples_curves_and_tables_say_what_is_proved(browser: Chrome, tmp_path):
    path = tmp_path / "s.db"
    evaluate(MODEL, (X, Y), ["sigma-zero", "vfga"], store=path, steps=60)
    least = TRUTH.astype(int)
    least[1], least[2] = least[1] - 1, 0
    keep_proofs(path, proof_key(MODEL, "feature", Allowed(), ROWS), ROWS, least, np.zeros(N), loader=Loader())
    with Store(path) as store:
        save_page(tmp_path / "page.html", make_page(store, partial(clean_rows, store, loader=Loader())))
        best = np.min([store.facts(key).l0 for key in store.cell_keys()], axis=0)
    browser.get((tmp_path / "page.html").as_uri())
    heads = [head.text.strip() for head in find_all(browser, "#minimum-norm thead th")]
    assert {"median ≥", "proved 1"} <= set(heads)
    assert PROVED in [button.text.strip() for button in find_all(browser, "#curves .legend button")]
    for row in range(3):
        browser.execute_script(f"location.hash = '#sample-0-{row}'")
        WebDriverWait(browser, 60).until(partial(shows, row=row))
        said = find(browser, ".sample .least dd").text
        if least[row] == best[row]:
            words = rf"exactly {least[row]}, by .*; that fewer cannot do it is proved"
        elif least[row]:
            words = rf"at least {least[row]}, which is proved, and at most {best[row]:g}, by "
        else:
            words = rf"{best[row]:g} changed, by "
        assert re.match(words, said), (row, said)
