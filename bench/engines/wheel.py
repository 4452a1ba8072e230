"""The embedded engine's package, seen from outside: version, shared library, abilities. It is never imported here."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.engines.environment import server_env
from bench.errors import ArmError

PACKAGE = "xllamacpp"
MODULE = "bench.engines.embedded"
_ROOT = Path(__file__).resolve().parents[2]
_DESCRIBE_LIMIT_S = 60.0


@dataclass(frozen=True)
class Wheel:
    """What the installed package can do."""

    version: str
    library: Path
    build_info: str
    gpus: tuple[str, ...]
    spec_types: tuple[str, ...]
    kv_types: tuple[str, ...]
    unsupported: tuple[str, ...]
    """llama-server flags that the package has no parameter for."""


def command() -> list[str]:
    """The command that runs the embedded engine; llama-server's flags follow it."""
    # -P: the working directory must not shadow a module. -u: nothing of the log may sit in a buffer at a crash.
    return [sys.executable, "-P", "-u", "-m", MODULE]


def module_env(env: dict[str, str]) -> dict[str, str]:
    """The environment in which `command()` finds this package, installed or not."""
    paths = [str(_ROOT), *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    return {**env, "PYTHONPATH": os.pathsep.join(paths)}


@functools.cache
def describe() -> Wheel:
    """Ask the package, in a process of its own (loading it takes 100 MB). Raises ArmError `engine_unavailable`."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise ArmError(
            "engine_unavailable",
            f"the embedded engine needs the package {PACKAGE}, which is not installed here",
            advice="run ./invoke once to install it, or name a llama-server with --server",
        )
    try:
        done = subprocess.run(
            [*command(), "--describe"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            env=module_env(server_env({})),
            timeout=_DESCRIBE_LIMIT_S,
            check=True,
        )
        said = json.loads(done.stdout.strip().splitlines()[-1])
        return Wheel(
            version=importlib.metadata.version(PACKAGE),
            library=Path(said["library"]),
            build_info=said["build_info"],
            gpus=tuple(said["gpus"]),
            spec_types=tuple(said["spec_types"]),
            kv_types=tuple(said["kv_types"]),
            unsupported=tuple(said["unsupported"]),
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
        raise ArmError("engine_unavailable", f"{PACKAGE} cannot be loaded: {last}") from error
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, IndexError) as error:
        raise ArmError("engine_unavailable", f"{PACKAGE} cannot be asked what it can do: {error}") from error


def file_sha256(path: Path) -> str:
    """sha256 of a file; hashed once per path, size and time of change."""
    stat = path.stat()
    return _sha256(path, stat.st_size, stat.st_mtime_ns)


@functools.cache
def _sha256(path: Path, size: int, mtime_ns: int) -> str:  # noqa: ARG001 - they are the cache's key
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
