"""From what a person typed to what a run is to be, with what can be said of it before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench.engines import Engine
from bench.engines.endpoint import endpoint_arm
from bench.errors import ArmError, UsageError
from bench.ids import new_run_id
from bench.models.obtain import expected_bytes, is_cached
from bench.options import counted, names, number, one_of, whole_number
from bench.presets.load import Arm, Lineup, arm_ids, load_arm, load_lineup, load_lineups, load_sampler
from bench.presets.new_arm import arms_from_models
from bench.reporter import Reporter
from bench.runner import seeds
from bench.runner.resume import Unfinished, find, named
from bench.runner.rounds import Rounds
from bench.runner.run import RunSpec
from bench.suites.load import Suite, load_suite
from bench.telemetry.sampler import gpu_info

ROUND_ITERATIONS = 3
"""Iterations of a round with `--until decided`: loading a model again costs time, looking seldom costs answers."""

OWN_SUITE = "coding-v2-strict"
"""Suite for models without a preset, when none is named."""

ENDPOINT_CONTEXT = 32768
"""Context assumed of a server that already runs; it is not proved."""

BIG_LINEUP = "moe-coding"
"""What `--arm all` means without a lineup."""


@dataclass(frozen=True)
class Wishes:
    """The options of `bench`, as text."""

    lineup: str | None = None
    arms: Sequence[str] = ()
    suite: str | None = None
    iterations: str | None = None
    engine: str | None = None
    server: str | None = None
    seed: str | None = None
    resume: str | None = None
    new: bool = False
    until: str | None = None
    max_iterations: str | None = None
    margin: str | None = None
    slots: str | None = None
    unsafe_grading: bool = False
    image: str | None = None
    gpu: str | None = None
    allow_busy: bool = False
    dry_run: bool = False
    models: Sequence[str] = ()
    endpoint: str | None = None
    endpoint_model: str | None = None


@dataclass(frozen=True)
class Choice:
    """Arms, suite and iterations, before anything of this machine is looked at."""

    lineup: Lineup | None
    arms: tuple[Arm, ...]
    suite: Suite
    iterations: int
    rounds: Rounds
    slots: int

    @property
    def lineup_id(self) -> str:
        return self.lineup.lineup_id if self.lineup else "custom"

    @property
    def questions(self) -> int:
        return len(self.arms) * len(self.suite.levels) * self.iterations


def choose(wishes: Wishes, root: Path) -> Choice:
    """What to run. Raises UsageError where a name is not known or a number is none."""
    own = _own_arms(wishes, root)
    if own:
        return _own_choice(own, wishes, root)
    asked = names(wishes.arms)
    lineup = _lineup(wishes.lineup, asked, root)
    known = arm_ids(root)
    if not asked or asked == ["all"]:
        assert lineup is not None
        wanted: Sequence[str] = lineup.arms
    else:
        if "all" in asked:
            raise UsageError("--arm takes 'all' or arm ids, not both; leave out one of them")
        lineups = load_lineups(root)
        if one := next((name for name in asked if name in lineups and name not in known), None):
            raise UsageError(f"--arm {one}: that is a lineup; type --lineup {one}")
        wanted = [one_of("--arm", arm_id, known) for arm_id in asked]
        if lineup is not None and wishes.lineup is not None:
            for arm_id in wanted:
                one_of(f"--arm with --lineup {lineup.lineup_id}", arm_id, lineup.arms)
    suite_name = wishes.suite or (lineup.suite if lineup else None)
    if suite_name is None:
        raise UsageError(
            f"no lineup holds all of {', '.join(wanted)}; say which suite to put: --suite ID (./invoke suites)"
        )
    rounds, iterations = _rounds(wishes, lineup)
    slots = whole_number("slots", wishes.slots, 1, high=64)
    arms = tuple(_with_slots(load_arm(arm_id, root), slots) for arm_id in wanted)
    return Choice(lineup, arms, load_suite(suite_name, root / "suites"), iterations, rounds, slots)


def _own_arms(wishes: Wishes, root: Path) -> list[Arm]:
    """Arms without a preset: of `--model` and `--endpoint`. Raises UsageError where they meet `--arm` or `--lineup`."""
    out: list[Arm] = []
    if wishes.models:
        gpu = gpu_info(gpu_of(wishes))
        free = None if gpu.vram_bytes is None else gpu.vram_bytes - (gpu.vram_used_bytes or 0)
        try:
            out += arms_from_models(wishes.models, root, vram_bytes=free)
        except ArmError as e:
            raise UsageError(f"--model: {e.detail}" + (f"; {e.advice}" if e.advice else "")) from e
    if wishes.endpoint is not None:
        sampler = load_sampler("server-default", root)
        out.append(endpoint_arm(wishes.endpoint, wishes.endpoint_model, ENDPOINT_CONTEXT, sampler))
    if out and (wishes.arms or wishes.lineup):
        raise UsageError("--model and --endpoint bench what has no preset; leave out --arm and --lineup")
    return out


def _own_choice(arms: list[Arm], wishes: Wishes, root: Path) -> Choice:
    suite = load_suite(wishes.suite or OWN_SUITE, root / "suites")
    slots = whole_number("slots", wishes.slots, 1, high=64)
    rounds, iterations = _rounds(wishes, None)
    # A model's own context may be too short for the suite: nobody can raise it, so it is a caveat and no refusal.
    ready = [_with_slots(replace(arm, allow_small_context=True), slots) for arm in arms]
    return Choice(None, tuple(ready), suite, iterations, rounds, slots)


def _rounds(wishes: Wishes, lineup: Lineup | None) -> tuple[Rounds, int]:
    """How the arms take turns, and the iterations at most."""
    usual = lineup.iterations if lineup else 5
    if wishes.until is None:
        for name, value in (("max-iterations", wishes.max_iterations), ("margin", wishes.margin)):
            if value is not None:
                raise UsageError(f"--{name} belongs to --until decided; add it, or leave --{name} out")
        return Rounds(), whole_number("iterations", wishes.iterations, usual, high=10_000)
    one_of("--until", wishes.until, ("decided",))
    if wishes.iterations is not None:
        raise UsageError("--until decided takes --max-iterations in place of --iterations")
    usual_margin = lineup.margin if lineup and lineup.margin is not None else 5.0
    margin = number("margin", wishes.margin, usual_margin, low=0.1, high=100)
    most = whole_number("max-iterations", wishes.max_iterations, max(usual, 15), high=10_000)
    return Rounds(step=ROUND_ITERATIONS, margin=margin), most


def _with_slots(arm: Arm, slots: int) -> Arm:
    """The arm with so many slots, each with the context that the preset gives to one."""
    if slots == 1:
        return arm
    return replace(arm, parallel=slots, context=arm.context // arm.parallel * slots)


def _lineup(named: str | None, asked: Sequence[str], root: Path) -> Lineup | None:
    if named is not None:
        return load_lineup(named, root)
    if not asked:
        return load_lineup("smoke", root)
    if asked == ["all"]:
        return load_lineup(BIG_LINEUP, root)
    holding = [lineup for lineup in load_lineups(root).values() if set(asked) <= set(lineup.arms)]
    return holding[0] if holding else None


def unfinished_run(choice: Choice, wishes: Wishes, results: Path) -> Unfinished | None:
    """The run that this command continues: the one `--resume` names, else the newest unfinished one of the same
    identity; none with `--new`, or where another seed is asked for."""
    arms = {arm.arm_id: arm for arm in choice.arms}
    if wishes.new:
        if wishes.resume:
            raise UsageError("--new starts over and --resume carries on; leave out one of them")
        return None
    if wishes.resume:
        return named(results, wishes.resume, choice.suite, arms)
    found = find(results, choice.suite, arms, choice.lineup_id, choice.iterations)
    if found and wishes.seed is not None and whole_number("seed", wishes.seed, 1, high=seeds.MAX_SEED) != found.seed:
        return None
    return found


def context_needed(suite: Suite) -> int:
    """Tokens that a suite's longest prompt and answer may take together; see `check_context`."""
    return max(len(level.prompt) for level in suite.levels) // 3 + 64 + suite.max_tokens


def check_context(choice: Choice) -> dict[str, str]:
    """Arms whose context cannot hold prompt and `max_tokens`, a sentence each. Raises UsageError without consent.

    The prompt is counted at 3 characters a token, which overstates it for English and code.
    """
    need = context_needed(choice.suite)
    small = {arm.arm_id: arm for arm in choice.arms if arm.context // arm.parallel < need}
    for arm in small.values():
        if not arm.allow_small_context:
            raise UsageError(
                f"presets/arms/{arm.arm_id}.toml: server.context is {arm.context}, but the suite "
                f"'{choice.suite.suite_id}' may need {need} tokens (prompt and max_tokens); raise it, or set "
                "allow_small_context = true"
            )
    return {
        arm_id: f"context {arm.context} cannot hold the prompt and {choice.suite.max_tokens} answer tokens"
        for arm_id, arm in small.items()
    }


def spec_for(
    choice: Choice,
    engines: Mapping[str, Engine],
    wishes: Wishes,
    cache: Path,
    problems: Mapping[str, list[str]],
    unfinished: Unfinished | None = None,
) -> RunSpec:
    """The run itself: an unfinished one that is continued, or a new one with its seed drawn and its arms in order."""
    seed = unfinished.seed if unfinished else whole_number("seed", wishes.seed, seeds.draw(), high=seeds.MAX_SEED)
    by_id = {arm.arm_id: arm for arm in choice.arms}
    return RunSpec(
        run_id=unfinished.run_id if unfinished else new_run_id(),
        carried_on=unfinished is not None,
        lineup_id=choice.lineup_id,
        arms=tuple(by_id[arm_id] for arm_id in seeds.order(seed, list(by_id))),
        suite=choice.suite,
        iterations=choice.iterations,
        seed=seed,
        engines=engines,
        model_cache=cache,
        problems={arm_id: tuple(texts) for arm_id, texts in problems.items() if texts},
        gpu_index=gpu_of(wishes),
        allow_busy=wishes.allow_busy,
        rounds=choice.rounds,
        slots=choice.slots,
        settings=asdict(wishes),
    )


def gpu_of(wishes: Wishes) -> int | str | None:
    """The GPU that `--gpu` names: an index or a UUID."""
    text = (wishes.gpu or "").strip()
    if not text:
        return None
    if text.isdigit():
        return int(text)
    if text.startswith(("GPU-", "MIG-")):
        return text
    raise UsageError(f"--gpu takes an index such as 0 or a UUID such as GPU-1a2b... (nvidia-smi -L), not '{text}'")


def download_bytes(arms: Iterable[Arm], cache: Path) -> tuple[int, bool]:
    """Bytes still to be downloaded for these arms, each file once, and whether every size is known."""
    sizes = _to_download(arms, cache).values()
    return sum(size or 0 for size in sizes), None not in sizes


def _to_download(arms: Iterable[Arm], cache: Path) -> dict[str, int | None]:
    return {arm.model.source: expected_bytes(arm.model) for arm in arms if not is_cached(arm.model, cache)}


def download_text(arms: Sequence[Arm], cache: Path) -> str:
    """What is still to be downloaded: `21.2 GB`, or `21.2 GB for 1 of 4 models; ...` where sizes are not known."""
    wanted = _to_download(arms, cache)
    if not wanted:
        return "nothing, every model is here"
    known = [size for size in wanted.values() if size]
    if len(known) == len(wanted):
        return size_text(sum(known))
    if not known:
        return f"{len(wanted)} models of unknown size" if len(wanted) > 1 else "a model of unknown size"
    return f"{size_text(sum(known))} for {len(known)} of {len(wanted)} models; the size of the others is not known here"


def show(
    choice: Choice, problems: Mapping[str, list[str]], cache: Path, engines: Mapping[str, Engine], out: Reporter
) -> None:
    """The plan, before anything is downloaded or started."""
    whole = choice.lineup is not None and {a.arm_id for a in choice.arms} >= set(choice.lineup.arms)
    title = choice.lineup.title if choice.lineup and whole else "arms of your choice"
    out.line(f"Plan: {choice.lineup_id} - {title}")
    if choice.lineup and whole and choice.lineup.question and choice.lineup.suite == choice.suite.suite_id:
        out.line(f"  question    {choice.lineup.question}")
    levels = len(choice.suite.levels)
    suite = choice.suite
    size = f"{counted(levels, 'level')}, {suite.max_points} points, {suite.max_tokens} tokens each"
    out.line(f"  suite       {suite.suite_id}: {size}")
    out.line(
        f"  questions   {counted(len(choice.arms), 'arm')} x {counted(choice.iterations, 'iteration')} x "
        f"{counted(levels, 'level')} = {choice.questions}"
    )
    out.line(f"  download    {download_text(choice.arms, cache)}")
    out.line(f"  time        {time_text(choice)}")
    rows = []
    for arm in choice.arms:
        size_of = expected_bytes(arm.model)
        here = "here" if is_cached(arm.model, cache) else "to download"
        rows.append(
            [arm.arm_id, arm.model.source.rsplit("/", 1)[-1], size_text(size_of) if size_of else "size unknown", here,
             engines[arm.arm_id].name, "; ".join(problems.get(arm.arm_id, [])) or "ready"]
        )  # fmt: skip
    out.table("Arms", ["arm", "file", "size", "model", "engine", "state"], rows)


def size_text(size: int) -> str:
    """`93.8 MB`, `21.2 GB`: decimal, as hubs and drives count."""
    if size < 1e5:
        return f"{size / 1e3:.1f} kB"
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def time_text(choice: Choice) -> str:
    """How long it may take, with what that rests on; honest about not knowing."""
    lineup = choice.lineup
    if lineup is None or lineup.expected_minutes is None or lineup.suite != choice.suite.suite_id:
        longest = _minutes(choice.questions * choice.suite.request_limit_s / 60)
        return f"not known; at most {longest} of answering ({choice.suite.request_limit_s:g} s an answer)"
    minutes = lineup.expected_minutes * choice.iterations / lineup.iterations * len(choice.arms) / len(lineup.arms)
    return f"about {_minutes(minutes)} (from {lineup.expected_on})"


def _minutes(minutes: float) -> str:
    return f"{minutes / 60:.1f} hours" if minutes > 90 else f"{max(1, round(minutes))} min"
