"""The command line in processes of its own: results on stdout, messages on stderr, exit codes, files."""

import csv
import json
import re
import signal
from urllib.request import urlopen

RUN = ("run", "plan.toml", "--store", "s.db", "--trust-code", "--device", "cpu")


def messages(err):
    """The lines on stderr, but for what the doctor saw."""
    return [line for line in err.splitlines() if ": values from " not in line]


def test_a_plan_from_ctrl_c_to_its_figures(folder, start, sigmazero):
    (folder / "hold").touch()
    process = start(*RUN)
    assert "holding\n" in iter(process.stderr.readline, "")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()  # which closes its standard input
    assert process.returncode == 130, err
    assert "Traceback" not in err
    (folder / "hold").unlink()

    code, out, err = sigmazero("status", "s.db")
    done = [int(rows) for rows in re.findall(r"(\d+)/24", out)]
    assert (code, err, len(done)) == (0, "", 2)
    assert 0 < sum(done) < 48

    code, out, err = sigmazero(*RUN)
    assert (code, messages(err)) == (0, [])
    assert "net.py:counted" in out
    assert [out.count(f"{name} ") for name in ("sigma-zero", "fmn")] == [1, 1]
    assert f"{48 - sum(done)} rows" in out

    code, table, err = sigmazero("report", "s.db", "--to", "csv")
    assert (code, err) == (0, "")
    lines = [(line["attack"], int(line["samples"])) for line in csv.DictReader(table.splitlines())]
    assert sorted(lines) == [("fmn", 24), ("sigma-zero", 24)]
    assert sigmazero("export", "s.db", "--out", "samples.csv") == (0, "", "wrote samples.csv\n")
    with open("samples.csv", newline="") as file:
        assert len({(line["attack"], line["row"]) for line in csv.DictReader(file)}) == 48
    code, out, err = sigmazero("verify", "s.db", "--trust-code", "--device", "cpu")
    assert (code, re.findall(r"\d+", out), err) == (0, ["48", "0"], "")

    process = start("view", "s.db")
    (address,) = re.findall(r"http://127\.0\.0\.1:\d+/\S+", process.stdout.readline())
    with urlopen(f"{address.rstrip('/')}/page") as page:
        assert "sigma-zero" in page.read().decode()
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130


def test_a_network_from_the_doctor_to_a_proof(folder, sigmazero):
    code, out, err = sigmazero("doctor", "net.py:softmax", "mine.npz", "--device", "cpu")
    assert code == 3
    assert "SZ004 error" in out

    own = ("mine.npz", "--device", "cpu")
    files = ("-o", "res/result.npz", "-o", "res/result.png")
    code, out, err = sigmazero("attack", "net.py:linear", *own, "--steps", 5, *files)
    assert (code, messages(err)) == (0, ["wrote res/result.npz", "wrote res/result.png"])
    assert "are fooled" in out.splitlines()[0]
    assert sorted(path.name for path in (folder / "res").iterdir()) == ["result.npz", "result.png"]

    gate = ("--eps", 2, "--cascade", "quick", "--fail-under", 50, "--json", "gate.json", "--quiet")
    code, out, err = sigmazero("auto", "net.py:linear", *own, "--limit", 8, *gate)
    assert (code, out.count("\n")) == (1, 1)
    record = json.loads((folder / "gate.json").read_text())
    assert (record["exit_code"], record["question"]["eps"], record["figure"]["of"]) == (1, 2, 8)

    code, out, err = sigmazero("certify", "net.py:linear", *own, "--limit", 3, "--attack", "none")
    table = [int(number) for number in out.splitlines()[1].split()]
    assert (code, err, table[0], sum(table[1:])) == (0, "", 1, 3)


def test_a_reader_that_goes_away_ends_the_command_quietly(start):
    process = start("list", "attacks")
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == ("", 141)
    process.stdin.close()
    process.stderr.close()


def test_an_error_leaves_no_file(folder, here):
    before = sorted(folder.iterdir())
    code, out, err = here("attack", "net.py:failing", "mine.npz", "--device", "cpu", "--out", "result.npz")
    assert (code, out) == (2, "")
    assert re.search(r"RuntimeError: no gradients here \(.*net.py, line \d+\)", err)
    assert "Traceback" not in err
    assert sorted(folder.iterdir()) == before
