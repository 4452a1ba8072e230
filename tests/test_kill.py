"""Kill the bench at five moments of one run, carry it on each time, and compare with a run that nobody disturbed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kill import Moment, campaign
from tests.cli import small_suite

pytestmark = [pytest.mark.model, pytest.mark.slow]

MOMENTS = [
    Moment(1, "run", 0.0),  # the run's first row is stored, its plan perhaps not
    Moment(1, "loading", 0.4),  # while the server loads
    Moment(2, "question", 1.0),  # in the middle of the second answer
    Moment(1, "graded", 0.0),  # where a verdict has just been stored
    Moment(3, "question", 0.3),
]


def test_a_run_that_is_killed_five_times_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    tally = campaign(tmp_path, MOMENTS, 1, small_suite(tmp_path, 5))
    assert tally.kills == 5
    assert tally.resumed >= 4
    assert tally.runs == 1
