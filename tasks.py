"""The entry points. Each takes text, hands it to bench/, and turns an error into one line and an exit code.

Nothing heavy is imported at load: `./invoke --list` stays as quick as Invoke itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from invoke.exceptions import Exit
from invoke.tasks import task

if TYPE_CHECKING:
    from bench.reporter import Reporter

RESULTS_HELP = "folder of the results (default: results/ in the repository)"


def _do(work: Callable[[Reporter], int | None]) -> None:
    """Run a command; an error that a person can act on is one line and its exit code."""
    from bench.errors import BenchError
    from bench.reporter import for_stream
    from bench.visible import visible

    try:
        code = work(for_stream()) or 0
    except BenchError as e:
        # An error quotes what it found, and that may be a model's or a stranger's text.
        raise Exit(f"error: {visible(str(e))}", code=e.exit_code) from None
    except KeyboardInterrupt:
        raise Exit("stopped", code=130) from None
    except BrokenPipeError:
        _quiet_exit()
    if code:
        raise Exit(code=code)


def _quiet_exit() -> NoReturn:
    """The reader of our output is gone (`| head`): there is nobody left to tell."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise Exit(code=0)


@task(
    iterable=["arm", "model"],
    help={
        "model": "GGUF file, pattern or folder to bench without a preset; also lmstudio or ollama",
        "endpoint": "address of an OpenAI-compatible server that already runs; nothing of it is proved",
        "endpoint-model": "its model, where it has several",
        "lineup": "lineup to run (./invoke arms lists them); without it and without --arm: smoke",
        "arm": "arm ids, repeated or separated by commas, or 'all'",
        "suite": "suite id, or the path of a folder with a suite of your own",
        "iterations": "passes over the suite (default: the lineup's)",
        "engine": "auto, process or container (default: auto: a process on the CPU, a container on the GPU)",
        "server": "llama-server to run for the process engine (default: $LLAMA_SERVER, else the embedded one)",
        "results": RESULTS_HELP,
        "seed": "seed of the run, to repeat one (default: drawn and stored)",
        "resume": "run to continue, by id, unique prefix or 'latest' (an unfinished one like this is found by itself)",
        "new": "start over instead of continuing an unfinished run",
        "until": "'decided': stop asking an arm when the answer is known",
        "max-iterations": "with --until decided: iterations at most (default: the lineup's)",
        "margin": "with --until decided: points within which arms count as equivalent (default: the lineup's, else 5)",
        "slots": "questions asked at a time; speed then comes from the single-stream probe alone",
        "image": "container image to run (default: the reference build's, else the newest that was built here)",
        "gpu": "GPU by index or UUID (default: the first)",
        "allow-busy": "measure beside other processes on the GPU; a caveat then",
        "dry-run": "print everything that would run and every problem, and start nothing",
        "unsafe-grading": "grade without a sandbox; marks every grade and the report",
    },
)
def bench(  # type: ignore[no-untyped-def]
    c,  # noqa: ARG001
    lineup=None,
    arm=None,
    suite=None,
    iterations=None,
    engine=None,
    server=None,
    results=None,
    seed=None,
    resume=None,
    new=False,
    until=None,
    max_iterations=None,
    margin=None,
    slots=None,
    image=None,
    gpu=None,
    allow_busy=False,
    dry_run=False,
    model=None,
    endpoint=None,
    endpoint_model=None,
    unsafe_grading=False,
):
    """Run a lineup: start every arm alone, put the suite to it, grade the answers, write the report.

    Without options: the smoke lineup, a small model on the CPU, a few minutes on any machine.

    Example: ./invoke bench --arm smollm2-135m-q4-kv-f16 --iterations 3
    """
    from bench.commands.bench import bench as work
    from bench.runner.planning import Wishes

    wishes = Wishes(
        lineup=lineup,
        arms=arm or (),
        suite=suite,
        iterations=iterations,
        engine=engine,
        server=server,
        seed=seed,
        resume=resume,
        new=new,
        until=until,
        max_iterations=max_iterations,
        margin=margin,
        slots=slots,
        image=image,
        gpu=gpu,
        allow_busy=allow_busy,
        dry_run=dry_run,
        models=model or (),
        endpoint=endpoint,
        endpoint_model=endpoint_model,
        unsafe_grading=unsafe_grading,
    )
    _do(lambda out: work(wishes, results, out))


@task(
    help={
        "run": "run id, a unique prefix, or 'latest'",
        "results": RESULTS_HELP,
        "json": "print the report's data as JSON",
    }
)
def report(c, run="latest", results=None, json=False):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Write the report of a run from the stored results; say where it is.

    Example: ./invoke report --run 20261130-1830
    """
    from bench.commands.look import report as work

    _do(lambda out: work(run, results, json, out))


@task(
    help={
        "run-a": "run to compare with: id, a unique prefix, or 'latest'",
        "run-b": "run that is compared with it",
        "allow-mixed": "show scores of different prompts, tests or models side by side, under a banner",
        "results": RESULTS_HELP,
    },
)
def compare(c, run_a, run_b, allow_mixed=False, results=None):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Compare two runs: what differs between them, and what it did to scores, speed and memory of their common arms.

    Example: ./invoke compare 20261130-1830 latest
    """
    from bench.commands.compare import compare as work

    _do(lambda out: work(run_a, run_b, allow_mixed, results, out))


@task(help={"query": "SQL over the views (docs/sql.md)", "format": "table, csv or json", "results": RESULTS_HELP})
def sql(c, query, format="table", results=None):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Query the results. The views are listed by: ./invoke sql "show tables".

    Example: ./invoke sql "select arm_id, mean_score, n from arm_summary" --format csv
    """
    from bench.commands.look import sql as work

    _do(lambda out: work(query, format, results, out))


@task
def arms(c):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """List the lineups and their arms, with size, sampler and what keeps each from running here.

    Example: ./invoke arms
    """
    from bench.commands.look import arms as work

    _do(work)


@task
def suites(c):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """List the suites with their levels and points.

    Example: ./invoke suites
    """
    from bench.commands.look import suites as work

    _do(work)


@task(name="check-suites", iterable=["suite"], help={"suite": "suite ids or paths (default: all in suites/)"})
def check_suites(c, suite=None):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Prove suites: references pass, mutants fail; list the names that tests use and prompts lack.

    Example: ./invoke check-suites --suite coding-v2
    """
    from bench.commands.check import check_suites as work

    _do(lambda out: work(suite or (), out))


@task
def doctor(c):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Say what this machine has and lacks for each lineup, each line with the fix.

    Example: ./invoke doctor
    """
    from bench.commands.doctor import doctor as work

    _do(work)


@task(
    help={
        "args": "arguments for pytest, in one string",
        "k": "only tests whose names match (pytest -k)",
        "processes": "how many test files run at a time; 1: one after the other (default: CPUs + 1, at most 4)",
    }
)
def test(c, args="", k="", processes=None):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Run the tests. Under CI (CI=true) nothing is skipped for a missing engine: it fails.

    Example: ./invoke test --args "tests/test_answer.py -x"
    """
    import os
    import shlex
    import signal

    from bench.options import whole_number

    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # A shell starts background jobs like that, all that they start inherits it, and tests of Ctrl-C would wait.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def work(_: Reporter) -> int:
        # Many tests wait for a server, an engine or a limit: one process more than there are CPUs keeps those busy.
        n = whole_number("processes", processes, min(4, len(os.sched_getaffinity(0)) + 1), high=64)
        many = ["-n", str(n), "--dist", "loadscope"] if n > 1 else []
        return _tool("pytest", *many, *shlex.split(args), *(["-k", k] if k else []))

    _do(work)


@task
def lint(c):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Check style, format and types: ruff and mypy --strict.

    Example: ./invoke lint
    """
    _do(lambda _: _tool("ruff", "check", ".") or _tool("ruff", "format", "--check", ".") or _tool("mypy"))


@task(
    help={
        "cache": "also remove the cached models",
        "images": "also remove the images with this project's label",
        "results": "also remove results, database and reports of the repository",
    }
)
def clean(c, cache=False, results=False, images=False):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Remove what this project made and nothing else: caches here; with flags also models and results.

    Example: ./invoke clean --cache
    """
    from bench.commands.clean import clean as work

    _do(lambda out: work(cache, results, images, out))


@task(
    iterable=["level"],
    help={
        "run": "run id, a unique prefix, or 'latest'",
        "suite": "suite id or path (default: the one that was put)",
        "level": "only these levels, repeated or separated by commas",
        "adopt": "make the new verdicts the headline; the report says so",
        "sandbox": "auto, bubblewrap, container or unsafe (default: auto)",
        "results": RESULTS_HELP,
        "workers": "answers graded at a time (default: one for each core)",
    },
)
def regrade(c, run="latest", suite=None, level=None, adopt=False, sandbox="auto", results=None, workers=None):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Grade a run's stored answers again; print what changed verdict and why. Old grades stay.

    Example: ./invoke regrade --run 20261130-1830 --suite coding-v2-strict
    """
    from bench.commands.regrade import regrade as work

    _do(lambda out: work(run, suite, level or (), adopt, sandbox, results, workers, out))


@task(
    help={
        "grade": "id of a suspect verdict, or its beginning; without it, all are listed",
        "accept": "the code is honest: the tests' verdict counts",
        "reject": "the code is not: it counts as failed",
        "by": "who decides",
        "note": "why",
        "run": "only the suspects of this run (id, prefix or 'latest')",
        "results": RESULTS_HELP,
    },
)
def review(c, grade=None, accept=False, reject=False, by=None, note=None, run=None, results=None):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """List suspect verdicts with the lines of code in question, or decide on one.

    Example: ./invoke review --grade 0198 --accept --by Ada --note "reads its own frame to name a test, nothing else"
    """
    from bench.commands.review import review as work

    _do(lambda out: work(grade, accept, reject, by, note, run, results, out))


@task(
    name="import-run",
    help={
        "path": "folder or file of another tool's answers, or a run of this bench from elsewhere",
        "suite": "suite the answers are to; where this bench has it, they are graded at once",
        "results": RESULTS_HELP,
    },
)
def import_run(c, path, suite=None, results=None):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Take stored answers of another tool, or an exported run, into the results.

    Example: ./invoke import-run ../their-bench/results
    """
    from bench.commands.importing import import_run as work

    _do(lambda out: work(path, suite, results, out))


@task(
    help={
        "run": "run id, a unique prefix, or 'latest'",
        "to": "folder or .tar.gz file (default: the working directory)",
        "results": RESULTS_HELP,
    }
)
def export(c, run="latest", to=None, results=None):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Write a run into one archive with checksums, for import-run on another machine.

    Example: ./invoke export --run latest --to /tmp
    """
    from bench.commands.importing import export as work

    _do(lambda out: work(run, to, results, out))


def _tool(module: str, *arguments: str) -> int:
    """Run a Python tool of the environment in the repository; its exit code."""
    import subprocess
    from pathlib import Path

    return subprocess.run([sys.executable, "-m", module, *arguments], cwd=Path(__file__).parent, check=False).returncode


@task(help={"run": "run id, a unique prefix, or 'latest'", "results": RESULTS_HELP})
def status(c, run="latest", results=None):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Say how a run stands: progress, rate, time left, faults, GPU. For another terminal; reads files only.

    Example: ./invoke status
    """
    from bench.commands.status import status as work

    _do(lambda out: work(run, results, out))


@task(help={"results": RESULTS_HELP})
def runs(c, results=None):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """List the runs with their state and how much of each is graded.

    Example: ./invoke runs
    """
    from bench.commands.status import runs as work

    _do(lambda out: work(results, out))


@task(
    help={
        "generation": "generation id or a unique prefix",
        "results": RESULTS_HELP,
        "server": "llama-server to ask",
        "suite": "folder of the suite, where it is none of ours",
    }
)
def replay(c, generation, results=None, server=None, suite=None):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Ask a stored question again with its seed, of the same identity; say whether the text is the same.

    Example: ./invoke replay 01938a2f4c
    """
    from bench.commands.replay import replay as work

    _do(lambda out: work(generation, results, server, out, suite))


@task(
    name="build-llama",
    help={
        "rev": "commit (7 digits or more), tag or branch (default: the reference run's, 8be759e6f)",
        "backend": "cuda, cpu or vulkan (default: cuda)",
        "source": "a llama.cpp tree or archive on this machine, in place of git",
        "build-number": "build number, for a revision or tree that git cannot be asked about",
        "repo": "git repository to take the source from",
        "cuda-architectures": "CMake's list (default: the GPUs of this machine, else the common ones)",
        "base-build": "image to build in",
        "base-runtime": "image to run in",
        "flags": "further CMake arguments",
        "leave-out": "CPU variants to leave out, separated by blanks",
        "network": "network of the build's steps, such as none or host",
        "jobs": "compilers at a time (default: one for each CPU)",
        "force": "build even when the image is there",
    },
)
def build_llama(  # type: ignore[no-untyped-def]
    c,  # noqa: ARG001
    rev=None,
    backend="cuda",
    source=None,
    build_number=None,
    repo=None,
    cuda_architectures=None,
    base_build=None,
    base_runtime=None,
    flags="",
    leave_out=None,
    network=None,
    jobs=None,
    force=False,
):
    """Build llama.cpp at a pinned commit into an image, and refuse it unless it proves to be that.

    Example: ./invoke build-llama --rev 8be759e6f
    """
    from bench.commands.image import BuildWishes
    from bench.commands.image import build_llama as work

    wishes = BuildWishes(
        rev=rev,
        backend=backend,
        source=source,
        build_number=build_number,
        repo=repo,
        cuda_architectures=cuda_architectures,
        base_build=base_build,
        base_runtime=base_runtime,
        flags=flags,
        leave_out=leave_out,
        network=network,
        jobs=jobs,
        force=force,
    )
    _do(lambda out: work(wishes, out))


@task
def images(c):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """List the images that this project made.

    Example: ./invoke images
    """
    from bench.commands.image import images as work

    _do(work)


@task(help={"target": "a GGUF file, hf:OWNER/NAME/FILE, or an arm"})
def inspect(c, target):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Look inside a model before a load: architecture, quant, blocks, context, memory, and what is wrong with it.

    Example: ./invoke inspect smollm2-135m-q4-kv-f16
    """
    from bench.commands.own import inspect as work

    _do(lambda out: work(target, out))


@task(
    name="lock-models",
    iterable=["arm"],
    help={"lineup": "lineup whose models to lock (default: moe-coding)", "arm": "arm ids in place of a lineup"},
)
def lock_models(c, lineup=None, arm=None):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Write commit, size and checksum of the hub's models into presets/models.lock.toml.

    Example: ./invoke lock-models --lineup moe-coding
    """
    from bench.commands.own import lock as work

    _do(lambda out: work(lineup, arm or (), out))


@task(
    name="new-arm",
    help={
        "target": "a GGUF file or hf:OWNER/NAME/FILE",
        "id": "id of the new arm",
        "show": "print the preset, write nothing",
    },
)
def new_arm(c, target, id=None, show=False):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Write a preset for a model from its own metadata, and say what was guessed.

    Example: ./invoke new-arm ~/models/some-model-q4_k_m.gguf
    """
    from bench.commands.own import new_arm as work

    _do(lambda out: work(target, id, show, out))
