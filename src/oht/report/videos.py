"""Pictures to an MP4 or a GIF file, with a text in the corner of each."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from oht.errors import UserError
from oht.runs import refused

Frame = tuple[np.ndarray, str]  # a picture (height, width, 3) and the text in its corner
GIF_FPS, GIF_WIDTH, GIF_COLOURS = 20, 280, 64  # a GIF is for pages: few pictures, small ones
KINDS = (".mp4", ".gif")


def check(path: Path) -> None:
    """Refuse a file that could not be written, before anything is played."""
    if path.suffix not in KINDS:
        raise UserError(f"{path} must end in .mp4 or .gif.")
    if not path.parent.is_dir():
        raise UserError(f"{path} cannot be written: the folder {path.parent} does not exist.")
    if path.suffix == ".mp4":
        try:
            import imageio_ffmpeg

            imageio_ffmpeg.get_ffmpeg_exe()
        except (ImportError, RuntimeError):
            raise UserError(
                "an MP4 needs the package imageio-ffmpeg: pip install 'oht[video]', or choose a .gif."
            ) from None


def write(path: Path, frames: Iterator[Frame], fps: float) -> Path:
    """Write all frames; the file appears when it is complete."""
    aside = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        with refused(path):
            (_mp4 if path.suffix == ".mp4" else _gif)(aside, frames, fps)
            os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    return path


def _mp4(path: Path, frames: Iterator[Frame], fps: float) -> None:
    """By ffmpeg. The process is started here: imageio-ffmpeg would fork, which JAX warns about."""
    import imageio_ffmpeg

    first = next(frames)
    height, width = (side - side % 2 for side in first[0].shape[:2])  # most players want even numbers
    pixels = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-"]
    coded = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(path)]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-y", *pixels, *coded]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stderr
        with contextlib.suppress(BrokenPipeError):  # ffmpeg has failed, and says why
            for frame in chain([first], frames):
                process.stdin.write(np.ascontiguousarray(np.asarray(captioned(frame))[:height, :width]).tobytes())
            process.stdin.close()
        problem = process.stderr.read().decode(errors="replace").strip()
    if process.returncode:
        raise OSError(f"ffmpeg failed: {problem or process.returncode}")


def _gif(path: Path, frames: Iterator[Frame], fps: float) -> None:
    every = max(1, round(fps / GIF_FPS))
    small = (_shrunk(captioned(frame)) for frame in islice(frames, 0, None, every))
    first = next(small)
    palette = first.quantize(GIF_COLOURS)  # one for all, so that only what moves changes
    pictures = (picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in chain([first], small))
    duration = 10 * round(100 * every / fps)  # milliseconds; a GIF counts in hundredths of a second
    options: dict[str, Any] = {"save_all": True, "append_images": pictures, "duration": duration, "loop": 0}
    next(pictures).save(path, optimize=False, disposal=1, **options)


def _shrunk(picture: Image.Image) -> Image.Image:
    width, height = picture.size
    if width <= GIF_WIDTH:
        return picture
    return picture.resize((GIF_WIDTH, round(height * GIF_WIDTH / width)), Image.Resampling.LANCZOS)


def captioned(frame: Frame) -> Image.Image:
    """The picture with its text in the upper left corner, light on dark."""
    picture = Image.fromarray(frame[0])
    font = ImageFont.load_default(max(10, picture.height // 18))
    draw = ImageDraw.Draw(picture)
    margin = picture.height // 40
    left, top, right, bottom = draw.textbbox((2 * margin, 2 * margin), frame[1], font=font)
    draw.rectangle((left - margin, top - margin, right + margin, bottom + margin), fill=(30, 30, 30))
    draw.text((2 * margin, 2 * margin), frame[1], font=font, fill=(255, 255, 255))
    return picture
