"""Roboschool's rules by hand-computed numbers, and that an episode is its seed and its actions, nothing else."""

from collections.abc import Iterator

import numpy as np
import pybullet
import pytest

from oht.envs import roboschool
from oht.envs.roboschool import DT, Ant, Body, Contacts, ForwardWalker, HalfCheetah, Joints, Walker2d

ROBOTS = (Ant, HalfCheetah, Walker2d)
DIMENSIONS = {Ant: (28, 8), HalfCheetah: (26, 6), Walker2d: (22, 6)}


@pytest.fixture(params=ROBOTS, ids=lambda robot: robot.__name__)
def env(request: pytest.FixtureRequest) -> Iterator[ForwardWalker]:
    env = request.param()
    yield env
    env.close()


def actions(env: ForwardWalker, count: int, seed: int = 0) -> np.ndarray:
    shape = (count, *(env.action_space.shape or ()))
    return np.random.default_rng(seed).uniform(-1.0, 1.0, shape).astype(np.float32)


def episode(env: ForwardWalker, seed: int, count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Observations and rewards of `count` steps, going on past the episode's end."""
    rows, rewards = [env.reset(seed=seed)[0]], []
    for action in actions(env, count, seed):
        obs, reward, *_ = env.step(action)
        rows.append(obs)
        rewards.append(reward)
    return np.array(rows), np.array(rewards)


def test_dimensions(env: ForwardWalker) -> None:
    obs, _ = env.reset(seed=0)
    assert (obs.shape, env.action_space.shape) == tuple((n,) for n in DIMENSIONS[type(env)])
    assert obs.dtype == np.float32
    assert all(env.observation_space.contains(row) for row in episode(env, 1)[0])


def test_engine_settings(env: ForwardWalker) -> None:
    env.reset(seed=0)
    engine = pybullet.getPhysicsEngineParameters(physicsClientId=env._client)
    assert engine["fixedTimeStep"] == pytest.approx(0.0165)
    assert engine["numSubSteps"] == 4
    assert engine["numSolverIterations"] == 5
    assert engine["gravityAccelerationZ"] == pytest.approx(-9.8)
    friction = pybullet.getDynamicsInfo(env._floor, -1, physicsClientId=env._client)[1]
    assert friction == pytest.approx(0.8)


def test_start_is_at_rest_with_every_joint_near_zero(env: ForwardWalker) -> None:
    angles = []
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        motors = len(env.coefficients)
        assert obs[0] == 0.0
        np.testing.assert_array_equal(obs[3:6], 0.0)  # velocity
        np.testing.assert_array_equal(obs[9 : 8 + 2 * motors : 2], 0.0)  # joint speeds
        np.testing.assert_array_equal(obs[8 + 2 * motors :], 0.0)  # foot contacts
        angles += [state[0] for state in pybullet.getJointStates(env._robot, env._driven, physicsClientId=env._client)]
    assert -0.1 <= min(angles) < -0.09
    assert 0.09 < max(angles) <= 0.1


def test_same_seed_same_episode_whatever_came_before(env: ForwardWalker) -> None:
    fresh = type(env)()
    expected = episode(fresh, seed=3)
    fresh.close()
    for before in (7, 3):
        episode(env, seed=before, count=90)
        for got, want in zip(episode(env, seed=3), expected, strict=True):
            np.testing.assert_array_equal(got, want)


def test_other_seed_other_start(env: ForwardWalker) -> None:
    assert not np.array_equal(env.reset(seed=0)[0], env.reset(seed=1)[0])


@pytest.mark.parametrize(
    ("robot", "power_times_coefficient"),
    [
        (Ant, [250.0] * 8),
        (HalfCheetah, [108.0, 81.0, 54.0, 126.0, 54.0, 27.0]),
        (Walker2d, [40.0, 40.0, 12.0, 40.0, 40.0, 12.0]),
    ],
)
def test_torques(robot: type[ForwardWalker], power_times_coefficient: list[float]) -> None:
    full = np.array(power_times_coefficient)
    env = robot()
    np.testing.assert_allclose(env.torques(np.full(full.shape, 0.5)), full / 2)
    np.testing.assert_allclose(env.torques(np.full(full.shape, 3.0)), full)
    np.testing.assert_allclose(env.torques(np.full(full.shape, -3.0)), -full)
    env.close()


def test_joints_are_in_the_order_of_their_coefficients() -> None:
    order = {
        HalfCheetah: ["bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot"],
        Walker2d: [f"{part}{side}_joint" for side in ("", "_left") for part in ("thigh", "leg", "foot")],
    }
    for robot, expected in order.items():
        env = robot()
        env.reset(seed=0)
        names = [pybullet.getJointInfo(env._robot, i, physicsClientId=env._client)[1].decode() for i in env._driven]
        env.close()
        assert names == expected


def test_motion_takes_the_clipped_action_and_costs_the_asked_one(env: ForwardWalker) -> None:
    ones = np.ones(len(env.coefficients))
    env.reset(seed=0)
    clipped, _, _, _, low = env.step(ones)
    env.reset(seed=0)
    asked, _, _, _, high = env.step(3.0 * ones)
    np.testing.assert_array_equal(asked, clipped)
    assert low["stall"] == pytest.approx(-0.1)
    assert high["stall"] == pytest.approx(-0.9)
    assert high["electricity"] == pytest.approx(3.0 * low["electricity"])
    assert low["electricity"] < 0.0


def test_pieces_sum_to_the_reward(env: ForwardWalker) -> None:
    env.reset(seed=0)
    for action in actions(env, 30):
        _, reward, _, _, pieces = env.step(action)
        assert set(pieces) == {"alive", "progress", "electricity", "stall", "joint_limits", "feet"}
        assert reward == pytest.approx(sum(pieces.values()))


def test_costs() -> None:
    action, speed = np.array([1.0, -0.5]), np.array([0.2, 0.4])
    assert roboschool.electricity_cost(action, speed) == pytest.approx(-2.0 * (0.2 + 0.2) / 2)
    assert roboschool.stall_cost(action) == pytest.approx(-0.1 * (1.0 + 0.25) / 2)
    assert roboschool.joint_limit_cost(np.array([0.98, 0.992, -0.995, 0.0, -1.3])) == pytest.approx(-0.6)
    assert roboschool.foot_cost(Contacts(floor=np.ones(4), other=np.array([0.0, 1.0, 1.0, 0.0]))) == -2.0


def test_progress_is_metres_per_second() -> None:
    before, after = (roboschool.potential(np.array([x, 0.0])) for x in (2.0, 2.0 + 3.0 * DT))
    assert after - before == pytest.approx(3.0)
    assert roboschool.potential(np.array([700.0, 400.0])) == pytest.approx(-500.0 / 0.0165)


def test_progress_adds_up_to_the_way_of_the_mean_link(env: ForwardWalker) -> None:
    def distance() -> float:
        count = pybullet.getNumJoints(env._robot, physicsClientId=env._client)
        states = [pybullet.getLinkState(env._robot, i, physicsClientId=env._client) for i in range(count)]
        return float(np.hypot(*(np.mean([s[0][:2] for s in states], axis=0) - [1000.0, 0.0])))

    env.reset(seed=0)
    start = distance()
    way = sum(env.step(action)[4]["progress"] for action in actions(env, 25)) * DT
    assert way == pytest.approx(start - distance(), abs=1e-9)
    assert abs(way) > 1e-4


def test_observation() -> None:
    half_pi = np.pi / 2
    body = Body(np.array([0.0, 1000.0]), 0.9, 0.1, -0.2, half_pi, np.array([1.0, 2.0, 3.0]))  # faces +y
    joints = Joints(position=np.array([0.5, -1.2]), speed=np.array([0.3, 60.0]))
    obs = roboschool.observe(body, joints, np.array([1.0, 0.0]), start_z=1.0)
    angle = -np.pi / 4 - half_pi  # the target lies at -45 degrees
    expected = [-0.1, np.sin(angle), np.cos(angle), 0.6, -0.3, 0.9, 0.1, -0.2, 0.5, 0.3, -1.2, 5.0, 1.0, 0.0]
    np.testing.assert_allclose(obs, expected, atol=1e-6)


def test_joint_position_is_relative_to_its_range() -> None:
    env = Walker2d()
    env.reset(seed=0)
    for joint, angle in zip(env._driven, np.deg2rad([0.0, -150.0, 45.0, -75.0, -37.5, -22.5]), strict=True):
        pybullet.resetJointState(env._robot, joint, angle, 2.0, physicsClientId=env._client)
    position, speed = env._joints()
    env.close()
    np.testing.assert_allclose(position, [1.0, -1.0, 1.0, 0.0, 0.5, -0.5], atol=1e-6)
    np.testing.assert_allclose(speed, 0.2)


@pytest.mark.parametrize(
    ("robot", "z", "pitch", "touching", "alive"),
    [
        (Ant, 0.27, 3.0, (0, 1, 2, 3), True),
        (Ant, 0.26, 0.0, (), False),
        (Walker2d, 0.81, -0.99, (0, 1), True),
        (Walker2d, 0.8, 0.0, (), False),
        (Walker2d, 1.2, 1.0, (), False),
        (Walker2d, 1.2, -1.0, (), False),
        (HalfCheetah, 0.0, 0.99, (0, 3), True),
        (HalfCheetah, 0.7, -1.0, (), False),
        *((HalfCheetah, 0.7, 0.0, (part,), False) for part in (1, 2, 4, 5)),
    ],
)
def test_alive(robot: type[ForwardWalker], z: float, pitch: float, touching: tuple[int, ...], alive: bool) -> None:
    env = robot()
    contacts = np.zeros(len(env.feet))
    contacts[list(touching)] = 1.0
    assert env.alive(z, pitch, contacts) is alive
    env.close()


def test_observation_and_end_know_the_contacts_of_the_step_before() -> None:
    env = HalfCheetah()
    before, changes = env.reset(seed=0)[0][-6:], 0
    for action in actions(env, 60):
        obs, _, terminated, _, _ = env.step(action)
        np.testing.assert_array_equal(obs[-6:], before)
        assert terminated == (before[[1, 2, 4, 5]].any() or abs(obs[7]) >= 1.0)
        touching = {p[3] for p in pybullet.getContactPoints(env._robot, env._floor, physicsClientId=env._client)}
        now = np.array([float(link in touching) for link in env._feet])
        changes += not np.array_equal(now, before)
        before = now
    env.close()
    assert changes > 5


def test_a_robot_ends_exactly_where_it_is_not_alive(env: ForwardWalker) -> None:
    ends = 0
    for seed in range(4):
        env.reset(seed=seed)
        for action in actions(env, 400, seed):
            _, _, terminated, truncated, pieces = env.step(action)
            assert not truncated
            assert pieces["alive"] == (-1.0 if terminated else 1.0)
            ends += terminated
    assert ends > 0


def test_a_non_finite_observation_ends_the_episode(env: ForwardWalker, monkeypatch: pytest.MonkeyPatch) -> None:
    env.reset(seed=0)
    body = env._body()._replace(velocity=np.array([np.nan, 0.0, 0.0]))
    monkeypatch.setattr(env, "_body", lambda: body)
    _, _, terminated, _, pieces = env.step(np.zeros(len(env.coefficients)))
    assert terminated
    assert pieces["alive"] == 1.0


def test_a_non_finite_action_is_refused(env: ForwardWalker) -> None:
    env.reset(seed=0)
    with pytest.raises(ValueError, match="must be finite"):
        env.step(np.full(len(env.coefficients), np.nan))


def test_close_twice(env: ForwardWalker) -> None:
    env.reset(seed=0)
    env.close()
    env.close()
    assert env._client == -1
