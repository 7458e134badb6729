"""What this process may use of the machine."""

import os


def core_numbers() -> list[int]:
    """The cores that the system allows, by number; empty where it has no such numbers."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def cores() -> int:
    """How many cores this process may use: NPROC, or what the system allows."""
    if os.environ.get("NPROC", "").isdecimal():
        return max(1, int(os.environ["NPROC"]))
    return len(core_numbers()) or os.cpu_count() or 1
