"""Roboschool's Ant, HalfCheetah and Walker2d on PyBullet.

Roboschool itself no longer installs. Its engine was Bullet and its models ship with PyBullet, so what is written here
is its rules: physics settings, torques, observation, reward, the end of an episode. The time limit is set elsewhere.
"""

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
import pybullet
import pybullet_data
from gymnasium.spaces import Box
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

MODELS = Path(pybullet_data.getDataPath()) / "mjcf"
SELF_COLLISION = pybullet.URDF_USE_SELF_COLLISION | pybullet.URDF_USE_SELF_COLLISION_EXCLUDE_ALL_PARENTS
GRAVITY = 9.8
FRAME_SKIP = 4
DT = 0.0165  # seconds that one action lasts, FRAME_SKIP physics steps
PICTURE = (320, 240)  # pixels of a rendered picture, width and height
TARGET = np.array([1000.0, 0.0])  # a kilometre ahead: walking there is walking along x


class Body(NamedTuple):
    """Where the robot is: x and y of the whole robot, all else of its torso."""

    xy: Array
    z: float
    roll: float
    pitch: float
    yaw: float
    velocity: Array


class Joints(NamedTuple):
    """All driven joints, in the model's order."""

    position: Array  # -1 and 1 are the ends of a joint's range
    speed: Array  # in 10 rad/s


class Contacts(NamedTuple):
    """One entry per foot: 1 where it touches, else 0."""

    floor: Array
    other: Array


class Reward(NamedTuple):
    """The pieces of one step's reward; the reward is their sum."""

    alive: float
    progress: float
    electricity: float
    stall: float
    joint_limits: float
    feet: float


def potential(xy: Array) -> float:
    """-|TARGET - xy| / DT: its change in one step is the speed towards the target in metres per second."""
    return -float(np.hypot(*(TARGET - xy))) / DT


def electricity_cost(action: Array, speed: Array) -> float:
    """-2 mean|a v|: power of the motors, braking included."""
    return -2.0 * float(np.abs(action * speed).mean())


def stall_cost(action: Array) -> float:
    """-0.1 mean(a^2): current through a motor, even one that does not move."""
    return -0.1 * float(np.square(action).mean())


def joint_limit_cost(position: Array) -> float:
    """-0.2 for each joint within half a percent of an end of its range, or beyond."""
    return -0.2 * float(np.count_nonzero(np.abs(position) > 0.99))


def foot_cost(contacts: Contacts) -> float:
    """-1 for each foot that touches something other than the floor."""
    return -float(contacts.other.sum())


def observe(body: Body, joints: Joints, floor: Array, start_z: float) -> NDArray[np.float32]:
    """Height, direction to the target, velocity and tilt as seen by the torso, then joints, then feet; within +-5."""
    to_x, to_y = TARGET - body.xy
    angle = np.arctan2(to_y, to_x) - body.yaw
    sin, cos = np.sin(body.yaw), np.cos(body.yaw)
    vx, vy, vz = body.velocity
    velocity = (cos * vx + sin * vy, cos * vy - sin * vx, vz)  # rotated by -yaw
    torso = [body.z - start_z, np.sin(angle), np.cos(angle), *(0.3 * v for v in velocity), body.roll, body.pitch]
    pairs = np.stack([joints.position, joints.speed], axis=1).ravel()
    return np.clip(np.concatenate([torso, pairs, floor]), -5.0, 5.0).astype(np.float32)


class ForwardWalker(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """A robot that is rewarded for walking along x; subclasses define model, motors, feet and when it is alive."""

    model: ClassVar[str]
    power: ClassVar[float]
    coefficients: ClassVar[tuple[float, ...]]  # one per driven joint; the torque is power x coefficient x action
    feet: ClassVar[tuple[str, ...]]
    metadata = {"render_modes": ["rgb_array"], "render_fps": round(1 / DT)}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        motors, feet = len(self.coefficients), len(self.feet)
        self.action_space = Box(-1.0, 1.0, (motors,), np.float32)
        self.observation_space = Box(-5.0, 5.0, (8 + 2 * motors + feet,), np.float32)
        self._client = pybullet.connect(pybullet.DIRECT)

    @abstractmethod
    def alive(self, z: float, pitch: float, contacts: Array) -> bool:
        """Whether the robot still stands, given its torso and the feet's floor contacts of the step before."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, float]]:
        super().reset(seed=seed)
        self._load()
        for joint, angle in zip(self._driven, self.np_random.uniform(-0.1, 0.1, len(self._driven)), strict=True):
            pybullet.resetJointState(self._robot, joint, angle, 0.0, physicsClientId=self._client)
        body = self._body()
        self._start_z = body.z
        self._potential = potential(body.xy)
        self._floor_contacts = np.zeros(len(self.feet))
        return observe(body, self._joints(), self._floor_contacts, self._start_z), {}

    def step(self, action: ArrayLike) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, float]]:
        """The torque is clipped, the costs are those of the action as it was asked for."""
        a = np.asarray(action, dtype=np.float64)
        if not np.isfinite(a).all():
            raise ValueError(f"an action must be finite, this one is {a.tolist()}")
        self._apply(a)
        body, joints = self._body(), self._joints()
        # Observation and survival use the contacts of the step before, as in Roboschool.
        obs = observe(body, joints, self._floor_contacts, self._start_z)
        alive = self.alive(body.z, body.pitch, self._floor_contacts)
        contacts = self._contacts()
        self._floor_contacts = contacts.floor
        before, self._potential = self._potential, potential(body.xy)
        reward = Reward(
            alive=1.0 if alive else -1.0,
            progress=self._potential - before,
            electricity=electricity_cost(a, joints.speed),
            stall=stall_cost(a),
            joint_limits=joint_limit_cost(joints.position),
            feet=foot_cost(contacts),
        )
        return obs, sum(reward), not alive or not bool(np.isfinite(obs).all()), False, reward._asdict()

    def render(self) -> Any:
        """A picture by PyBullet's software renderer; the camera stays beside the robot."""
        (x, y), (width, height) = self._body().xy, PICTURE
        view = pybullet.computeViewMatrixFromYawPitchRoll((x, y, 0.7), 3.5, 0.0, -15.0, 0.0, 2)
        lens = pybullet.computeProjectionMatrixFOV(60.0, width / height, 0.1, 100.0)
        options = {"renderer": pybullet.ER_TINY_RENDERER, "physicsClientId": self._client}
        pixels = pybullet.getCameraImage(width, height, view, lens, **options)[2]
        return np.reshape(pixels, (height, width, 4))[..., :3].astype(np.uint8)

    def close(self) -> None:
        if self._client >= 0:
            pybullet.disconnect(self._client)
            self._client = -1

    def torques(self, action: Array) -> Array:
        """power x coefficient x clip(a, -1, 1), in newton metres."""
        return self.power * np.array(self.coefficients) * np.clip(action, -1.0, 1.0)

    def _load(self) -> None:
        """A new world. Bullet's caches of old contacts outlive a reset of positions, so nothing is kept."""
        client = self._client
        pybullet.resetSimulation(physicsClientId=client)
        pybullet.setGravity(0.0, 0.0, -GRAVITY, physicsClientId=client)
        pybullet.setPhysicsEngineParameter(
            fixedTimeStep=DT,
            numSubSteps=FRAME_SKIP,
            numSolverIterations=5,
            contactERP=0.9,
            deterministicOverlappingPairs=1,
            physicsClientId=client,
        )
        (self._floor,) = pybullet.loadMJCF(str(MODELS / "ground_plane.xml"), physicsClientId=client)
        (self._robot,) = pybullet.loadMJCF(str(MODELS / self.model), flags=SELF_COLLISION, physicsClientId=client)
        count = pybullet.getNumJoints(self._robot, physicsClientId=client)
        info = [pybullet.getJointInfo(self._robot, i, physicsClientId=client) for i in range(count)]
        links = {row[12].decode(): row[0] for row in info}  # a link has the index of the joint above it
        self._links = list(range(count))
        self._torso = links.get("torso")  # Ant's torso is the base, not a link
        self._feet = [links[name] for name in self.feet]
        movable = [row for row in info if row[2] != pybullet.JOINT_FIXED]
        driven = [row for row in movable if not row[1].startswith(b"ignore")]  # those hold a planar robot in its plane
        self._driven = [row[0] for row in driven]
        self._low = np.array([row[8] for row in driven])
        self._high = np.array([row[9] for row in driven])
        # PyBullet starts every joint with a motor that brakes it; a force of zero lets it go.
        pybullet.setJointMotorControlArray(
            self._robot,
            [row[0] for row in movable],
            pybullet.VELOCITY_CONTROL,
            forces=[0.0] * len(movable),
            physicsClientId=client,
        )
        for link in (-1, *self._links) if self.render_mode else ():  # the models are white, as is the sky
            pybullet.changeVisualShape(self._robot, link, rgbaColor=(0.8, 0.45, 0.15, 1.0), physicsClientId=client)

    def _apply(self, action: Array) -> None:
        pybullet.setJointMotorControlArray(
            self._robot,
            self._driven,
            pybullet.TORQUE_CONTROL,
            forces=self.torques(action).tolist(),
            physicsClientId=self._client,
        )
        pybullet.stepSimulation(physicsClientId=self._client)

    def _body(self) -> Body:
        client = self._client
        links = pybullet.getLinkStates(self._robot, self._links, computeLinkVelocity=1, physicsClientId=client)
        if self._torso is None:
            position, orientation = pybullet.getBasePositionAndOrientation(self._robot, physicsClientId=client)
            velocity, _ = pybullet.getBaseVelocity(self._robot, physicsClientId=client)
        else:
            position, orientation, *_, velocity, _ = links[self._torso]
        xy = np.array([link[0][:2] for link in links]).mean(axis=0)
        roll, pitch, yaw = pybullet.getEulerFromQuaternion(orientation)
        return Body(xy, position[2], roll, pitch, yaw, np.array(velocity))

    def _joints(self) -> Joints:
        states = pybullet.getJointStates(self._robot, self._driven, physicsClientId=self._client)
        angle, speed = np.array([state[:2] for state in states]).T
        return Joints(2.0 * (angle - self._low) / (self._high - self._low) - 1.0, 0.1 * speed)

    def _contacts(self) -> Contacts:
        points = pybullet.getContactPoints(self._robot, physicsClientId=self._client)
        floor = {point[3] for point in points if point[2] == self._floor}
        other = {link for point in points if point[2] != self._floor for link in point[3:5]}
        return Contacts(
            np.array([float(foot in floor) for foot in self._feet]),
            np.array([float(foot in other) for foot in self._feet]),
        )


class Ant(ForwardWalker):
    model = "ant.xml"
    power = 2.5
    coefficients = (100.0,) * 8
    feet = ("front_left_foot", "front_right_foot", "left_back_foot", "right_back_foot")

    def alive(self, z: float, pitch: float, contacts: Array) -> bool:
        """z > 0.26: the torso, a ball of radius 0.25, does not scrape the ground."""
        return z > 0.26


class HalfCheetah(ForwardWalker):
    model = "half_cheetah.xml"
    power = 0.90
    coefficients = (120.0, 90.0, 60.0, 140.0, 60.0, 30.0)  # thigh, shin, foot: back, then front
    feet = ("ffoot", "fshin", "fthigh", "bfoot", "bshin", "bthigh")

    def alive(self, z: float, pitch: float, contacts: Array) -> bool:
        """|pitch| < 1 and only the real feet touch the ground: no walking on shins or thighs."""
        return abs(pitch) < 1.0 and not contacts[[1, 2, 4, 5]].any()


class Walker2d(ForwardWalker):
    model = "walker2d.xml"
    power = 0.40
    coefficients = (100.0, 100.0, 30.0, 100.0, 100.0, 30.0)  # thigh, leg, foot: right, then left
    feet = ("foot", "foot_left")

    def alive(self, z: float, pitch: float, contacts: Array) -> bool:
        """z > 0.8 and |pitch| < 1: upright."""
        return z > 0.8 and abs(pitch) < 1.0
