"""How `./invoke test` shares the tests out among its processes (pytest-xdist).

A file stays in one process: its fixtures are made once. The files that look at the Docker engine's containers and
images are one piece, as each would take the others' for leftovers. Long pieces start first.
"""

from __future__ import annotations

from typing import Any

import pytest

DOCKER = "docker"
DOCKER_FILES = frozenset(
    {
        "test_bench_container.py",
        "test_container_engine.py",
        "test_engine_restart.py",
        "test_faults.py",
        "test_image.py",
        "test_image_real.py",
    }
)
LONG = (DOCKER, "test_bench.py", "test_kill.py", "test_attacks.py", "test_store.py", "test_verdicts.py")


def piece(file: str) -> str:
    """What is run in one process: the file's name, or one name for all that need the Docker engine."""
    return DOCKER if file in DOCKER_FILES else file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long pieces first."""
    order = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(piece(item.path.name), len(LONG)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The scheduler that knows the pieces. (`--dist loadgroup` of pytest-xdist 3.8 groups nothing under pytest 9.2.)"""
    from xdist.scheduler import LoadScopeScheduling

    class Pieces(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return piece(nodeid.split("::")[0].rsplit("/")[-1])

    config.option.loadscopereorder = False  # it would order by the number of tests
    return Pieces(config, log)
