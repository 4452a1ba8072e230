"""What the columns of the views hold, a sentence each: for the data dictionary in docs/.

A column's sentence is the one under its view, else that of the first table or view that TAKEN_FROM names for the view
and that has such a column, else the one under `*`. A test holds every entry against the views.
"""

from __future__ import annotations

from bench.store.schema import TABLES, schema
from bench.store.view_columns_compared import COMPARED

TAKEN_FROM: dict[str, tuple[str, ...]] = {
    "arm_summary": ("arms",),
    "arms_latest": ("arms",),
    "cells": ("generations", "headline_grades", "plan"),
    "decisions_latest": ("decisions",),
    "generations_latest": ("generations",),
    "grades_latest": ("headline_grades",),
    "headline_grades": ("grades",),
    "identities": ("generations",),
    "levels": ("plan",),
    "named_arms": ("arms",),
    "plan_latest": ("plan",),
    "probe_caveats": ("caveats",),
    "probe_drift": ("probes",),
    "probe_measurements": ("probes",),
    "probe_summary": ("probes",),
    "published_once": ("published",),
    "reviews_latest": ("reviews",),
    "runs_latest": ("runs",),
}
"""Tables and views from which a view has columns of the same name and meaning."""


def _docs(table: str) -> dict[str, str]:
    return {field.name: (field.metadata or {})[b"doc"].decode() for field in schema(table)}


_KEYS = ("run_id", "arm_id", "suite_id", "level_id", "iteration", "level_index", "level_title")

COLUMNS: dict[str, dict[str, str]] = {
    "*": {
        **{name: text for name, text in _docs("plan").items() if name in _KEYS},
        "identity": "Hash of what an arm's numbers depend on apart from the question: model file, server build and "
        "binary, GPU, driver, preset. NULL where nothing was answered, and for printed figures.",
        "in_plan": "Whether the plan asks for this answer; NULL in a run without a plan.",
        "level_points": "Points of the level.",
        "comparable_group": "Arms of a run with the same number may be compared; NULL where the arm never answered.",
    },
    "runs_latest": {
        "started_at": "When the first state of the run was reached.",
        "event_at": "When the newest state was reached.",
    },
    "arms_latest": {
        "planned_at": "When the first state of the arm was reached.",
        "event_at": "When the newest state was reached.",
    },
    "levels": {"title": "Title of the level."},
    "generations_latest": {
        "complete": "Whether the outcome says something about the model; the rest is the server's or the network's.",
    },
    "headline_grades": {
        "grade_kind": "Always headline.",
        "outcome": "passed, or the kind of failure; tampering where a person rejected it, not_measured for no verdict.",
        "suspect": "Whether the verdict has a mark that nobody has decided on yet.",
        "decision": "What a person decided: accepted or rejected; NULL while nobody has.",
        "reviewer": "Who decided; NULL while nobody has.",
        "review_note": "Why it was decided so.",
        "decided_at": "When it was decided; NULL while nobody has.",
        "verdict_passed": "Whether the tests pass, suspect or not; false when rejected, NULL when not measured.",
        "passed": "Whether the level counts as passed: a suspect verdict does not. NULL when not measured.",
        "points": "Points that count; 0 while suspect or when rejected, NULL when not measured.",
        "verdict_points": "Points by the tests, suspect or not; 0 when rejected, NULL when not measured.",
    },
    "cells": {
        "planned": "Whether the answer is one that the plan asks for, or the run has no plan.",
        "planned_grading_hash": "What changes verdicts, as planned; NULL for what is not planned.",
        "generation_id": "The answer that counts; NULL where none was asked for.",
        "code_rule": "The rule that found the code that was graded.",
        "complete": "Whether its outcome says something about the model; NULL without an answer.",
        "took_ms": "Client: to the last token, or else to the end of the stream.",
        "decode_tps": "Decode rate from the server's timings; NULL where several questions were asked at a time.",
        "prompt_tps": "Prompt rate from the server's timings; NULL where several questions were asked at a time.",
        "first_token_ms": "Client: to the first token of any kind; NULL where several questions were asked at a time.",
        "first_answer_ms": "Client: to the first token of the answer; NULL like first_token_ms.",
        "answer_s": "Client: seconds to the last token; NULL where several questions were asked at a time.",
        "generation_outcome": "Outcome of the request: ok, time_limit, server_error, ...",
        "generation_detail": "What the server or the transport said.",
        "grade_id": "The grade that counts; NULL where the answer was not graded.",
        "outcome": "Outcome of the grade: passed, or the kind of failure; NULL where the answer was not graded.",
        "measured": "Whether there is a verdict.",
        "gap": "What is lacking: not asked, not measured or not graded; NULL where there is a verdict.",
        "gap_reason": "Why there is no verdict; NULL where there is one.",
    },
    "iteration_scores": {
        "n_levels": "Planned levels of the iteration; NULL for a printed score.",
        "n_measured": "Levels of them with a verdict.",
        "points": "Points earned; NULL where a level was not measured.",
        "points_so_far": "Points earned at the measured levels.",
        "max_points": "Points of all planned levels; 100 for a printed score.",
        "score": "Points earned, percent of max_points; NULL where a level was not measured.",
        "score_with_suspects": "The same with suspect verdicts as the tests have them.",
        "reason": "Why there is no score.",
    },
    "level_pass_rates": {
        "k": "Measured answers that passed; suspect ones did not.",
        "n": "Measured answers.",
        "n_planned": "Planned answers, measured or not.",
        "pass_rate": "k of n, percent; NULL when none was measured.",
        "wilson_low": "Low end of the rate's 95 % interval, percent.",
        "wilson_high": "High end of the rate's 95 % interval, percent.",
        "method": "How the interval was made.",
        "k_with_suspects": "Passes with suspect verdicts as the tests have them.",
        "n_suspect": "Answers whose verdict is suspect and waits for a person.",
    },
    "printed_figures": {
        "n_no_answer": "Printed number of empty answers.",
        "decode_tps_mean": "Printed mean decode rate, tokens per second.",
        "decode_tps_sd": "Printed standard deviation of it.",
        "decode_tps_n": "Answers behind it; NULL where the report does not say.",
        "ttft_ms_mean": "Printed mean time to the first token, milliseconds.",
        "ttft_n": "Answers behind it; NULL where the report does not say.",
    },
    "arm_summary": {
        "mean_score": "Mean of the iterations' scores, percent; NULL where none has a score.",
        "sd_score": "Standard deviation of the scores (n - 1), points of 100; NULL below two scores.",
        "min_score": "Lowest score of an iteration, percent.",
        "max_score": "Highest score of an iteration, percent.",
        "n": "Iterations that have a score.",
        "n_planned": "Iterations planned, with or without a score.",
        "half_width": "Half the width of the mean's 95 % t interval before it is cut, points; NULL below two scores.",
        "ci_low": "Low end of that interval, cut at 0, percent; NULL below two scores.",
        "ci_high": "High end of that interval, cut at 100, percent; NULL below two scores.",
        "ci_cut": "Whether the interval reached beyond 0 or 100 and was cut; NULL without an interval.",
        "ci_method": "How the interval was made.",
        "mean_score_with_suspects": "Mean score with suspect verdicts as the tests have them, percent.",
        "n_cells": "Planned answers: levels times iterations. NULL where no plan or answer is stored.",
        "n_measured": "Planned answers that have a verdict.",
        "n_not_measured": "Planned answers that were asked for and came to no verdict, by no fault of the model.",
        "n_missing": "Planned answers without a verdict, for whatever reason: not asked, not measured or not graded.",
        "n_unplanned": "Answers that the plan does not ask for; they count nowhere.",
        "n_passed": "Planned answers that passed; suspect ones did not.",
        "n_no_answer": "Planned answers that are empty.",
        "n_truncated": "Planned answers that the token limit ended.",
        "n_time_limit": "Planned answers that the time limit ended.",
        "n_suspect": "Planned answers whose verdict is suspect and waits for a person.",
        "decode_tps_mean": "Mean decode rate of the complete answers, or as printed; NULL where not measured.",
        "decode_tps_sd": "Standard deviation of it.",
        "decode_tps_n": "Answers behind it; NULL where a printed figure does not say.",
        "ttft_ms_mean": "Mean time to the first token, of answers without cached prompt tokens, or as printed.",
        "ttft_n": "Answers behind it; NULL where a printed figure does not say.",
        "first_answer_ms_mean": "Mean time to the first token of the answer, without cached prompt tokens.",
        "first_answer_n": "Answers behind it.",
        "prompt_tps_mean": "Mean prompt rate, of answers without cached prompt tokens.",
        "prompt_tps_n": "Answers behind it.",
        "n_cached": "Complete answers with prompt tokens from the cache; they are left out of times to first tokens.",
        "n_cache_unknown": "Answers of outcome ok for which the server does not say what came from the cache.",
        "answer_s_mean": "Mean time from the request to the last token, seconds.",
        "answer_s_sd": "Standard deviation of it, seconds.",
        "answer_s_n": "Answers behind it.",
        "reasoning_tokens_mean": "Mean tokens of the reasoning.",
        "reasoning_tokens_n": "Answers behind it.",
        "answer_tokens_mean": "Mean tokens of the answer, without its reasoning.",
        "answer_tokens_n": "Answers behind it.",
        "draft_accepted_pct": "Drafted tokens that were accepted, percent; NULL without drafts.",
        "prompt_tokens_max": "Longest prompt, tokens.",
        "vram_reason": "Why VRAM was not measured, or why nothing is known of a GPU.",
        "is_published": "Whether figures of it were printed in another report.",
    },
    "failures": {
        "kind": "Outcome of the grade, or suspect for a verdict that passed and waits for a person.",
        "n": "Planned answers that failed so.",
        "example_iteration": "Iteration of the example: the first that failed so.",
        "example_generation_id": "Generation of the example.",
        "example_grade_id": "Grade of the example.",
        "example_detail": "What failed, in a line.",
        "example_test": "First expected test that did not pass.",
        "example_tests_passed": "Expected tests that ran and passed.",
        "example_tests_expected": "Tests the suite expects.",
        "example_missing_name": "interface: the name that the tests need.",
        "example_suspect_reasons": "Marks of the verdict.",
        "example_code_rule": "The rule that found the code.",
        "example_code": "The code that was graded.",
    },
    "interface_misses": {
        "missing_name": "The name that the tests need and the solution lacks.",
        "n": "Failed answers that lack it.",
        "offered": "Names that these solutions offer instead.",
        "example_iteration": "First iteration in which it was missing.",
    },
    "missing": {
        "kind": "not asked, not measured, not graded or unplanned.",
        "reason": "Why there is no verdict, or why the answer is not the plan's.",
        "is_error": "Whether it is an answer that the plan does not ask for.",
    },
    "naming_and_ability": {
        "n": "Measured answers.",
        "n_failed": "Answers of them that did not pass.",
        "n_interface": "Failures for a name that the tests need.",
        "n_naming": "Failures that pass once the name is bound to what the answer offers.",
        "n_ability": "All other failures.",
        "n_untried": "Failures for a name that were not graded again; they are among n_ability.",
        "points_lost": "Points lost per measured answer.",
        "points_naming": "The part of them lost to naming.",
        "points_ability": "The part of them lost to failures of ability.",
    },
    "caveats": {
        "arm_id": "Arm; NULL where the whole run is meant.",
        "rule": "Name of the rule that fired.",
        "level": "error, warning or note.",
        "text": "The caveat in a sentence.",
        "source": "View to look into.",
    },
    "probe_caveats": {"arm_id": "Arm."},
    "probe_measurements": {
        "tps": "Rate of the row's kind, tokens per second; NULL when it failed, and for a prompt with cached tokens.",
    },
    "probe_summary": {
        "n": "Measurements behind the rates, without warm-ups.",
        "tps_mean": "Mean rate; NULL when nothing was measured.",
        "tps_sd": "Standard deviation of the rate; NULL below two measurements.",
        "tps_min": "Lowest rate.",
        "tps_max": "Highest rate.",
        "prompt_n_mean": "Mean number of prompt tokens that were read.",
        "predicted_n_mean": "Mean number of tokens generated.",
        "ttft_ms_mean": "Mean time to the first token, of requests without cached prompt tokens.",
        "draft_accepted_pct": "Drafted tokens that were accepted, percent; NULL without drafts.",
        "n_failed": "Measurements that failed, warm-ups included.",
        "last_failure": "Outcome of the newest failed one; NULL when none failed.",
    },
    "probe_drift": {
        "kind": "Rate that was measured: prompt or decode.",
        "start_tps": "Mean rate before the first question.",
        "end_tps": "Mean rate after the last answer.",
        "start_n": "Measurements behind start_tps.",
        "end_n": "Measurements behind end_tps.",
        "drift_pct": "end_tps against start_tps, percent; negative is slower at the end.",
        "spread_pct": "The larger standard deviation of the two, percent of its mean; NULL when both are of one value.",
        "seconds_between": "Seconds from the last measurement at the start to the last at the end.",
        "flagged": "Whether the drift, up or down, is above probe_tolerance_pct (rule_settings).",
    },
    "probe_against_suite": {
        "suite_tps": "Mean decode rate of the suite's answers.",
        "suite_sd": "Standard deviation of it; NULL below two answers.",
        "suite_n": "Answers behind it.",
        "suite_depth": "Mean depth of the answers, tokens: the prompt and half of what was generated.",
        "probe_tps": "The probe's decode rate at that depth, or at the nearest depth that it measured.",
        "shallow_tps": "The probe's decode rate at its smallest size.",
        "depth_covered": "Whether the probe measured on both sides of that depth.",
        "difference_pct": "suite_tps against probe_tps, percent; negative where the answers were slower.",
        "shallow_difference_pct": "suite_tps against shallow_tps, percent.",
        "drafted": "Whether tokens of the answers were drafted.",
        "slots": "Parallel slots in force.",
        "flagged": "Whether the difference is above probe_tolerance_pct (rule_settings); false with several slots.",
    },
    "energy": {
        "n_answers": "Complete planned answers.",
        "n_powered": "Answers whose power was sampled from the request to the last token; 0 for an arm on the CPU.",
        "answering_s": "Seconds in which answers were written; overlapping answers count once.",
        "powered_s": "Seconds of the powered answers; NULL without any.",
        "energy_j": "Energy of all answers, joules; NULL unless every one is powered.",
        "powered_j": "Energy of the powered answers, joules; NULL without any.",
        "idle_w": "Mean power between the load and the first question, watts; NULL when not sampled.",
        "powered_j_above_idle": "powered_j less idle_w over powered_s, joules.",
        "j_per_answer_token": "powered_j per answer token, joules; reasoning is in the energy, not in the tokens.",
        "j_per_answer_token_above_idle": "The same above idle, joules.",
        "j_per_solved_level": "powered_j per solved level, joules; NULL when none was solved.",
        "j_per_solved_level_above_idle": "The same above idle, joules.",
        "powered_answer_tokens": "Answer tokens of the powered answers; NULL where one's are not known.",
        "powered_solved": "Powered answers that passed.",
        "throttled_s": "Seconds of answering in which the clocks were held down; NULL when that was not seen at all.",
        "clocked_s": "Seconds of answering in which it was seen whether they were.",
        "reason": "Why a figure is NULL.",
    },
    "time_split": {
        "part_order": "Position of the part, from 1.",
        "part": "load, probe, prompt, reasoning, answer, unfinished or grading.",
        "seconds": "Sum of its times, seconds; NULL where nothing was measured.",
        "n": "Times behind the sum.",
    },
    **COMPARED,
}


def sentence(view: str, column: str) -> str | None:
    """What a column of a view holds; None where nothing says it."""
    own = COLUMNS.get(view, {}).get(column)
    if own is not None:
        return own
    for source in TAKEN_FROM.get(view, ()):
        found = _docs(source).get(column) if source in TABLES else sentence(source, column)
        if found is not None:
            return found
    return COLUMNS["*"].get(column)
