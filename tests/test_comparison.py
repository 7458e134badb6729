"""Many seeds from one command, and one picture of all runs below a folder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from matplotlib.figure import Figure

import oht
from environments import search_path
from oht import cli, runs
from oht.errors import UserError
from oht.experiments import comparison, figures, many_seeds, scores, sweep
from oht.experiments.suites import Row
from oht.report import plots

TASK = "environments:FollowObservation"
WORDS = [
    "--algo",
    "uniform",
    "--start-steps",
    "10",
    "--eval-every",
    "20",
    "--eval-episodes",
    "2",
    "--tensorboard",
    "no",
]
WORDS += ["--max-episode", "10", "--replay-size", "100"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", search_path())


# Many seeds


def test_many_seeds_from_one_command_again_from_python_and_in_one_picture(capsys):
    words = ["train", TASK, *WORDS, "--steps", "40", "--seeds", "2", "--jobs", "2", "--out", "both"]
    assert cli.main(words) == 0
    assert "2 done" in capsys.readouterr().out
    folder = Path("both", "environments-FollowObservation", "static")
    assert sorted(path.name for path in folder.iterdir()) == ["s0", "s1"]
    first, second = (runs.rows(folder / seed / "evals.csv") for seed in ("s0", "s1"))
    assert first[-1]["env_steps"] == 40
    assert first[-1]["return_mean"] != second[-1]["return_mean"]

    written = {path: path.stat().st_mtime_ns for path in folder.rglob("*.csv")}
    assert cli.main(words) == 0  # the same command again finds all done
    settings: dict[str, Any] = {"algo": "uniform", "start_steps": 10, "eval_every": 20, "eval_episodes": 2}
    settings |= {"max_episode": 10, "replay_size": 100, "tensorboard": False, "steps": 40}
    with pytest.raises(UserError, match="choose another label or another --out"):
        oht.train_seeds(TASK, seeds=2, out="both", **{**settings, "replay_size": 200})
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.csv")} == written

    capsys.readouterr()
    assert cli.main(["plot", "both"]) == 0
    assert capsys.readouterr() == ("both/plot.png\n", "")
    assert Path("both", "plot.png").stat().st_size > 10_000


def test_the_suite_of_many_seeds():
    tune = {"n_step": oht.Choice(1, 3), "actor_lr+critic_lr": oht.LogFloat(1e-3)}
    values = {"task": "Pendulum-v1", "delay": 5, "steps": "2e4", "tune": tune, "hidden": (8, 8), "method": None}
    suite = many_seeds.suite_of({**values, "seed": 7}, 3)
    space = {"n_step": "1,3", "actor_lr+critic_lr": "log:0.001:0.5"}
    assert suite.rows == (Row(("Pendulum-v1@delay5",), {"oht": {"hidden": [8, 8], "tune": space}}),)
    assert (suite.steps, suite.seeds) == (20_000, 3)
    assert many_seeds.default_folder(suite) == Path("runs/Pendulum-v1_delay5_oht_seeds")
    sweep.suites.check(suite)
    with pytest.raises(UserError, match="the task must be a name"):
        many_seeds.suite_of({"task": object}, 3)


def test_many_seeds_of_a_method_of_ones_own(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "examples")
    suite = many_seeds.suite_of({"task": "Pendulum-v1", "method": "own_tuner:CLIMB"}, 2)
    (label,) = suite.labels
    assert label == "own_tuner-CLIMB"
    assert suite.methods[label]["method"] == "own_tuner:CLIMB"
    sweep.suites.check(suite)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--seeds", "5", "--seed", "3"], "--seeds 5 trains the seeds from 0 on; leave out --seed"),
        (["--seeds", "0"], "seeds is 0, but must be"),
        (["--seeds", "many"], "seeds is 'many'"),
        (["--seeds", "2", "--jobs", "0"], "jobs is 0, but must be"),
        (["--jobs", "2"], "--jobs is for many seeds"),
        (["--seeds", "2", "--overwrite"], "--seeds continues what is in its folder"),
        (["--seeds", "2", "--gama", "0.9"], "did you mean '--gamma'"),
        (["--seeds", "2", "--gamma", "9"], "gamma"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(words, sentence, capsys):
    assert cli.main(["train", TASK, *words]) == 2
    out, err = capsys.readouterr()
    assert sentence in err
    assert (out, err.count("\n")) == ("", 1)
    assert not [*Path().iterdir()]


# One picture


def pretend(path: Path, returns: list[float] | None = None, **settings: Any) -> None:
    """A run folder with these settings and evaluations every 100 steps."""
    path.mkdir(parents=True)
    (path / runs.FACTS).write_text(json.dumps({"format": runs.FORMAT, "packages": {}}))
    config = {"task": "Pendulum-v1", "algo": "td3", "method": "static", "seed": 0, **settings}
    (path / "config.toml").write_text(tomli_w.dumps(config))
    rows = "".join(f"{100 * i},{value}\n" for i, value in enumerate(returns or [], 1))
    (path / "evals.csv").write_text("env_steps,return_mean\n" + rows if returns else "")


def test_seeds_of_a_method_are_one_line_with_a_band(monkeypatch, capsys):
    pretend(Path("all/a"), [0.0, 2.0], seed=0)
    pretend(Path("all/deep/b"), [2.0, 6.0], seed=1, eval_episodes=3)
    pretend(Path("all/c"), [5.0, 5.0], method="oht", tune={"n_step": "1,3"})
    pretend(Path("all/d"), [9.0], task="dm/walker-run")
    pretend(Path("all/e"), None)
    pretend(Path("all/.c.part"), [99.0])  # being copied from another machine
    pretend(Path("all/a_cut_off"), [99.0], seed=1)
    drawn = []
    draw = figures.draw
    monkeypatch.setattr(figures, "draw", lambda *given: drawn.append(draw(*given)) or drawn[-1])
    assert cli.main(["plot", "all", "--out", "all.svg"]) == 0
    out, err = capsys.readouterr()
    assert out == "all.svg\n"
    assert err.splitlines() == [
        "oht: left out, because they have no evaluation yet: all/e.",
        "oht: left out, because others have their settings and seed: all/a_cut_off.",
    ]
    pendulum, walker = drawn[0].axes
    assert (pendulum.get_title(), walker.get_title()) == ("Pendulum-v1", "Walker run")
    lines = {line.get_label(): line.get_ydata().tolist() for line in pendulum.lines}
    assert lines == {"static": [1.0, 4.0], "oht": [5.0, 5.0]}
    (band, _) = pendulum.collections  # of both; one seed has no width
    low, high = np.min(band.get_paths()[0].vertices[:, 1]), np.max(band.get_paths()[0].vertices[:, 1])
    spread = scores.deviation(np.array([[0.0, 2.0], [2.0, 6.0]]))
    assert (low, high) == pytest.approx((1 - spread[0], 4 + spread[1]))


def test_runs_are_named_by_what_tells_them_apart():
    base = {"method": "static", "algo": "td3", "task": "a", "seed": 0, "gamma": 0.99, "hidden": [8, 8]}
    assert comparison.labels([base, {**base, "seed": 1, "track": "wandb", "env_errors": 5}]) == ["static", "static"]
    other = {**base, "algo": "sac", "alpha_lr": 1e-3, "gamma": 0.9}  # the algorithm tells all
    assert comparison.labels([base, other, {**base, "method": "oht"}]) == [
        "static, algo td3",
        "static, algo sac",
        "oht",
    ]
    lengths = [{**base, "steps": steps} for steps in (100, 200, 100)]
    assert comparison.labels(lengths) == ["static, steps 100", "static, steps 200", "static, steps 100"]
    wide = {**base, "gamma": 0.9, "hidden": [16, 16]}
    assert comparison.labels([base, wide]) == ["static, gamma 0.99", "static, gamma 0.9"]
    longer = {**base, "hidden": [16, 16]}
    names = comparison.labels([base, wide, longer])
    assert names == [
        f"static, gamma {g}{h}" for g, h in (("0.99", ", hidden [8, 8]"), ("0.9", ""), ("0.99", ", hidden [16, 16]"))
    ]
    tuned = [{**base, "method": "oht", "tune n_step": "1,3"}, {**base, "method": "oht", "tune gamma": "0.9..0.99"}]
    assert len(set(comparison.labels(tuned))) == 2


def test_what_cannot_be_compared_is_one_sentence(capsys):
    Path("empty").mkdir()
    pretend(Path("new/run"), None)
    pretend(Path("some/run"), [1.0])
    for words, sentence in (
        (["empty"], "empty is not a run folder, and there is none below it."),
        (["nowhere"], "nowhere is not a run folder"),
        (["new"], "no run in new has been evaluated yet."),
        (["some", "--out", "picture.xyz"], "picture.xyz"),
        (["some", "empty"], "empty is not a run folder, and there is none below it."),
    ):
        assert cli.main(["plot", *words]) == 2
        out, err = capsys.readouterr()
        assert sentence in err
        assert (out, err.count("\n")) == ("", 1)
    assert not [*Path().rglob("*.png")]


def panels(schedule: runs.Columns) -> list[Any]:
    figure = Figure()
    drawn = []
    for draw in plots.schedule_panels(schedule, {"critic_lr"}):
        drawn.append(figure.add_subplot())
        draw(figure, drawn[-1])
    return drawn


STEPS = np.array([100.0, 200.0])


def test_the_schedule_of_a_race_is_drawn_as_belief_and_shares():
    schedule = {"env_steps": STEPS, "champion/n_step": np.array([1.0, 3.0]), "sample/0/agent": np.array([1.0, 0.0])}
    for i, (mean, ratio) in enumerate((([5.0, 6.0], [1.0, 0.5]), ([7.0, 9.0], [1.0, 1.5]))):
        numbers = {"mean": mean, "error": [0.0, 2.0], "ratio": ratio, "n_step": [3 * i + 1.0] * 2}
        schedule |= {f"agent/{i}/{name}": np.array(values) for name, values in numbers.items()}
    belief, shares = panels(schedule)
    assert [line.get_label() for line in belief.lines] == ["n_step 1", "n_step 4"]
    np.testing.assert_array_equal([line.get_ydata() for line in belief.lines], [[np.nan, 6.0], [np.nan, 9.0]])
    first, second, *dots = shares.collections
    assert [np.max(area.get_paths()[0].vertices[:, 1]) for area in (first, second)] == [1.0, 2.0]
    assert [dot.get_offsets()[0, 0] for dot in dots] == [200.0, 100.0]  # who played


def test_the_schedule_of_a_search_is_drawn_with_its_samples_and_champion():
    schedule = {"env_steps": STEPS, "critic_lr/mu": np.array([-3.0, -2.0]), "critic_lr/sigma": np.array([1.0, 0.5])}
    schedule |= {"sample/0/critic_lr": np.array([1e-4, 1e-2]), "sample/0/return": np.array([5.0, -np.inf])}
    schedule |= {"champion/critic_lr": np.array([1e-3, 1e-4]), "champion/gamma": np.array([0.9, 0.95])}
    search, gamma = panels(schedule)
    np.testing.assert_allclose(search.lines[0].get_ydata(), [1e-3, 1e-2])
    band, played, ring = search.collections
    bounds = band.get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([bounds.min(), bounds.max()], [1e-4, 10**-1.5])
    np.testing.assert_allclose(played.get_offsets(), [[100, 1e-4]])  # the other was replaced
    np.testing.assert_allclose(ring.get_offsets(), [[200, 1e-4]])  # the champion, where it is not the mean
    assert search.get_yscale() == "log"
    assert (gamma.get_ylabel(), gamma.lines[0].get_ydata().tolist()) == ("gamma", [0.9, 0.95])


def test_probabilities_are_drawn_as_areas():
    schedule = {"env_steps": STEPS, "n_step/p/1": np.array([0.5, 0.2]), "n_step/p/3": np.array([0.5, 0.8])}
    (areas,) = panels(schedule)
    assert [area.get_label() for area in areas.collections] == ["n_step = 1", "n_step = 3"]
    assert [np.max(area.get_paths()[0].vertices[:, 1]) for area in areas.collections] == [0.5, 1.0]


def test_runs_of_the_same_name_are_all_drawn_beside_one(monkeypatch, tmp_path):
    for folder in ("a", "b", "c"):
        run = tmp_path / folder / "s0"
        run.mkdir(parents=True)
        (run / "config.toml").write_text("")
        (run / "metrics.csv").write_text("env_steps,return_mean\n10,1\n")
        (run / "evals.csv").write_text("env_steps,return_mean,return_std\n10,1,0\n")
    drawn = []
    monkeypatch.setattr(plots.plt, "close", drawn.append)
    monkeypatch.chdir(tmp_path)
    plots.plot_run(Path("a/s0"), Path("plot.png"), [Path("b/s0"), Path("c/s0")])
    labels = [line.get_label() for line in drawn[0].axes[0].lines]
    assert {"evaluation of b/s0", "evaluation of c/s0"} <= set(labels)
