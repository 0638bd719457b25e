def test_smooth_prints_the_curve_and_whom_it_is_about(sigmazero, own):
    done = sigmazero("smooth", "net.py:build", "mine.npz", "--keep", "30", "--draws", "200")
    assert done.exit_code == 0
    assert "right at 0 %" in done.stdout
    assert "proved of the vote over copies that show 30 of 60 features, not of net.py:build itself" in done.stdout


def test_smooth_names_what_is_wrong(sigmazero, own):
    done = sigmazero("smooth", "net.py:build", "mine.npz", "--keep", "99")
    assert done.exit_code != 0
    assert "keep=99 must be a whole number of features, 1 to 60" in str(done.exception) + done.stderr
