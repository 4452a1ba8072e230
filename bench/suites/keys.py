"""Every key of a suite.toml, with what it means."""

from __future__ import annotations

SUITE_KEYS = {
    "title": "Name of the suite in reports.",
    "max_tokens": "Token limit of an answer, reasoning included.",
    "request_limit_s": "Total time limit of a request, seconds. Default 900.",
    "grading": "Defaults for grading.",
    "level": "The levels, in order.",
}
GRADING_KEYS = {"level_limit_s": "Time limit of a level's hidden tests, seconds. Default 30."}
LEVEL_KEYS = {
    "id": "Id of the level, and the name of its folder.",
    "title": "Name of the level in reports.",
    "points": "Points for passing it.",
    "entry": "List of names that an answer must define at module level; the code is found by them.",
    "limit_s": "Time limit of this level's hidden tests, seconds, in place of the default.",
    "tests": "List of test ids, needed only where the hidden tests use pytest's parametrization.",
}
