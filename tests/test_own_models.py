"""One's own models: the lock file, a preset from a file, and files benched without any preset."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import COMMIT, Hub, serve
from gguf import GGUFWriter
from gguf_files import write_gguf

from bench.errors import ArmError, UsageError
from bench.gguf.look import check, look
from bench.models.checksums import combined_sha256
from bench.models.local import find_models
from bench.models.lock import lock_models, unlocked
from bench.models.obtain import obtain
from bench.models.pins import Pin, lock_path, read_pins, write_pins
from bench.presets.load import load_arm
from bench.presets.new_arm import arms_from_models, new_arm, slug

SAMPLERS = """
[server-default]
temperature = 0.8
top_p = 0.95
top_k = 40
min_p = 0.05

[thinking-coding]
temperature = 0.6
top_p = 0.95
top_k = 20
min_p = 0.0
"""
ARM = 'title = "A"\nsampler = "server-default"\n[model]\nsource = "{source}"\n{more}\n[server]\ncontext = 4096\n'
WHOLE = b"GGUF" + b"\0" * 500
SHA = hashlib.sha256(WHOLE).hexdigest()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "presets/arms").mkdir(parents=True)
    (root / "presets/samplers.toml").write_text(SAMPLERS)
    return root


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with serve(Hub({"tiny/model/m.gguf": WHOLE})) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def add_arm(root: Path, arm_id: str, source: str, more: str = "") -> None:
    (root / f"presets/arms/{arm_id}.toml").write_text(ARM.format(source=source, more=more))


SOURCE = "hf:tiny/model/m.gguf"


# The lock file


def test_locking_writes_what_the_hub_says(root: Path, hub: Hub, tmp_path: Path) -> None:
    add_arm(root, "a", SOURCE)
    add_arm(root, "b", SOURCE)
    add_arm(root, "wheel", "pypi:p==1/m.gguf")
    assert unlocked([load_arm("a", root)]) == ["a"]
    first, wheel = lock_models(["a", "b", "wheel"], root)
    assert (first.state, first.arms, first.pin) == ("new", ("a", "b"), Pin(COMMIT, len(WHOLE), SHA))
    assert (wheel.state, wheel.pin) == ("fixed already", None)
    assert hub.sent == 0, "nothing is downloaded"
    arm = load_arm("b", root)
    assert (arm.model.revision, arm.model.bytes, arm.model.sha256) == (COMMIT, len(WHOLE), SHA)
    assert unlocked([arm]) == []
    assert obtain(arm.model, tmp_path / "cache").locked
    before = lock_path(root).read_text()
    assert lock_models(["a"], root)[0].state == "unchanged"
    assert lock_path(root).read_text() == before


def test_a_locked_file_that_differs_is_refused(root: Path, hub: Hub, tmp_path: Path) -> None:
    add_arm(root, "a", SOURCE)
    lock_models(["a"], root)
    hub.files["tiny/model/m.gguf"] = WHOLE + b"new"
    with pytest.raises(ArmError) as error:
        obtain(load_arm("a", root).model, tmp_path / "cache")
    assert error.value.reason == "model_corrupt"
    assert lock_models(["a"], root)[0].state == "changed"
    assert obtain(load_arm("a", root).model, tmp_path / "cache").bytes == len(WHOLE) + 3


def test_what_cannot_be_locked_keeps_its_pin_and_the_others_go_on(root: Path, hub: Hub) -> None:
    add_arm(root, "a", SOURCE)
    add_arm(root, "gone", "hf:no/such/m.gguf")
    add_arm(root, "other", SOURCE.replace("m.gguf", "n.gguf"), "bytes = 7")
    hub.files["tiny/model/n.gguf"] = WHOLE
    old = Pin("f" * 40, 7, "e" * 64)
    write_pins(root, {"hf:no/such/m.gguf": old, "hf:not/asked/x.gguf": old})
    gone, good, wrong = lock_models(["gone", "a", "other"], root)
    assert (gone.state, "no such repository" in gone.detail) == ("failed", True)
    assert (wrong.state, "bytes of arm other is 7" in wrong.detail) == ("failed", True)
    assert good.state == "new"
    assert read_pins(root) == {"hf:no/such/m.gguf": old, "hf:not/asked/x.gguf": old, SOURCE: good.pin}


def test_a_stale_pin_does_not_keep_from_locking_anew(root: Path, hub: Hub) -> None:
    del hub
    add_arm(root, "a", SOURCE, f"bytes = {len(WHOLE)}")
    write_pins(root, {SOURCE: Pin("f" * 40, 7, "e" * 64)})
    with pytest.raises(UsageError, match="lock-models"):
        load_arm("a", root)
    assert lock_models(["a"], root)[0].state == "changed"
    assert load_arm("a", root).model.bytes == len(WHOLE)


def test_split_models_are_locked_as_one(root: Path, hub: Hub, tmp_path: Path) -> None:
    names = [f"m-0000{i}-of-00002.gguf" for i in (1, 2)]
    for i, name in enumerate(names):
        hub.files[f"tiny/model/{name}"] = WHOLE + bytes([i])
    add_arm(root, "a", f"hf:tiny/model/{names[0]}")
    (locked,) = lock_models(["a"], root)
    sums = [hashlib.sha256(WHOLE + bytes([i])).hexdigest() for i in range(2)]
    assert locked.pin == Pin(COMMIT, 2 * len(WHOLE) + 2, combined_sha256(sums))
    model = obtain(load_arm("a", root).model, tmp_path / "cache")
    assert (model.sha256, model.bytes, model.locked) == (locked.pin.sha256, locked.pin.bytes, True)


# A preset from a file


def write_and_load(root: Path, text: str, arm_id: str):
    (root / f"presets/arms/{arm_id}.toml").write_text(text)
    return load_arm(arm_id, root)


def test_new_arm_of_a_local_file(root: Path, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "My Model-Q8_0.gguf")
    new = new_arm(str(path), root)
    assert new.arm_id == "my-model-q8_0"
    arm = write_and_load(root, new.text, new.arm_id)
    assert (arm.title, arm.device, arm.context, arm.port, arm.parallel) == ("Tiny Q8_0", "cpu", 8192, 0, 1)
    assert (arm.sampler.sampler_id, arm.model.bytes) == ("server-default", path.stat().st_size)
    assert obtain(arm.model, tmp_path / "cache").path == path
    assert check(look(path), arm) == []
    assert all(f"# Guessed: {guess}" in new.text for guess in new.guesses)
    assert any("trained for 8192" in guess for guess in new.guesses)
    with pytest.raises(UsageError, match="there already"):
        new_arm(str(path), root)


def test_new_arm_for_a_gpu_takes_the_context_that_fits(root: Path, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", keys={"context_length": 100_000, "attention.head_count_kv": 4})
    roomy = write_and_load(root, new_arm(str(path), root, vram_bytes=24 << 30, arm_id="roomy").text, "roomy")
    assert (roomy.device, roomy.gpu_layers, roomy.context) == ("gpu", "all", 65536)
    tight = write_and_load(root, new_arm(str(path), root, vram_bytes=460 << 20, arm_id="tight").text, "tight")
    assert tight.context < roomy.context
    none = new_arm(str(path), root, vram_bytes=1 << 20, arm_id="none")
    assert any("needed even so" in guess for guess in none.guesses)


def test_new_arm_repairs_a_miscounted_file(root: Path, tmp_path: Path) -> None:
    keys = {"block_count": 3, "nextn_predict_layers": 1}
    path = write_gguf(tmp_path / "m.gguf", arch="qwen35moe", keys=keys)
    new = new_arm(str(path), root)
    arm = write_and_load(root, new.text, "m")
    assert arm.override_kv == ("qwen35moe.block_count=int:2", "qwen35moe.nextn_predict_layers=int:0")
    assert arm.sampler.sampler_id == "thinking-coding"
    assert [problem for problem in check(look(path), arm) if problem.severity == "error"] == []


def recommending(path: Path, **sampling: float) -> Path:
    writer = GGUFWriter(path, "llama")
    for key, value in sampling.items():
        writer.add_float32(f"general.sampling.{key}", value)
    writer.add_uint32("llama.context_length", 2048)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_new_arm_takes_the_sampler_that_the_file_recommends(root: Path, tmp_path: Path) -> None:
    fits = new_arm(str(recommending(tmp_path / "a.gguf", temp=0.6)), root)
    assert write_and_load(root, fits.text, "a").sampler.sampler_id == "thinking-coding"
    other = new_arm(str(recommending(tmp_path / "b.gguf", temp=0.25, top_p=0.5)), root)
    arm = write_and_load(root, other.text, "b")
    assert (arm.sampler.sampler_id, arm.context) == ("server-default", 2048)
    assert any("temperature = 0.25, top_p = 0.5" in guess for guess in other.guesses)


def test_what_a_file_says_cannot_write_keys(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_name('x"\n[server]\ncontext = 1\n# \x00\x7f\u2028')
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    arm = write_and_load(root, new_arm(str(path), root).text, "m")
    assert arm.title.startswith('x" [server] context = 1 #')
    assert arm.context != 1


def test_new_arm_from_the_hub_is_pinned(root: Path, hub: Hub, tmp_path: Path) -> None:
    raw = write_gguf(tmp_path / "m.gguf").read_bytes()
    hub.files["tiny/model/Tiny-Q8_0.gguf"] = raw
    new = new_arm("hf:tiny/model/Tiny-Q8_0.gguf", root)
    arm = write_and_load(root, new.text, "tiny-q8_0")
    assert arm.model.source == f"hf:tiny/model@{COMMIT}/Tiny-Q8_0.gguf"
    assert (arm.model.bytes, arm.model.sha256) == (len(raw), hashlib.sha256(raw).hexdigest())
    assert obtain(arm.model, tmp_path / "cache").locked


def test_slug() -> None:
    assert slug("Qwen3.6-35B-A3B-UD-Q4_K_S.gguf") == "qwen3.6-35b-a3b-ud-q4_k_s"
    assert slug("Big-00001-of-00003.gguf") == "big"
    assert (slug("模型.gguf"), slug("all.gguf"), slug("a (1).GGUF")) == ("model", "model-all", "a-1")


# Files without a preset


def test_models_by_file_pattern_and_folder(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "models"
    (folder / "deep").mkdir(parents=True)
    for name in ("a.gguf", "b.gguf", "mmproj-b.gguf", "deep/a.gguf"):
        write_gguf(folder / name, tokens=10)
    (folder / "notes.txt").write_text("x")
    arms = arms_from_models([str(folder)], root)
    assert [arm.arm_id for arm in arms] == ["a", "b", "a-2"]
    assert [arm.model.source for arm in arms] == [
        f"file:{folder}/{name}" for name in ("a.gguf", "b.gguf", "deep/a.gguf")
    ]
    assert len(arms_from_models([str(folder / "a.gguf"), str(folder / "*.gguf")], root)) == 2
    monkeypatch.chdir(tmp_path)
    assert len(arms_from_models(["models/**/*.gguf"], root)) == 3
    for target in ("none.gguf", "models/*.bin", str(tmp_path / "root")):
        with pytest.raises(UsageError, match="expected a GGUF file"):
            arms_from_models([target], root)
    (folder / "a.gguf").write_bytes(b"<html>")
    with pytest.raises(ArmError, match="web page"):
        arms_from_models([str(folder / "a.gguf")], root)


def test_later_parts_are_no_models_of_their_own(tmp_path: Path) -> None:
    for name in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"):
        (tmp_path / name).write_bytes(WHOLE)
    assert [model.name for model in find_models([str(tmp_path)])] == ["m-00001-of-00002.gguf"]


def test_lm_studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"\.lmstudio"):
        find_models(["lmstudio"])
    folder = tmp_path / ".lmstudio/models/owner/Name-GGUF"
    folder.mkdir(parents=True)
    (folder / "Name-Q4.gguf").write_bytes(WHOLE)
    (folder / "Name-Q8.gguf").write_bytes(WHOLE)
    assert [model.name for model in find_models(["LM-Studio"])] == [
        "owner/Name-GGUF/Name-Q4.gguf",
        "owner/Name-GGUF/Name-Q8.gguf",
    ]
    assert len(find_models(["lmstudio:q8"])) == 1
    with pytest.raises(UsageError, match="there are: owner/Name"):
        find_models(["lmstudio:zzz"])


def test_ollama(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    monkeypatch.setenv("OLLAMA_MODELS", str(store))
    monkeypatch.setenv("HOME", str(tmp_path))
    raw = write_gguf(tmp_path / "m.gguf").read_bytes()
    sha256 = hashlib.sha256(raw).hexdigest()
    for path in ("manifests/host/library/qwen3/0.6b", "manifests/host/me/own/latest", "manifests/host/me/bad/latest"):
        (store / path).parent.mkdir(parents=True)
    (store / "blobs").mkdir()
    (store / f"blobs/sha256-{sha256}").write_bytes(raw)
    layers = [
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{sha256}"},
        {"mediaType": "application/vnd.ollama.image.license", "digest": f"sha256:{'0' * 64}"},
    ]
    (store / "manifests/host/library/qwen3/0.6b").write_text(json.dumps({"layers": layers}))
    (store / "manifests/host/me/own/latest").write_text(json.dumps({"layers": layers[1:]}))
    (store / "manifests/host/me/bad/latest").write_text("{")
    (arm,) = arms_from_models(["ollama"], root)
    assert (arm.arm_id, arm.model.sha256) == ("qwen3-0.6b", sha256)
    assert obtain(arm.model, tmp_path / "cache").locked
    assert len(find_models(["ollama:qwen3"])) == 1
    with pytest.raises(UsageError, match="none of 1 models matches"):
        find_models(["ollama:llama"])
