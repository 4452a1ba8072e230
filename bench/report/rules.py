"""What the figures of a report mean and by which rules it decides, in the words that it prints."""

from __future__ import annotations

from bench.store.stats_tables import RULE_SETTINGS

NOTES: dict[str, str] = {
    "summary": "Score: points earned in percent of the suite's, mean over iterations ± half of the 95 % interval "
    "(Student's t, n - 1 degrees of freedom, exact quantile); SD with n - 1. † cut at the end of the range. The t "
    "interval is shown as reports have it; it is too narrow near 0 and 100, and has no width where all scores are "
    "alike. The exact interval (Clopper-Pearson per level, combined over the levels by MOVER) holds there too, and "
    "verdicts rest on it. Decode rate: (tokens - 1) / time from the server's raw counts, mean ± SD over answers. First "
    "token and first answer token: at the client, from sending the request, prompt cache empty. Seconds to the answer: "
    "until its last token, mean ± SD. n is the number of values a mean was made of.",
    "rates": "k/n, rate, Wilson 95 % interval. What was not measured is in neither k nor n.",
    "pairs": "Difference: mean score of the first arm less that of the second, points of 100; exact interval "
    "(Clopper-Pearson per level, combined by MOVER; with few iterations at least as wide as Hoeffding's), and Welch's "
    "t interval for speed, both widened for the number of pairs (Bonferroni), so that for each figure all pairs "
    "together hold with 95 %.",
    "pareto": "Score, seconds to the answer and memory as measured. Surely: the better answers by the exact interval "
    "of the pair, the sooner ones by the interval of the time.",
    "steadiness": "First: percent of 1,000 draws in which the arm has the highest mean score when the iterations of "
    "every arm are drawn again, with replacement (bootstrap). It is too sure near 0 and 100, where an arm has no "
    "spread, and no verdict rests on it. pass@k: how often at least one of k answers passes, unbiased (Chen et al., "
    "2021), mean over the levels; n/a where an arm has fewer than k answers to a level.",
    "energy": "Of the GPU while the arm answered, by the trapezoid rule over the samples of its power; above idle: "
    "less the power after the load and before the first question.",
    "naming": "Points of 100 that an iteration of the arm lost on average. Naming: the answer lacks a name that the "
    "tests need, and passes once that name is bound to what it offers in its place. It explains the score and never "
    "changes it.",
    "disagreements": "Where a verdict that came with the answer and the one made here differ, and which rule made the "
    "difference. The newest verdict made here counts as ours; the headline is what was adopted.",
}
"""What stands beside a table."""


def rules() -> list[str]:
    """The rules of verdicts, as sentences, with the thresholds in force."""
    value = {name: setting for name, (setting, _) in RULE_SETTINGS.items()}
    sure = f"{100 * (1 - value['alpha']):g} %"
    return [
        "Only the final answer is graded, never the reasoning; a level passes when every expected hidden test ran and "
        "passed. What was not measured is no failure and no pass: it is missing, and named.",
        f"Quality: an arm is among the best when no other arm is better, and it alone is the winner when it is better "
        f"than every other: when the {sure} interval of the difference, exact and widened for the number of pairs, "
        f"lies above zero. Otherwise the arms are not separated.",
        f"Within the margin: the whole interval of the difference lies inside ±{value['margin']:g} points.",
        "Withheld: failures that may be the bench's own doing (a name that the tests need, no code found, code found "
        "by a guess, a context that was too small, a suspect verdict, another verdict on the same answer that passes) "
        "are counted as passes too, for one arm, for the other and for both. Where that changes who is among the best, "
        "there is no verdict.",
        "Throughput and seconds to the answer: the arm that Welch's interval, widened for the number of pairs, "
        "separates from every other. Withheld where other work loaded the host while an arm ran on its cores. Tokens "
        "a second flatter an arm that thinks long: seconds to the answer stand beside it.",
        "Memory: peak VRAM, else idle VRAM, else the server's resident memory; one measurement, so within 1 % is a "
        "tie.",
        "Arms are compared only where prompts, tests, machine, build and image are the same.",
    ]
