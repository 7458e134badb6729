"""Titles and notes say which reading of the paper a suite trains."""

import pytest

from oht.experiments import figures, readings, suites


@pytest.mark.parametrize(
    ("values", "title"),
    [
        ({"method": "oht-nstep"}, "OHT-ES, n-step"),
        ({"method": "oht-nstep", "tune": {"gamma": "0.9,0.99"}}, "OHT-ES, discrete"),
        ({"method": "oht-nstep", "unstick": False}, "OHT-ES, n-step"),
        ({"method": "oht-nstep", "unstick": False, "beta": 0.02}, "OHT-ES, n-step, paper's reading"),
        ({"method": "oht-nstep", "unstick": "false", "beta": "0.02"}, "OHT-ES, n-step, paper's reading"),
        ({"method": "oht-lr"}, "OHT-ES, learning rates"),
        ({"method": "oht-lr", "unstick": False}, "OHT-ES, learning rates, paper's reading"),
        ({"method": "oht-lr", "search": "es"}, "OHT-ES, learning rates, Eqn (3)"),
        ({"method": "oht-lr", "tune": {"tau": "log:1e-3"}}, "OHT-ES, continuous"),
        ({"method": "oht"}, None),
        ({}, None),
    ],
)
def test_titles(values, title):
    assert readings.title(values) == title


def test_the_suites_say_what_they_train_and_follow_what_is_set():
    table = suites.load("table1")
    notes = " ".join(table.readings())
    assert "OHT-ES, n-step: Eqn (4), all arms train, beta is 0.02 in 10^7 steps and larger in fewer, saturated" in notes
    assert "OHT-ES, learning rates: CEM of the appendix, members persist, saturated agents are replaced" in notes
    assert "SAC: temperature fixed at 0.2." in notes
    assert "TD3:" not in notes
    figure = suites.load("figure2").with_settings({"unstick": "false"}).narrowed(methods=["oht-lr", "meta-gradient"])
    assert figure.readings() == [
        "Meta-gradient: Eqn (1), with the updated critic in the actor's step.",
        "OHT-ES, learning rates, paper's reading: CEM of the appendix, members persist, nothing is added to the paper.",
    ]


def test_a_title_of_the_user_wins_and_other_labels_stay(tmp_path):
    text = 'steps = 100\ntasks = ["Pendulum-v1"]\n[titles]\noht-lr = "Mine"\n[methods.oht-lr]\nmethod = "oht-lr"\n'
    (tmp_path / "mine.toml").write_text(text + '[methods.two]\nmethod = "oht-lr"\nunstick = false\n')
    suite = suites.load(tmp_path / "mine.toml")
    assert [suite.title_of(label) for label in suite.labels] == ["Mine", "two"]


@pytest.mark.parametrize("name", ["figure2", "table1"])
def test_captions_and_tables_have_the_reading_of_the_sweep(name, tmp_path):
    """That of the runs, also where `--set` changed the suite."""
    asked = suites.load(name).narrowed(["dm/walker-run"], ["td3", "oht-lr"]).with_budget(100, 1)
    swept = asked.with_settings({"unstick": False})
    suites.save(swept, tmp_path / suites.FILE)
    for job in swept.jobs():
        job.path(tmp_path).mkdir(parents=True)
        (job.path(tmp_path) / "evals.csv").write_text("env_steps,return_mean\n100,5\n")
    files, notes = figures.make(suites.load(name), tmp_path, tmp_path / "out")
    tables = [path.read_text() for path in files if path.suffix == ".md"]
    sentence = "OHT-ES, learning rates, paper's reading: CEM of the appendix, members persist, nothing is added"
    assert sentence in " ".join([*tables, *notes])
