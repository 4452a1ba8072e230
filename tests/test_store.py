"""The store: whole or not at all, once and not twice, whatever dies and whoever reads."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_rows import NOON, RUN, ask, fill, generation, run_row

from bench.errors import BenchError, UsageError
from bench.locks import holder_of
from bench.report.query import query
from bench.store.database import connect, rebuild
from bench.store.parts import MERGED, PART
from bench.store.schema import KEYS, TABLES, schema
from bench.store.write import Store

ROOT = Path(__file__).resolve().parent.parent


def child(code: str, *arguments: object, **more: Any) -> subprocess.Popen[str]:
    """Another process with our code and the test's helpers."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": path}, **more,
    )  # fmt: skip


def names(results: Path, table: str = "generations") -> list[str]:
    folder = results / table / RUN
    return sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []


def iterations(results: Path) -> list[int]:
    return [r["iteration"] for r in ask(results, "select iteration from generations order by iteration")]


# What is stored --------------------------------------------------------------------------------------


def test_values_come_back(tmp_path: Path) -> None:
    row = run_row(arm_order=["b", "a"], seed=2**62, suite_title='Zoë\'s "suite"\n\x00\t🦙', request_limit_s=0.1)
    Store(tmp_path).append("runs", [row])
    (found,) = ask(tmp_path, "from runs")
    for name, value in row.items():
        assert found[name] == (value.replace(tzinfo=None) if isinstance(value, datetime) else value), name
    assert found["python"] is None


def test_no_stored_float_is_not_finite(tmp_path: Path) -> None:
    nan, inf = float("nan"), float("inf")
    rows = [
        generation("L1", i, predicted_ms=v, prompt_ms=nan, prompt_n=nan) for i, v in enumerate([nan, inf, -inf, 1.5], 1)
    ]
    Store(tmp_path).append("generations", rows)
    (path,) = (tmp_path / "generations" / RUN).glob("*.parquet")
    stored = pq.read_table(path)
    floats = 0
    for field in stored.schema:
        if pa.types.is_floating(field.type):
            values = [v for v in stored.column(field.name).to_pylist() if v is not None]
            floats += len(values)
            assert all(map(math.isfinite, values)), field.name
    assert floats > 4
    assert stored.column("predicted_ms").to_pylist() == [None, None, None, 1.5]
    assert stored.column("prompt_n").to_pylist() == [None] * 4


@settings(max_examples=5, deadline=None)
@given(st.lists(st.text(st.characters(), max_size=20), min_size=50, max_size=100))
def test_any_text_a_model_writes_can_be_stored(texts: list[str]) -> None:
    """Half surrogate pairs too: a server's JSON can hold them."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [generation("L1", i, content=t + "\ud83e", reasoning="\ud83e\udd99") for i, t in enumerate(texts, 1)]
        Store(Path(folder)).append("generations", rows)
        found = ask(Path(folder), "select content, reasoning from generations order by iteration")
    assert [r["content"] for r in found] == [
        t.encode("utf-16", "surrogatepass").decode("utf-16", "replace") + "\ufffd" for t in texts
    ]
    assert {r["reasoning"] for r in found} == {"🦙"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nonsense": 1}, "unknown column nonsense"),
        ({"level_id": None}, "without level_id"),
        ({"generation_id": None}, "without generation_id"),
        ({"run_id": "../up"}, "cannot name a folder"),
        ({"run_id": "a/b"}, "cannot name a folder"),
        ({"run_id": ".hidden"}, "cannot name a folder"),
        ({"run_id": ""}, "cannot name a folder"),
        ({"attempt": "two"}, "generations.attempt"),
        ({"attempt": 2**63}, "generations.attempt"),
        ({"started_at": datetime(2026, 1, 1)}, "without a zone"),
        ({"content": 5}, "generations.content"),
    ],
)
def test_a_mistake_of_the_caller_raises_and_stores_nothing(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Store(tmp_path).append("generations", [generation("L1", 1) | change, generation("L1", 2) | change])
    assert list(tmp_path.rglob("*.parquet")) == []


def test_rows_of_two_runs_and_unknown_tables_are_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="several runs"):
        Store(tmp_path).append("runs", [run_row(), run_row(run_id="other")])
    with pytest.raises(ValueError, match="no table 'scores'"):
        Store(tmp_path).append("scores", [run_row()])
    assert Store(tmp_path).append("runs", []) is None


def test_every_table_has_documented_columns_and_its_keys() -> None:
    assert set(KEYS) == set(TABLES)
    for table in TABLES:
        fields = schema(table)
        assert "run_id" in KEYS[table] and set(KEYS[table]) <= set(fields.names)
        assert len(set(fields.names)) == len(fields.names)
        for field in fields:
            assert field.metadata[b"doc"].endswith((b".", b"...")), f"{table}.{field.name}"


# Killed at any moment --------------------------------------------------------------------------------

KILL = """
    import os, signal, sys
    from pathlib import Path
    import pyarrow.parquet as pq
    from store_rows import generation, RUN
    from bench.store.write import Store

    results, point, action = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

    def die(*a, **k):
        os.kill(os.getpid(), signal.SIGKILL)

    write, replace, fsync = pq.ParquetWriter.write_table, Path.replace, os.fsync
    if point == "before_write":
        pq.ParquetWriter.write_table = die
    elif point == "mid_write":
        def half(self, *a, **k):
            write(self, *a, **k)
            self.file_handle.flush() if self.file_handle else None
            die()
        pq.ParquetWriter.write_table = half
    elif point == "before_fsync":
        os.fsync = die
    elif point == "after_write_before_rename":
        Path.replace = die
    elif point == "after_rename":
        def renamed(self, target):
            replace(self, target)
            die()
        Path.replace = renamed
    elif point == "removing_parts":
        unlink, count = Path.unlink, [0]
        def some(self, *a, **k):
            if self.name.startswith("part-"):
                count[0] += 1
                if count[0] == 2:
                    die()
            return unlink(self, *a, **k)
        Path.unlink = some
    store = Store(results)
    if action == "append":
        store.append("generations", [generation("L1", 99)])
    elif action == "merge":
        store.merge(RUN)
    else:
        store.sweep(0.0)
    print("survived")
"""


@pytest.mark.parametrize(
    "point", ["before_write", "mid_write", "before_fsync", "after_write_before_rename", "after_rename"]
)
@pytest.mark.parametrize("action", ["append", "merge"])
def test_sigkill_leaves_every_row_once(tmp_path: Path, point: str, action: str) -> None:
    store = Store(tmp_path)
    for i in range(1, 6):
        store.append("generations", [generation("L1", i)])
    process = child(KILL, tmp_path, point, action)
    out, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, (out, err)

    connection, bad = connect(tmp_path)
    assert bad == []
    expected = [1, 2, 3, 4, 5] + ([99] if (point, action) == ("after_rename", "append") else [])
    assert iterations(tmp_path) == expected
    assert all(n.endswith(".parquet") or n.startswith(".") for n in names(tmp_path))
    connection.close()

    # The next run clears up, goes on, and merges to the same rows.
    again = Store(tmp_path)
    again.append("generations", [generation("L1", 100)])
    assert not [n for n in names(tmp_path) if n.endswith(".tmp")]
    again.merge(RUN)
    assert iterations(tmp_path) == [*expected, 100]
    again.sweep(0.0)
    assert iterations(tmp_path) == [*expected, 100]
    assert len([n for n in names(tmp_path) if PART.match(n)]) <= 1, "a single part is as good as a merged one"


def test_sigkill_while_merged_parts_are_removed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for i in range(1, 6):
        store.append("generations", [generation("L1", i)])
    store.merge(RUN)
    process = child(KILL, tmp_path, "removing_parts", "sweep")
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert len([n for n in names(tmp_path) if PART.match(n)]) == 4
    assert iterations(tmp_path) == [1, 2, 3, 4, 5]
    Store(tmp_path).sweep(0.0)
    assert [bool(MERGED.match(n)) for n in names(tmp_path)] == [True]
    assert iterations(tmp_path) == [1, 2, 3, 4, 5]


WRITER = """
    import sys
    from pathlib import Path
    from store_rows import generation, RUN
    from bench.store.write import Store
    store = Store(Path(sys.argv[1]))
    for i in range(1, 10_000):
        store.append("generations", [generation("L1", i)])
        print(i, flush=True)
        if i % 7 == 0:
            store.merge(RUN)
            store.sweep(0.0)
"""


@pytest.mark.parametrize("delay", [0.02, 0.11, 0.37])
def test_sigkill_at_a_random_moment(tmp_path: Path, delay: float) -> None:
    """What was acknowledged is there once; at most the row in work is there beside it."""
    process = child(WRITER, tmp_path)
    assert process.stdout is not None
    done = [int(process.stdout.readline())]
    reader = threading.Thread(target=lambda: done.extend(int(line) for line in process.stdout or ()))
    reader.start()
    time.sleep(delay)
    process.kill()
    process.wait()
    reader.join()
    found = iterations(tmp_path)
    assert found[: len(done)] == done and len(found) - len(done) in (0, 1), (len(found), len(done))
    assert connect(tmp_path)[1] == []


# Merging ---------------------------------------------------------------------------------------------


def test_merge_keeps_every_row_and_makes_one_file(tmp_path: Path) -> None:
    for arm in "abc":
        fill(tmp_path, {arm: [[True, False]] * 2})
    before = {t: ask(tmp_path, f"from {t} order by all") for t in ("runs", "plan", "arms", "generations", "grades")}
    store = Store(tmp_path)
    store.merge(RUN)
    assert {t: ask(tmp_path, f"from {t} order by all") for t in before} == before
    store.sweep(0.0)
    assert {t: ask(tmp_path, f"from {t} order by all") for t in before} == before
    assert len(names(tmp_path)) == 1
    assert store.merge(RUN) == [], "nothing is left to merge"


def test_a_second_merge_adds_to_the_first(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for first in (1, 11, 21):
        for i in range(first, first + 3):
            store.append("generations", [generation("L1", i)])
        store.merge(RUN, "generations")
        assert len(iterations(tmp_path)) == len(set(iterations(tmp_path)))
    assert iterations(tmp_path) == [1, 2, 3, 11, 12, 13, 21, 22, 23]


def test_a_clock_that_goes_back_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    for i in (1, 2):
        store.append("generations", [generation("L1", i)])
    store.merge(RUN)
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000 * 10**9 // 2)
    store.append("generations", [generation("L1", 3)])
    store.append("generations", [generation("L1", 4)])
    assert iterations(tmp_path) == [1, 2, 3, 4]
    store.merge(RUN)
    store.sweep(0.0)
    assert iterations(tmp_path) == [1, 2, 3, 4]


def test_merged_parts_stay_a_while_for_readers_under_way(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for i in (1, 2, 3):
        store.append("generations", [generation("L1", i)])
    listed = list((tmp_path / "generations" / RUN).iterdir())
    store.merge(RUN)
    assert store.sweep() == []
    assert sum(pq.read_metadata(p).num_rows for p in listed) == 3
    assert len(store.sweep(0.0)) == 3


def test_merge_of_files_from_an_older_version(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.append("generations", [generation("L1", 1)])
    assert path is not None
    older = pq.read_table(path).drop_columns(["answer_tokens", "fingerprint"]).append_column("retired", pa.array(["x"]))
    pq.write_table(older, path)
    store.append("generations", [generation("L1", 2)])
    store.merge(RUN)
    store.sweep(0.0)
    assert [r["answer_tokens"] for r in ask(tmp_path, "from generations order by iteration")] == [None, 101]
    assert pq.read_table(next(path.parent.glob("merged-*"))).column("retired").to_pylist() == ["x", None]


def test_a_folder_with_a_torn_part_is_not_merged(tmp_path: Path) -> None:
    store = Store(tmp_path)
    paths = [store.append("generations", [generation("L1", i)]) for i in (1, 2, 3)]
    assert paths[1] is not None
    paths[1].write_bytes(paths[1].read_bytes()[:100])
    assert store.merge(RUN) == []
    assert iterations(tmp_path) == [1, 3]


def test_many_writers_and_a_merger_lose_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    errors: list[BaseException] = []

    def write(first: int) -> None:
        try:
            for i in range(first, first + 20):
                store.append("generations", [generation("L1", i)])
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=write, args=(n * 100,)) for n in range(1, 4)]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        store.merge(RUN)
        found = iterations(tmp_path)
        assert len(found) == len(set(found))
    for t in threads:
        t.join()
    store.merge(RUN)
    assert errors == []
    assert iterations(tmp_path) == [n * 100 + i for n in range(1, 4) for i in range(20)]


# Temporary files -------------------------------------------------------------------------------------


def test_a_live_writers_file_is_left_alone(tmp_path: Path) -> None:
    """A writer that is slow, not dead: its file stays, and becomes a part in the end."""
    process = child(
        """
        import sys
        from pathlib import Path
        import pyarrow.parquet as pq
        from store_rows import generation
        from bench.store.write import Store
        write = pq.ParquetWriter.write_table
        def slow(self, *a, **k):
            print("writing", flush=True)
            sys.stdin.readline()
            write(self, *a, **k)
        pq.ParquetWriter.write_table = slow
        Store(Path(sys.argv[1])).append("generations", [generation("L1", 1)])
        """,
        tmp_path,
    )
    assert process.stdout is not None and process.stdout.readline() == "writing\n"
    assert Store(tmp_path).sweep(0.0) == []
    assert [n.endswith(".tmp") for n in names(tmp_path)] == [True]
    assert connect(tmp_path)[1] == [] and iterations(tmp_path) == []
    _, err = process.communicate("\n", timeout=60)
    assert process.returncode == 0, err
    assert iterations(tmp_path) == [1]


# Disks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "no permission"),
        (errno.EIO, "reports an error"),
    ],
)
@pytest.mark.parametrize("where", ["open", "fsync", "replace"])
def test_a_disk_that_refuses_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str, where: str
) -> None:
    store = Store(tmp_path)
    store.append("generations", [generation("L1", 1)])

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as m:
        real = os.open
        if where == "open":
            m.setattr(os, "open", lambda path, flags, *a: refuse() if flags & os.O_CREAT else real(path, flags, *a))
        elif where == "fsync":
            m.setattr(os, "fsync", refuse)
        else:
            m.setattr(Path, "replace", refuse)
        with pytest.raises(BenchError, match=words) as e:
            store.append("generations", [generation("L1", 2)])
    assert str(tmp_path) in str(e.value) and "\n" not in str(e.value)
    assert iterations(tmp_path) == [1]
    assert not [n for n in names(tmp_path) if n.endswith(".tmp")]


def test_a_file_size_limit_tears_nothing(tmp_path: Path) -> None:
    process = child(
        """
        import resource, signal, sys
        from pathlib import Path
        from store_rows import generation
        from bench.errors import BenchError
        from bench.store.write import Store
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        store = Store(Path(sys.argv[1]))
        store.append("generations", [generation("L1", 1)])
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            store.append("generations", [generation("L1", 2, content="".join(map(str, range(100_000))))])
        except BenchError as e:
            print(e)
        """,
        tmp_path,
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "cannot write to" in out, (out, err)
    assert iterations(tmp_path) == [1] and connect(tmp_path)[1] == []


def test_a_results_path_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("mine")
    with pytest.raises(BenchError, match="--results"):
        Store(tmp_path / "results").append("runs", [run_row()])
    with pytest.raises(UsageError, match="it is a file"):
        connect(tmp_path / "results")
    assert (tmp_path / "results").read_text() == "mine"


# Torn files ------------------------------------------------------------------------------------------


def _tear(results: Path) -> dict[str, Path]:
    folder = results / "generations" / RUN
    whole = next(folder.glob("*.parquet")).read_bytes()
    torn = {
        "half.parquet": whole[: len(whole) // 2],
        "zero.parquet": b"",
        "tail.parquet": whole[:-1],
        "zeros.parquet": bytes(len(whole)),
        "magic.parquet": b"PAR1PAR1",
        "text.parquet": b"run_id,arm_id\n" * 50,
        "part-" + "0" * 26 + ".parquet": whole[:40],
        "merged-" + "f" * 26 + ".parquet": whole[: len(whole) - 8],
    }
    for name, data in torn.items():
        (folder / name).write_bytes(data)
    pq.write_table(pa.table({"task": ["a"], "passed": [True]}), folder / "foreign.parquet")
    pq.write_table(pa.table({k: pa.array(["x"]) for k in KEYS["generations"]}), folder / "types.parquet")
    return {n: folder / n for n in [*torn, "foreign.parquet", "types.parquet"]}


def test_torn_files_are_named_and_left_out(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, False]] * 3})
    torn = _tear(tmp_path)
    connection, bad = connect(tmp_path)
    assert {b.path for b in bad} == set(torn.values())
    assert all(b.reason for b in bad)
    assert len(connection.execute("from generations").fetchall()) == 6
    assert [r["n"] for r in ask(tmp_path, "from arm_summary")] == [3]
    assert all(p.exists() for p in torn.values()), "a reader moves nothing"
    Store(tmp_path).append("generations", [generation("L1", 9)])
    assert len(ask(tmp_path, "from generations")) == 7


def test_rebuild_puts_torn_files_in_quarantine_and_keeps_naming_them(tmp_path: Path) -> None:
    fill(tmp_path, {"a": [[True, False]]})
    torn = _tear(tmp_path)
    contents = {p.name: p.read_bytes() for p in torn.values()}
    bad = rebuild(tmp_path, tmp_path / "results.duckdb")
    assert {b.path: b.path.read_bytes() for b in bad} == {
        tmp_path / "quarantine" / "generations" / RUN / name: data for name, data in contents.items()
    }
    assert not any(p.exists() for p in torn.values())
    assert connect(tmp_path)[1] == bad
    assert plain_count(tmp_path / "results.duckdb") == 2


def test_merged_file_torn_while_its_parts_are_there(tmp_path: Path) -> None:
    """The parts count again: the merged file is what would have replaced them."""
    store = Store(tmp_path)
    for i in (1, 2, 3):
        store.append("generations", [generation("L1", i)])
    (merged,) = store.merge(RUN)
    merged.write_bytes(merged.read_bytes()[:50])
    assert iterations(tmp_path) == [1, 2, 3]
    assert store.sweep(0.0) == [], "nothing is removed for a file that cannot be read"
    assert iterations(tmp_path) == [1, 2, 3]


# The database file -----------------------------------------------------------------------------------


def plain_count(database: Path, view: str = "generations") -> int:
    """What a plain DuckDB client sees, started in another folder, with nothing of ours loaded."""
    code = (
        "import duckdb, sys; database = duckdb.connect(sys.argv[1]); "
        "print(database.execute('select count(*) from ' + sys.argv[2]).fetchone()[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(database), view], cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


@pytest.mark.parametrize(
    "name", ["plain", "with space", "it's", 'qu"ote', "gl*b?", "[x]", "{a,b}", "ünï", "a;b--c", "%s $x"]
)
def test_the_database_opens_from_anywhere_whatever_the_folder_is_called(tmp_path: Path, name: str) -> None:
    results = tmp_path / name / "results"
    fill(results, {"a": [[True, False]]})
    fill(tmp_path / "glob" / "results", {"b": [[True, True]]})
    assert rebuild(results, results / "results.duckdb") == []
    assert plain_count(results / "results.duckdb") == 2
    assert plain_count(results / "results.duckdb", "arm_summary") == 1


def test_a_backslash_in_the_path_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="backslash"):
        connect(tmp_path / "a\\b")


def test_the_views_outlive_new_runs_merges_and_removed_parts(tmp_path: Path) -> None:
    database = tmp_path / "results.duckdb"
    rebuild(tmp_path, database)
    assert plain_count(database) == 0
    store = Store(tmp_path)
    for i in range(1, 4):
        store.append("generations", [generation("L1", i)])
        assert plain_count(database) == i
    store.merge(RUN)
    assert plain_count(database) == 3
    store.sweep(0.0)
    assert plain_count(database) == 3
    store.append("generations", [generation("L1", 1, run_id="20270101-000000-bbbb")])
    assert plain_count(database) == 4


def test_the_file_is_in_the_storage_version_that_older_releases_read(tmp_path: Path) -> None:
    rebuild(tmp_path, tmp_path / "results.duckdb")
    connection = duckdb.connect()
    connection.execute(f"attach '{tmp_path / 'results.duckdb'}' as db (read_only)")
    (tags,) = connection.execute("select tags from duckdb_databases() where database_name = 'db'").fetchone() or ({},)
    assert "v1.0.0" in json.dumps(tags)
    views = [
        r[0] for r in connection.execute("select view_name from duckdb_views() where database_name = 'db'").fetchall()
    ]
    assert "arm_summary" in views
    for view in views:
        connection.execute(f"from db.{view}").fetchall()


HOLDER = """
    import duckdb, sys
    connection = duckdb.connect(sys.argv[1])
    connection.execute("create table notes as select 1 as n")
    print("open", flush=True)
    sys.stdin.readline()
    print(connection.execute("select count(*) from generations").fetchone()[0], flush=True)
    connection.close()
"""


def test_a_person_with_the_file_open_blocks_nobody(tmp_path: Path) -> None:
    """Opened for writing, with changes of their own not yet in the file."""
    database = tmp_path / "results.duckdb"
    rebuild(tmp_path, database)
    holder = child(HOLDER, database)
    assert holder.stdout is not None and holder.stdout.readline() == "open\n"
    Store(tmp_path).append("generations", [generation("L1", 1)])
    rebuild(tmp_path, database)
    assert plain_count(database) == 1
    out, err = holder.communicate("\n", timeout=60)
    assert (out, holder.returncode) == ("1\n", 0), err
    assert plain_count(database) == 1
    assert not list(tmp_path.glob("*.wal"))


def test_rebuild_into_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BenchError, match=r"cannot write .*results\.duckdb"):
        rebuild(tmp_path / "results", tmp_path / "file" / "results.duckdb")


def test_leftovers_of_a_rebuild_that_was_killed_are_removed(tmp_path: Path) -> None:
    gone = child("pass")
    gone.wait()
    dead = tmp_path / f".results.duckdb.{gone.pid}.abcd.tmp"
    live = tmp_path / f".results.duckdb.{os.getpid()}.abcd.tmp"
    dead.write_text("")
    live.write_text("")
    rebuild(tmp_path, tmp_path / "results.duckdb")
    assert not dead.exists() and live.exists()


# One writes, others read -----------------------------------------------------------------------------


def test_a_second_process_reads_while_a_run_writes(tmp_path: Path) -> None:
    """Readers see whole rows, each once, and the writer does not notice."""
    process = child(WRITER.replace("10_000", "60").replace("store.sweep(0.0)", "store.sweep()"), tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    seen = 0
    while process.poll() is None:
        found = json.loads(
            query(tmp_path, "select count(*) as n, count(distinct generation_id) as d from generations", "json")
        )
        assert found[0]["n"] == found[0]["d"] >= seen
        seen = found[0]["n"]
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert iterations(tmp_path) == list(range(1, 60))
    assert seen > 1


LOCKER = """
    import sys, time
    from pathlib import Path
    from bench.errors import UsageError
    from bench.locks import run_lock
    try:
        with run_lock(Path(sys.argv[1]), "r1"):
            print("held", flush=True)
            sys.stdin.readline()
    except UsageError as e:
        print(e)
        sys.exit(e.exit_code)
"""


def test_the_same_run_is_carried_on_by_one_process(tmp_path: Path) -> None:
    first = child(LOCKER, tmp_path)
    assert first.stdout is not None and first.stdout.readline() == "held\n"
    assert holder_of(tmp_path, "r1") == first.pid
    second = child(LOCKER, tmp_path)
    out, err = second.communicate("\n", timeout=60)
    assert second.returncode == 2 and f"process {first.pid}" in out and err == ""
    with pytest.raises(UsageError, match=f"process {first.pid}"), Store(tmp_path).lock("r1"):
        pass
    with Store(tmp_path).lock("r2"):
        pass
    # A lock dies with its process, however it dies.
    first.kill()
    first.wait()
    assert holder_of(tmp_path, "r1") is None
    with Store(tmp_path).lock("r1"):
        assert holder_of(tmp_path, "r1") == os.getpid()
        with pytest.raises(UsageError, match="by this process"), Store(tmp_path).lock("r1"):
            pass
    third = child(LOCKER, tmp_path)
    out, _ = third.communicate("\n", timeout=60)
    assert out == "held\n" and third.returncode == 0


def test_a_lock_is_not_inherited_by_children(tmp_path: Path) -> None:
    """A server that outlives the bench must not hold its run."""
    parent = child(
        """
        import subprocess, sys, os
        from pathlib import Path
        from bench.locks import run_lock
        with run_lock(Path(sys.argv[1]), "r1"):
            orphan = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            forked = os.fork()
            if forked == 0:
                import time
                time.sleep(60)
            print(orphan.pid, forked, flush=True)
            os.kill(os.getpid(), 9)
        """,
        tmp_path,
    )
    assert parent.stdout is not None
    pids = [int(p) for p in parent.stdout.readline().split()]
    try:
        parent.wait()
        with Store(tmp_path).lock("r1"):
            pass
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def test_two_benches_share_a_folder(tmp_path: Path) -> None:
    Store(tmp_path).append("generations", [generation("L1", 1)])
    other = "20261130-130000-bbbb"
    Store(tmp_path).append("generations", [generation("L1", 1, run_id=other, started_at=datetime.now(UTC))])
    Store(tmp_path).merge(RUN)
    assert {r["run_id"] for r in ask(tmp_path, "from generations")} == {RUN, other}
    assert NOON.tzinfo is UTC
