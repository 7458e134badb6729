"""Videos: what is filmed is what the run plays, in a file that opens; where nothing can draw, one sentence."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import Image, ImageSequence

import oht
from environments import FollowObservation
from oht import cli
from oht.envs import rendered
from oht.envs.rendered import Scene
from oht.errors import UserError
from oht.report import videos
from test_training import TINY


class Drawn(FollowObservation):
    """A square that lies where the observation is."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None):
        super().__init__()
        self.render_mode = render_mode

    def reset(self, **options: Any):
        self.seen, info = super().reset(**options)
        return self.seen, info

    def step(self, action: Any):
        result = super().step(action)
        self.seen = result[0]
        return result

    def render(self) -> Any:
        picture = np.full((40, 61, 3), 200, np.uint8)
        place = int(np.clip(25 + 25 * self.seen[0], 0, 50))
        picture[20:30, place : place + 10] = (255, 0, 0)
        return picture


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> oht.Run:
    out = tmp_path_factory.mktemp("drawn") / "run"
    return oht.train(Drawn, out=out, **{**TINY, "steps": 60})


def test_the_return_in_the_corner_is_that_of_the_evaluation(run, tmp_path, monkeypatch):
    told: list[videos.Frame] = []
    monkeypatch.setattr(videos, "captioned", lambda frame: told.append(frame) or Image.fromarray(frame[0]))
    path = run.video(tmp_path / "clip.gif", episodes=2, seed=3)
    returns = run.evaluate(episodes=2, seed=3)
    texts = [text for _, text in told]
    for number, total in enumerate(returns, 1):
        last = [text for text in texts if text.startswith(f"episode {number}: ")][-1]
        assert last == f"episode {number}: return {total:.1f}"
    with Image.open(path) as clip:
        shown = [(frame.info["duration"], frame.convert("RGB").tobytes()) for frame in ImageSequence.Iterator(clip)]
    assert sum(duration for duration, _ in shown) == 100 * len(told)  # equal neighbours are one frame
    assert len({picture for _, picture in shown}) > 3  # it moves
    assert [entry.name for entry in tmp_path.iterdir()] == ["clip.gif"]


def test_an_mp4_of_the_run_folder(run):
    path = run.video()
    assert path == run.path / "video.mp4"
    import imageio_ffmpeg

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    read = subprocess.run(command, capture_output=True, check=True)
    assert re.search(r"60x40.* 10 fps", read.stderr.decode())  # even numbers
    frames = np.frombuffer(read.stdout, np.uint8).reshape(-1, 40, 60, 3)
    assert len(frames) > 10
    assert np.ptp(frames.astype(int), axis=0).max() > 50  # it moves


def test_what_ffmpeg_refuses_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", lambda: "false")
    frames = [(np.zeros((40, 60, 3), np.uint8), "return 0.0")] * 100
    with pytest.raises(UserError, match=r"clip\.mp4 cannot be written: ffmpeg failed"):
        videos.write(tmp_path / "clip.mp4", iter(frames), 30)
    assert not [*tmp_path.iterdir()]


def test_the_text_lies_in_the_corner():
    picture = np.full((100, 200, 3), 255, np.uint8)
    drawn = np.asarray(videos.captioned((picture, "return -12.3")))
    assert (drawn[60:] == 255).all()
    assert (drawn[:, 150:] == 255).all()
    assert drawn[:30, :100].min() < 60


def test_pendulum_is_filmed_by_a_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--algo", "uniform", "--steps", "60", "--start-steps", "20", "--max-episode", "20", "--eval-episodes", "1"]
    words += ["--replay-size", "100", "--tensorboard", "no", "--quiet", "--out", "run"]
    assert cli.main(["train", "Pendulum-v1", *words]) == 0
    assert cli.main(["video", "run", "--best", "--out", "clip.gif"]) == 0
    assert capsys.readouterr().out == "clip.gif\n"
    with Image.open("clip.gif") as clip:
        assert clip.size == (videos.GIF_WIDTH, videos.GIF_WIDTH)
        assert clip.n_frames > 5  # pyright: ignore[reportAttributeAccessIssue]
    for words, sentence in (
        (["--out", "clip.avi"], "clip.avi must end in .mp4 or .gif."),
        (["--out", "none/clip.gif"], "the folder none does not exist"),
        (["--episodes", "0"], "episodes is 0, but must be"),
    ):
        assert cli.main(["video", "run", *words]) == 2
        err = capsys.readouterr().err
        assert sentence in err
        assert err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == ["clip.gif", "run"]
    assert not (Path("run") / "video.mp4").exists()


def test_without_ffmpeg_an_mp4_is_refused_and_a_gif_is_not(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UserError, match=r"imageio-ffmpeg: pip install 'oht\[video\]', or choose a \.gif"):
        videos.check(tmp_path / "clip.mp4")
    videos.check(tmp_path / "clip.gif")


# What cannot be drawn


class Broken(Drawn):
    def render(self) -> Any:
        raise RuntimeError("no screen")


class Text(Drawn):
    def render(self) -> Any:
        return "a picture"


class Fails(Drawn):
    def reward(self, action: np.ndarray) -> float:
        raise RuntimeError("the motor is gone")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (Fails, "Fails cannot take a step here: RuntimeError: the motor is gone"),
        (FollowObservation, "FollowObservation cannot be drawn: let it take render_mode='rgb_array'"),
        (Broken, "Broken cannot be drawn here: RuntimeError: no screen"),
        (Text, "no RGB picture"),
    ],
)
def test_an_env_that_cannot_draw_is_one_sentence(make, sentence, run, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "setup", run.setup._replace(env=make))
    with pytest.raises(UserError, match=re.escape(sentence)):
        run.video(tmp_path / "clip.gif")
    assert not [*tmp_path.iterdir()]


def test_an_env_that_was_trained_with_a_render_mode_gets_that_of_the_video():
    """Its maker takes one, then, though it does not name it."""
    env = rendered.asked_to_draw(lambda **options: gymnasium.make("Pendulum-v1", **options), render_mode="human")
    assert env.render_mode == "rgb_array"
    env.close()


def test_other_observations_than_the_policys_are_refused():
    with pytest.raises(UserError, match="has 1 observations and 1 actions, but the policy was trained with 5 and 1"):
        Scene(Drawn, 5, 1)


def test_missing_packages_and_renderers_are_named(monkeypatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise gymnasium.error.DependencyNotInstalled("pygame is not installed")

    monkeypatch.setattr(gymnasium, "make", refuse)
    with pytest.raises(UserError, match=r"pygame is not installed; pip install 'oht\[video\]'"):
        Scene("Pendulum-v1", 3, 1)
    for name in ("MUJOCO_GL", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    with pytest.raises(UserError, match=r"install EGL .* or OSMesa"):
        rendered._choose_opengl()
    monkeypatch.setattr("ctypes.util.find_library", lambda name: "libOSMesa.so" if name == "OSMesa" else None)
    monkeypatch.setenv("MUJOCO_GL", "")
    rendered._choose_opengl()
    assert rendered.os.environ["MUJOCO_GL"] == "osmesa"


def test_the_equal_of_an_envpool_task_needs_its_package(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setitem(sys.modules, "dm_control", None)
    with pytest.raises(UserError, match="EnvPool, which draws nothing; its equal that does needs dm_control"):
        Scene("dm/walker-run", 24, 6)


SIMULATED = {"robo/walker2d": (22, 6), "bullet/half-cheetah": (26, 6), "gym/ant": (105, 8), "dm/walker-run": (24, 6)}
PLAY = """
import sys
import numpy as np
from oht.envs.pool import open_pool
from oht.envs.rendered import Scene
from oht.errors import UserError
task, obs, action = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
try:
    scene = Scene(task, obs, action)
    first = scene.reset(3)
    before = scene.picture()
except UserError as error:
    sys.exit(f"cannot draw: {error}")
for _ in range(20):
    after = scene.step(np.full(action, 0.7, np.float32))[0]
assert before.shape == (240, 320, 3) and (scene.picture() != before).mean() > 0.005
pool = open_pool(task, 1, max_episode=20)
(episode,) = pool.rollout(lambda t, obs: np.full((1, action), 0.7, np.float32), [3])
scene.close(), pool.close()
if task in ("robo/walker2d", "bullet/half-cheetah"):  # the very same env
    np.testing.assert_allclose(episode.obs[0], first, atol=1e-6)
    np.testing.assert_allclose(episode.obs[20], after, atol=1e-4)
else:  # the same numbers in the same places, up to the noise of the start; the joints of dm/walker-run start anywhere
    same = slice(14, None) if task == "dm/walker-run" else slice(None)
    np.testing.assert_allclose(episode.obs[0][same], first[same], atol=0.7)
"""


@pytest.mark.parametrize("task", SIMULATED)
def test_the_tasks_of_the_paper_are_drawn(task):
    """In a process of its own: OpenGL is chosen once for a process, and simulators print."""
    sizes = map(str, SIMULATED[task])
    environ = {
        name: value for name, value in os.environ.items() if name != "MUJOCO_GL"
    }  # set by packages that were imported before
    command = [sys.executable, "-c", PLAY, task, *sizes]
    process = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if "MuJoCo has nothing to draw with" in process.stderr:
        pytest.skip("neither EGL nor OSMesa is installed")
    assert process.returncode == 0, process.stderr


def test_the_env_that_draws_has_the_arguments_of_the_run():
    for arguments in ({"g": 5.0}, {"g": 5.0, "render_mode": "human"}):
        scene = rendered.Scene("Pendulum-v1", 3, 1, arguments)
        assert scene._env.unwrapped.g == 5.0  # pyright: ignore[reportAttributeAccessIssue]
        assert scene._env.render_mode == "rgb_array"
        scene.close()
