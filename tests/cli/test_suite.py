def test_suite_prints_a_line_for_each_network_and_for_all(sigmazero):
    how = ("--networks", "mlp-standard,mlp-sparse", "--limit", "3", "--queries", "60")
    done = sigmazero("suite", "--attacks", "sigma-zero", "vfga", *how)
    assert done.exit_code == 0
    assert "gap %" in done.stdout
    assert "optimal %" in done.stdout
    for words in (("sigma-zero", "mlp-standard"), ("sigma-zero", "all"), ("vfga", "mlp-sparse")):
        assert any(all(word in line for word in words) for line in done.stdout.splitlines())


def test_suite_names_what_is_wrong(sigmazero):
    done = sigmazero("suite", "--attacks", "sigma-zero", "--networks", "mlp")
    assert done.exit_code != 0
    assert "the suite has no network 'mlp'" in str(done.exception) + done.stderr
