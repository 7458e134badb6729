"""The command line: a mistake is one sentence and exit code 2, and costs nothing that was on disk."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

import oht
from clocks import without_clocks
from environments import FollowObservation, search_path
from oht import cli, methods
from oht.config import RunSettings
from oht.envs import tasks
from oht.errors import UserError
from oht.running import STOPPING
from oht.settings import help_of as help_line
from oht.settings import names

PROBE = "environments:FollowObservation"
TINY = [
    *("--steps", "60", "--start-steps", "30", "--eval-every", "40", "--eval-episodes", "2", "--batch-size", "8"),
    *("--hidden", "8,8", "--replay-size", "100", "--max-episode", "20", "--tensorboard", "no", "--quiet"),
]
SMALL_TOML = """
task = "environments:FollowObservation"
start-steps = 30
eval_every = 40
eval_episodes = 2
batch_size = 8
hidden = [8, 8]
replay_size = 100
max_episode = 20
tensorboard = false
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(capsys, *words: str) -> str:
    """The one sentence of a refusal that leaves everything on disk as it was."""
    capsys.readouterr()
    before = files(Path())
    assert cli.main(words) == 2
    assert files(Path()) == before
    assert not Path("runs").exists()
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"oht: [^\n]+\n", err), err
    return err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("", "COMMAND"),
        ("trian Pendulum-v1", "did you mean 'train'?"),
        ("tasks all", "there is no place for 'all'"),
        ("tasks --al", "unknown flag '--al'"),
        ("train", "which task?"),
        ("train Pendulum", "did you mean 'Pendulum-v1'?"),
        ("train dm/walker_run", "did you mean 'dm/walker-run'?"),
        ("train nothing-like-it-at-all", "known: bullet/ant"),
        ("train Pendulum-v1@late", "'@delay5'"),
        ("train no_such_module:Env", "module"),
        ("train environments:NoSuchEnv", "neither has 'NoSuchEnv' nor registers it"),
        ("train Pendulum-v1 --algo td4", "did you mean 'td3'?"),
        ("train Pendulum-v1 --method oht_nstep", "did you mean 'oht-nstep'?"),
        ("train Pendulum-v1 --stepz 100", "did you mean '--steps'?"),
        ("train Pendulum-v1 --steps", "--steps"),
        ("train Pendulum-v1 extra", "there is no place for 'extra'"),
        ("train Pendulum-v1 --steps -5", "steps is -5, but must be from 1"),
        ("train Pendulum-v1 --steps many", "'many', but must be a whole number"),
        ("train Pendulum-v1 --steps 1e99", "steps"),
        ("train Pendulum-v1 --steps 5000", "start_steps 10000 must be below steps 5000"),
        ("train Pendulum-v1 --n-step 0", "n_step is 0, but must be from 1"),
        ("train Pendulum-v1 --n-step 1.5", "whole number"),
        ("train Pendulum-v1 --gamma 1.1", "gamma is 1.1, but must be from 0 to 1"),
        ("train Pendulum-v1 --actor-lr nan", "actor_lr is nan"),
        ("train Pendulum-v1 --replay-ratio inf", "replay_ratio is inf"),
        ("train Pendulum-v1 --hidden 8,0", "hidden is 8,0"),
        ("train Pendulum-v1 --normalise perhaps", "true or false"),
        ("train Pendulum-v1 --alpha 0.2", "alpha is a setting of sac, not of td3"),
        ("train Pendulum-v1 --algo uniform --tau 0.1", "tau is a setting of td3, ddpg and sac, not of uniform"),
        ("train Pendulum-v1 --algo sac --alpha 0.2 --alpha-lr 1e-3", "leave out one of the two"),
        ("train Pendulum-v1 --activation rely", "did you mean 'relu'?"),
        ("train Pendulum-v1 --layer-norm maybe", "layer_norm is 'maybe', but must be true or false"),
        ("train Pendulum-v1 --window 3", "window is a setting of the method oht-nstep, not of static"),
        ("train Pendulum-v1 --population 3", "population is a setting of the methods oht, oht-lr, "),
        ("train Pendulum-v1 --method pbt --meta-lr 3", "meta_lr is a setting of the method meta-gradient, not of pbt"),
        ("train Pendulum-v1 --method pbd --help", "did you mean 'pbt'?"),
        ("train Pendulum-v1 --lr 1e-3", "actor_lr and critic_lr"),
        ("train Pendulum-v1 --learning-rate 1e-3", "actor_lr and critic_lr"),
        ("train Pendulum-v1 --total-timesteps=1000", "called steps"),
        ("train Pendulum-v1 --tune lr=log:1e-5..1e-2", "actor_lr and critic_lr"),
        ("train Pendulum-v1 --tune critic_lr=log:1e-4:1e-2", "critic_lr=log:1e-4..1e-2"),
        ("train Pendulum-v1 --tune gamma=float:0.9:0.99", "gamma=float:0.9..0.99"),
        ("train Pendulum-v1 --tune critic_lr=1e-5..1e-2", "log:1e-5..1e-2"),
        ("train Pendulum-v1 --tune gamma=0.9..1.5", "highest value is 1.5"),
        ("train Pendulum-v1 --tune n_step=0.5..3", "n_step is a whole number"),
        ("train Pendulum-v1 --tune gamma=0.99..0.9", "must lie below"),
        ("train Pendulum-v1 --tune gamma=0.9..", "'' is not a number"),
        ("train Pendulum-v1 --replay-size 500", "cannot hold an episode"),
        ("train Pendulum-v1 --replay-size 1e9 --hidden 100000,100000", "GB of this machine"),
        ("train Pendulum-v1 --tune nonsense", "is not NAME=SPACE"),
        ("train Pendulum-v1 --tune gamme=1,2", "unknown hyper-parameter 'gamme'; did you mean 'gamma'?"),
        ("train Pendulum-v1 --tune n_step=one,two", "'one' is not a number"),
        ("train Pendulum-v1 --tune n_step=0,1", "n_step is a whole number from 1 on"),
        ("train Pendulum-v1 --tune gamma=float:0.5:0.1:0:2", "highest value is 2"),
        ("train Pendulum-v1 --tune actor_lr=lg:1e-3", "did you mean 'log'?"),
        ("train Pendulum-v1 --method oht --tune n_step=1", "at least two different values"),
        ("train Pendulum-v1 --method static --tune n_step=1,2", "tunes nothing"),
        ("train Pendulum-v1 --method schedule --from nowhere", "there is no schedule"),
        ("train environments:DiscreteActions", "supported are continuous actions"),
        ("train environments:UnboundedActions", "a Box with finite bounds"),
        ("train environments:Image", "no images"),
        ("train CartPole-v1", "supported are continuous actions"),
        ("train --resume nowhere", "is not a run folder"),
        ("train --resume nowhere --gamma 0.9", "only --steps"),
        ("train --resume nowhere --tune n_step=1,2", "only --steps"),
        ("train --resume nowhere --overwrite", "only --steps"),
        ("train Pendulum-v1 --resume nowhere", "only --steps"),
        ("train --config nowhere.toml", "does not exist"),
        ("eval nowhere", "is not a run folder"),
        ("eval", "RUN"),
        ("eval . --episodes 0", "episodes is 0"),
        ("eval . --seed x", "seed is 'x'"),
        ("plot nowhere", "is not a run folder"),
        ("plot .", "is not a run folder"),
    ],
)
def test_a_mistake_is_one_sentence(words, hint, capsys):
    assert hint in refused(capsys, *words.split())


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("steps = ", "is not TOML"),
        ("\N{GREEK SMALL LETTER ETA} = 1", "is not TOML"),
        ('task = "Pendulum-v1"\nstepz = 5', "did you mean 'steps'?"),
        ('task = "Pendulum-v1"\nout = "here"', "command line"),
        ('task = "Pendulum-v1"\ntune = "n_step"', "must be a table"),
        ('task = "Pendulum-v1"\ntune = {n_step = "x"}', "'x' is not a number"),
        ('task = "Pendulum-v1"\n[tune]\ngamma = [1' + 400 * "0" + "]", "too large"),
        ('task = "Pendulum-v1"\n[deep]\nsteps = 1', "unknown setting 'deep'"),
        ('task = "Pendulum-v1"\nsteps = true', "whole number"),
        ('task = "Pendulum-v1"\nalgo = 3', "must be a text"),
        ("task = 3", "must be a text"),
        ("steps = 20_000", "which task?"),
    ],
)
def test_a_bad_config_file(text, hint, capsys):
    Path("run.toml").write_text(text, "utf-8")
    assert hint in refused(capsys, "train", "--config", "run.toml")


def test_a_config_file_that_is_no_text(capsys):
    Path("run.toml").write_bytes(b"\xff\xfe\x00")
    assert "is not TOML" in refused(capsys, "train", "--config", "run.toml")
    assert "cannot be read" in refused(capsys, "train", "--config", ".")


@pytest.mark.parametrize(("task", "extra"), [("dm/walker-run", "envpool"), ("robo/ant", "bullet")])
def test_a_missing_extra_says_how_to_install_it(task, extra, capsys, monkeypatch):
    monkeypatch.setattr(tasks, "importable", lambda name: False)
    assert f"pip install 'oht[{extra}]'" in refused(capsys, "train", task)
    cli.main(["tasks"])
    assert "yes" not in capsys.readouterr().out


@pytest.mark.parametrize("place", ["a-file", "a-file/below", "/proc/nothing", "x" * 300])
def test_a_folder_that_cannot_be_made(place, capsys):
    Path("a-file").write_text("")
    refused(capsys, "train", PROBE, *TINY, "--out", place)


LONG = "x" * 300


@pytest.mark.parametrize(
    "words",
    [
        ["plot", LONG],
        ["eval", LONG],
        ["report", LONG],
        ["watch", LONG],
        ["scores", LONG],
        ["train", "Pendulum-v1", "--out", LONG],
        ["train", "--config", LONG],
        ["train", "--resume", LONG],
        ["sweep", LONG],
        ["figures", LONG],
        ["export", LONG, "policy.onnx"],
        ["video", LONG],
    ],
    ids=lambda words: " ".join(word for word in words if word != LONG),
)
def test_a_name_that_is_too_long_for_the_disk(words, capsys):
    assert len(refused(capsys, *words)) < 600


def test_folders_that_are_no_runs_are_left_alone(capsys):
    Path("thesis").mkdir()
    Path("thesis/chapter.tex").write_text("years of work")
    assert "exists already" in refused(capsys, "train", PROBE, *TINY, "--out", "thesis")
    assert "does not touch it" in refused(capsys, "train", PROBE, *TINY, "--out", "thesis", "--overwrite")
    Path("thesis/run.json").write_text("[]")
    assert "damaged" in refused(capsys, "eval", "thesis")
    Path("thesis/run.json").write_text('{"format": 0, "packages": {"oht": "0.0.1"}}')
    assert "format 0, but this version of oht reads format 2; it was written by oht 0.0.1" in refused(
        capsys, "plot", "thesis"
    )


def test_a_broken_env_says_which_and_when_and_leaves_a_readable_run(capsys):
    for task, sentence in (
        ("environments:Raises", r"environments:Raises failed in its step at step 3 .* the wheel came off"),
        ("test_cli:nan_reward", r"test_cli:nan_reward gave a reward that is not finite at step 3 of the episode"),
    ):
        assert cli.main(["train", task, *TINY, "--out", task.split(":")[1]]) == 2
        assert re.fullmatch(f"oht: {sentence}.*\n", capsys.readouterr().err)
        run = Path(task.split(":")[1])
        assert json.loads((run / "run.json").read_text())["format"] == 2
        assert task in (run / "config.toml").read_text()
        assert cli.main(["plot", str(run)]) == 2
        assert "no finished iteration" in capsys.readouterr().err


def nan_reward():
    from environments import NotFinite

    return NotFinite("reward")


def test_help_names_every_number_of_the_base_algorithms(capsys):
    for words in (["--help"], ["train", "--help"]):
        with pytest.raises(SystemExit) as end:
            cli.main(words)
        assert end.value.code == 0
    help = re.sub(r"\s+", " ", capsys.readouterr().out)
    for flag, default in {
        "replay-size": "1000000",
        "gamma": "0.99",
        "tau": "0.005",
        "actor-lr": "0.001",
        "critic-lr": "0.001",
        "batch-size": "100",
        "start-steps": "10000",
        "max-episode": "1000",
        "exploration-noise": "0.1",
        "target-noise": "0.2",
        "noise-clip": "0.5",
        "policy-delay": "2",
        "hidden": "300,300",
        "eval-episodes": "10",
        "n-step": "1",
        "recency": "1.0",
        "normalise": "false",
    }.items():
        assert re.search(rf"--{flag} V [^\[\]]*\[{re.escape(default)}\]", help), flag
    assert re.search(r"--alpha V [^-]*0\.2 in the paper", help)


def help_of(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        cli.main([*words, "--help"])
    assert end.value.code == 0
    return re.sub(r"\s+", " ", capsys.readouterr().out)


def test_help_without_a_method_lists_the_methods_and_shows_no_settings_of_theirs(capsys):
    text = help_of(capsys, "train")
    for name, method in methods.METHODS.items():
        assert re.search(rf" {name} {re.escape(method.summary)}", text)
    assert "--population V" not in text
    assert "oht train --method NAME --help" in text


@pytest.mark.parametrize("method", methods.METHODS)
@pytest.mark.parametrize("form", ["--method {}", "--method={}"])
def test_help_of_a_method_shows_its_settings_with_its_own_defaults(method, form, capsys):
    text = help_of(capsys, "train", *form.format(method).split())
    settings = {f.name: f for f in fields(methods.METHODS[method].settings)}
    for name, f in settings.items():
        assert f"--{name.replace('_', '-')}" in text
        assert re.sub(r"\s+", " ", help_line(f)) in text
    others = {f.name for other in methods.METHODS.values() for f in fields(other.settings)} - set(settings)
    for name in others - set(names(RunSettings)):
        assert f"--{name.replace('_', '-')} V" not in text
    assert "--gamma V" in text


def test_help_of_the_program_loads_no_numerics():
    code = (
        "import sys; from oht.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: sys.exit(bool({'jax', 'numpy', 'rich', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_tables_fit_into_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["tasks"]) == 0
    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert all(task in out for task in tasks.TASKS)
    assert "…" not in out


def test_train_eval_plot_and_go_on(capsys):
    Path("run.toml").write_text(SMALL_TOML + "steps = 50\nseed = 5\n")
    assert cli.main(["train", "--config", "run.toml", "--steps", "60", "--out", "[/a]", "--quiet"]) == 0
    assert cli.main(["eval", "[/a]", "--episodes", "3"]) == 0
    assert "[/a]" in capsys.readouterr().out
    assert cli.main(["eval", "[/a]", "--best", "--episodes", "3"]) == 0
    assert cli.main(["plot", "[/a]"]) == 0
    assert Path("[/a]/plot.png").stat().st_size > 10_000
    assert "picture.xyz" in refused(capsys, "plot", "[/a]", "--out", "picture.xyz")
    text = Path("[/a]/config.toml").read_text()
    assert "steps = 60" in text  # a flag wins over the file
    assert "seed = 5" in text

    assert cli.main(["train", "--config", "[/a]/config.toml", "--out", "again", "--quiet"]) == 0
    assert without_clocks(Path("again/metrics.csv")) == without_clocks(Path("[/a]/metrics.csv"))

    assert "cannot end at 40" in refused(capsys, "train", "--resume", "again", "--steps", "40")
    assert cli.main(["train", "--resume", "again", "--steps", "80", "--quiet"]) == 0
    assert len(without_clocks(Path("again/metrics.csv"))) > len(without_clocks(Path("[/a]/metrics.csv")))

    assert "exists already" in refused(capsys, "train", PROBE, *TINY, "--out", "again")
    assert "n_step is 0" in refused(capsys, "train", PROBE, *TINY, "--out", "again", "--overwrite", "--n-step", "0")
    assert "no images" in refused(capsys, "train", "environments:Image", *TINY, "--out", "again", "--overwrite")
    Path("again/metrics.csv").write_text("env_steps,return_mean\n1,what?\n")
    assert "cannot be read as a table of numbers" in refused(capsys, "plot", "again")


def test_tied_hyper_parameters_from_flag_to_plot(capsys):
    tied = ["--method", "oht-lr", "--population", "4", "--tune", "actor_lr+critic_lr=log:1e-3"]
    assert cli.main(["train", PROBE, *TINY, *tied, "--out", "tied", "--quiet"]) == 0
    assert '"actor_lr+critic_lr" = "log:0.001:0.5"' in Path("tied/config.toml").read_text()
    assert cli.main(["train", "--config", "tied/config.toml", "--out", "again", "--quiet"]) == 0
    assert Path("again/schedule.csv").read_text() == Path("tied/schedule.csv").read_text()
    assert cli.main(["plot", "tied"]) == 0


def test_ranges_and_tied_choices_from_flag_to_schedule(capsys):
    words = ["--tune", "actor_lr+critic_lr=1e-4,1e-3", "--tune", "gamma=0.9..0.999", "--tune", "n_step=1..3"]
    loud = [word for word in TINY if word != "--quiet"]
    assert cli.main(["train", PROBE, *loud, *words, "--population", "2", "--out", "mixed"]) == 0
    out = capsys.readouterr().out
    assert "actor_lr and critic_lr (same value): one of 1e-4, 1e-3" in out
    assert "gamma: 0.9 to 0.999 on a linear scale, start 0.99" in out
    assert "n_step: 1 to 3, whole numbers, start 1" in out
    tune = tomllib.loads(Path("mixed/config.toml").read_text())["tune"]
    assert tune == {"actor_lr+critic_lr": "0.0001,0.001", "gamma": "float:0.9..0.999", "n_step": "int:1..3"}
    with Path("mixed/schedule.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        assert float(row["sample/0/actor_lr"]) in (1e-4, 1e-3)
        assert row["sample/0/actor_lr"] == row["sample/0/critic_lr"]
        assert row["champion/actor_lr"] == row["champion/critic_lr"]
        assert 0.9 <= float(row["sample/0/gamma"]) <= 0.999
    assert cli.main(["train", "--config", "mixed/config.toml", "--out", "again", "--quiet"]) == 0
    assert Path("again/schedule.csv").read_text() == Path("mixed/schedule.csv").read_text()


def test_tied_choices_with_an_agent_each():
    assert cli.main(["train", PROBE, *TINY, "--tune", "actor_lr+critic_lr=1e-4,1e-3", "--out", "arms"]) == 0
    with Path("arms/schedule.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            assert float(row["sample/0/actor_lr"]) == (1e-4, 1e-3)[int(float(row["sample/0/agent"]))]
            assert row["sample/0/actor_lr"] == row["sample/0/critic_lr"]


def trained_a_while() -> bool:
    return Path("run/metrics.csv").exists() and bool(Path("run/metrics.csv").read_text())


def saved_at_its_last_row() -> bool:
    newest = max(Path("run/checkpoint").glob("0*"))
    last_row = Path("run/metrics.csv").read_text().splitlines()[-1]
    return int(newest.name) == int(last_row.split(",")[1])


def test_ctrl_c_stops_after_the_iteration_and_says_how_to_go_on():
    words = [*TINY[:-1], "--out", "run", "--steps", "1e6", "--replay-size", "2000"]
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; from oht.cli import main; sys.exit(main())", "train", PROBE, *words],
        env={**os.environ, "PYTHONPATH": search_path(), "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not trained_a_while():
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "continue with: oht train --resume run" in out
    assert err.splitlines() == [f"oht: {STOPPING}."]
    assert saved_at_its_last_row()


def test_a_quiet_run_says_on_stderr_how_to_go_on(capsys):
    over = threading.Event()

    def interrupt() -> None:
        while not over.wait(0.01):
            if trained_a_while():
                os.kill(os.getpid(), signal.SIGINT)
                return

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        assert cli.main(["train", PROBE, *TINY, "--out", "run", "--steps", "1e6"]) == 130
    finally:
        over.set()
        thread.join()
    out, err = capsys.readouterr()
    assert out == ""
    announced, how = err.splitlines()
    assert announced == f"oht: {STOPPING}."
    assert "continue with: oht train --resume run" in how
    assert saved_at_its_last_row()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--tune", "n_step=1,2", "--tune", "n-step=3,5"], "--tune gives n_step twice, 1,2 and 3,5; give it once."),
        (["--env-arg", "g=9", "--env-arg", "g=1"], "--env-arg gives g twice, 9 and 1; give it once."),
    ],
)
def test_a_flag_that_names_the_same_twice_is_refused(words, sentence, capsys):
    assert cli.main(["train", "Pendulum-v1", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_an_env_object_is_refused_with_what_would_be_right():
    with pytest.raises(UserError, match="task is an env, but a run makes envs of its own: give its name, its class"):
        oht.train(FollowObservation())  # pyright: ignore[reportArgumentType]
