"""A look into a GGUF before a load: facts, defects and their repair, memory, and nothing that a file says believed."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_hub import Hub, serve
from gguf import GGUFReader, GGUFWriter
from gguf_files import WIDTH, write_gguf
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.errors import ArmError, UsageError
from bench.gguf import header as gguf_header
from bench.gguf.facts import GgufFacts
from bench.gguf.header import read_header
from bench.gguf.look import Problem, check, first_error, look, look_remote
from bench.gguf.memory import estimate, kv_row_bytes
from bench.presets.load import Arm, ModelRef, Sampler, load_arm

ARM = Arm("a", "A", ModelRef("file:m.gguf"), Sampler("s", 0.7, 0.9, 40, 0.0), context=4096)


def arm(**changes: Any) -> Arm:
    return replace(ARM, **changes)


def problems(facts: GgufFacts, **changes: Any) -> list[Problem]:
    return check(facts, arm(**changes))


def errors(facts: GgufFacts, **changes: Any) -> list[Problem]:
    return [problem for problem in problems(facts, **changes) if problem.severity == "error"]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf")


# Facts


def test_facts_of_a_small_model(tiny: Path) -> None:
    facts = look(tiny)
    assert (facts.name, facts.architecture, facts.kind, facts.size_label) == ("Tiny", "llama", "model", "1M")
    assert (facts.quant, list(facts.tensor_types)) == ("Q8_0", ["Q8_0", "F32"])
    assert facts.parameters == 4 * WIDTH * WIDTH + WIDTH
    assert (facts.block_count, facts.blocks_present, facts.missing_blocks) == (2, 2, ())
    assert (facts.context_length, facts.embedding_length, facts.heads, facts.kv_heads) == (8192, WIDTH, (4,), (2,))
    assert (facts.key_length, facts.value_length, facts.vocabulary, facts.tokenizer) == (16, 16, 300, "gpt2")
    assert facts.chat_template_sha256 == hashlib.sha256(b"{{ messages }}").hexdigest()
    assert (facts.split_count, facts.truncated, facts.file_bytes) == (1, False, tiny.stat().st_size)
    assert facts.needed_bytes <= tiny.stat().st_size
    assert problems(facts) == []


def test_header_agrees_with_the_gguf_package(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf",
        keys={"attention.head_count_kv": [2, 0, 1], "pattern": [True, False], "block_count": 3, "label": "ü"},
        blocks=range(3),
        tokens=40_000,
    )
    theirs, facts = GGUFReader(path), look(path)
    assert {t.name: (t.tensor_type.name, t.n_bytes, t.n_elements) for t in theirs.tensors} == {
        t.name: (t.type, t.bytes, t.elements) for t in facts.tensors
    }
    raw = path.read_bytes()
    header = read_header(lambda a, b: raw[a:b], len(raw), "m")
    assert header.data_start == theirs.data_offset
    assert header.data_end == max(t.data_offset + t.n_bytes for t in theirs.tensors)
    for key, field in theirs.fields.items():
        if key.startswith("GGUF."):
            continue
        ours = header.metadata[key]
        if isinstance(ours, gguf_header.LongArray):
            assert ours.length == len(field.data)
        else:
            assert ours == pytest.approx(field.contents()) if isinstance(ours, float) else ours == field.contents()


def test_the_header_is_read_in_pieces_and_no_further(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", tokens=100_000)
    raw, reads = path.read_bytes() + b"\0" * (64 << 20), []

    def read(start: int, stop: int) -> bytes:
        reads.append((start, stop))
        return raw[start:stop]

    header = read_header(read, len(raw), "m")
    assert len(reads) > 1
    assert max(stop for _, stop in reads) < header.header_bytes + (9 << 20)


def test_recommended_sampler_settings(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_float32("general.sampling.temp", 0.5)
    writer.add_int32("general.sampling.top_k", 20)
    writer.add_uint32("llama.block_count", 0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert look(path).sampling == {"temperature": 0.5, "top_k": 20}
    assert "no tensors" in errors(look(path))[0].text


# The class of AgentWorld's defect


def agentworld(tmp_path: Path) -> GgufFacts:
    """41 blocks announced, the last for multi-token prediction; tensors of 40, and none of that layer."""
    keys = {"block_count": 41, "nextn_predict_layers": 1, "full_attention_interval": 4}
    return look(write_gguf(tmp_path / "aw.gguf", arch="qwen35moe", blocks=range(40), keys=keys))


REPAIR = ("qwen35moe.block_count=int:40", "qwen35moe.nextn_predict_layers=int:0")


def test_a_counted_layer_that_was_never_written(tmp_path: Path) -> None:
    facts = agentworld(tmp_path)
    assert (facts.block_count, facts.blocks_present, facts.nextn_layers, facts.nextn_tensors) == (41, 40, 1, 0)
    (problem,) = errors(facts)
    assert problem.reason == "model_incompatible"
    assert "block_count is 41" in problem.text and "blk.39" in problem.text
    assert problem.advice == "repair it with " + " ".join(f"--override-kv {flag}" for flag in REPAIR)
    assert errors(facts, override_kv=REPAIR) == []
    error = first_error(problems(facts))
    assert error is not None and error.reason == "model_incompatible"
    assert first_error(problems(facts, override_kv=REPAIR)) is None


def test_half_a_repair_names_the_other_half(tmp_path: Path) -> None:
    facts = agentworld(tmp_path)
    (problem,) = errors(facts, override_kv=REPAIR[:1])
    assert problem.advice == f"repair it with --override-kv {REPAIR[1]}"
    (problem,) = errors(facts, override_kv=REPAIR[1:])
    assert problem.advice == f"repair it with --override-kv {REPAIR[0]}"
    (problem,) = errors(facts, override_kv=("qwen35moe.block_count=int:39", REPAIR[1]))
    assert "block_count is 39" in problem.text and REPAIR[0] in problem.advice


@pytest.mark.parametrize("arch", ["llama", "qwen3moe", "glm4moe", "gemma4"])
@pytest.mark.parametrize("count", [1, 3, 5])
def test_block_count_that_is_wrong(tmp_path: Path, arch: str, count: int) -> None:
    facts = look(write_gguf(tmp_path / "m.gguf", arch=arch, keys={"block_count": count}))
    (problem,) = errors(facts)
    assert problem.advice == f"repair it with --override-kv {arch}.block_count=int:2"
    assert errors(facts, override_kv=(f"{arch}.block_count=int:2",)) == []


def test_a_whole_file_with_its_prediction_layer(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf",
        arch="qwen35moe",
        blocks=range(5),
        keys={"block_count": 5, "nextn_predict_layers": 1},
        extra=["blk.4.nextn.eh_proj.weight"],
    )
    assert errors(look(path), spec_type="draft-mtp") == []
    without = look(write_gguf(tmp_path / "n.gguf"))
    assert "draft-mtp" in errors(without, spec_type="draft-mtp")[0].text


def test_a_phantom_layer_elsewhere_is_a_caveat(tmp_path: Path) -> None:
    facts = look(write_gguf(tmp_path / "m.gguf", arch="glm4moe", keys={"nextn_predict_layers": 1}))
    assert errors(facts) == []
    assert "glm4moe.nextn_predict_layers=int:0" in problems(facts)[0].advice


def test_a_hole_between_blocks(tmp_path: Path) -> None:
    facts = look(write_gguf(tmp_path / "m.gguf", blocks=(0, 2, 3), keys={"block_count": 4}))
    assert facts.missing_blocks == (1,)
    assert "blk.1" in errors(facts)[0].text


def test_no_block_count_at_all(tmp_path: Path) -> None:
    facts = look(write_gguf(tmp_path / "m.gguf", keys={"block_count": None}))
    assert "block_count is missing" in errors(facts)[0].text


# Overrides that a server would take in silence


@pytest.mark.parametrize(
    ("override", "text", "advice"),
    [
        ("llama.block_cuont=int:2", "no such key", "`llama.block_count`"),
        ("llama.blockcount=int:2", "no such key", "`llama.block_count`"),
        ("qwen35moe.block_count=int:2", "architecture is `llama`", "`llama.block_count`"),
        ("Llama.block_count=int:2", "architecture is `llama`", "`llama.block_count`"),
        ("block_count=int:2", "architecture is `llama`", "`llama.block_count`"),
        ("general.name=str:x", "do not change how", "leave it out"),
        ("llama.block_count=float:2", "type int", "`int:`"),
        ("llama.rope.freq_base=int:10000", "type float", "`float:`"),
        ("tokenizer.ggml.add_bos_token=int:1", "type bool", "`bool:`"),
        ("tokenizer.ggml.tokens=str:x", "list", "leave it out"),
        ("tokenizer.ggml.add_bos=bool:true", "no such key", "`tokenizer.ggml.add_bos_token`"),
    ],
)
def test_overrides_without_effect_are_errors(tiny: Path, override: str, text: str, advice: str) -> None:
    (problem,) = errors(look(tiny), override_kv=(override,))
    assert problem.reason == "model_incompatible"
    assert override in problem.text and text in problem.text
    assert advice in problem.advice


def test_overrides_that_work(tiny: Path) -> None:
    good = (
        "tokenizer.ggml.add_bos_token=bool:true",
        "llama.context_length=int:16384",
        "llama.rope.freq_base=float:5e5",
    )
    facts = look(tiny)
    assert errors(facts, override_kv=good) == []
    changed = facts.overridden(good)
    assert changed.context_length == 16384
    assert changed.get("rope.freq_base") == 5e5


# Other checks


def test_caveats(tmp_path: Path) -> None:
    facts = look(write_gguf(tmp_path / "m.gguf", template=None))
    found = problems(facts, context=16384)
    assert [problem.severity for problem in found] == ["caveat", "caveat"]
    assert "trained for 8192" in found[0].text
    assert "no chat template" in found[1].text
    assert len(problems(facts, context=16384, parallel=2)) == 1
    assert "tokenizer" in errors(look(write_gguf(tmp_path / "n.gguf", tokens=0)))[0].text


def test_a_projector_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "mmproj.gguf"
    writer = GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert "mmproj" in errors(look(path))[0].text


# Truncated and hostile files


def test_data_that_was_cut_off(tiny: Path) -> None:
    raw = tiny.read_bytes()
    needed = look(tiny).needed_bytes
    tiny.write_bytes(raw[: needed - 1])
    facts = look(tiny)
    assert facts.truncated
    problem = errors(facts)[0]
    assert problem.reason == "model_corrupt"
    assert f"{needed:,}" in problem.text and f"{needed - 1:,}" in problem.text
    tiny.write_bytes(raw[:needed])
    assert not look(tiny).truncated


def test_every_cut_through_the_header_is_one_error(tiny: Path) -> None:
    raw = tiny.read_bytes()
    end = read_header(lambda a, b: raw[a:b], len(raw), "m").header_bytes
    for cut in [*range(400), *range(400, end, 97), end - 1]:
        tiny.write_bytes(raw[:cut])
        with pytest.raises(ArmError) as error:
            look(tiny)
        assert error.value.reason == "model_corrupt"
        assert "\n" not in str(error.value)


def header(tensors: int = 0, keys: int = 0, *rest: bytes, version: int = 3) -> bytes:
    return struct.pack("<4sIqq", b"GGUF", version, tensors, keys) + b"".join(rest)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def tensor(name: str, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}qIQ", len(dims), *dims, kind, offset)


ARCH = text("general.architecture") + struct.pack("<I", 8) + text("llama")
HUGE = (1 << 63) - 1


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"GGML" + b"\0" * 100, "magic"),
        (header(version=1), "version"),
        (header(version=9), "version"),
        (header(version=0x03000000), "big-endian"),
        (header(HUGE, 0), "number of tensors"),
        (header(-1, 0), "number of tensors"),
        (header(0, HUGE), "number of keys"),
        (header(0, 1, struct.pack("<Q", 1 << 62)) + b"\0" * 50, "length of a key"),
        (header(0, 1, text("k"), struct.pack("<I", 99)) + b"\0" * 50, "unknown value type 99"),
        (header(0, 1, text("k"), struct.pack("<IQ", 8, 1 << 40)) + b"\0" * 50, "more than the file can hold"),
        (header(0, 1, text("k"), struct.pack("<IIQ", 9, 4, 1 << 60)) + b"\0" * 50, "more than the file can hold"),
        (header(0, 1, text("k"), struct.pack("<IIQ", 9, 8, 1 << 20)) + b"\0" * 50, "more than the file can hold"),
        (header(0, 1, text("k"), *[struct.pack("<IQ", 9, 1)] * 9) + b"\0" * 50, ""),
        (header(0, 1, text("k"), struct.pack("<I", 9), *[struct.pack("<IQ", 9, 1)] * 9), "deeply"),
        (header(0, 2, ARCH, ARCH), "twice"),
        (header(2, 1, ARCH, tensor("t", (4,)), tensor("t", (4,), 0, 32)) + b"\0" * 99, "twice"),
        (header(1, 1, ARCH, tensor("t", (1, 1, 1, 1, 1))) + b"\0" * 99, "at most 4 dimensions"),
        (header(1, 1, ARCH, tensor("t", (1 << 40, 1 << 40))) + b"\0" * 99, "impossible dimensions"),
        (header(1, 1, ARCH, tensor("t", (-4,))) + b"\0" * 99, "impossible dimensions"),
        (header(1, 1, ARCH, tensor("t", (4,), 0, 64)) + b"\0" * 99, "expected its data at offset 0"),
        (header(1, 1, ARCH, tensor("t", (33,), 8)) + b"\0" * 99, "blocks of 32"),
        (header(0, 0) + b"\0" * 99, "general.architecture"),
        (header(0, 1, ARCH[:-5] + b"ll\nma") + b"\0" * 99, "not a name"),
        (header(0, 1, text("a\nb\x1b"), struct.pack("<I", 99)) + b"\0" * 50, "unknown value type 99"),
        (
            header(0, 1, text("general.alignment"), struct.pack("<II", 4, 3)) + b"\0" * 99,
            "power of two",
        ),
        (
            header(0, 1, text("general.alignment"), struct.pack("<II", 4, 0)) + b"\0" * 99,
            "power of two",
        ),
    ],
)
def test_hostile_headers(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ArmError) as error:
        look(path)
    assert error.value.reason == "model_corrupt"
    assert what in error.value.detail
    assert str(error.value).isprintable()


def test_a_type_that_is_newer_than_we_are(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header(2, 1, ARCH, tensor("t", (32,), 777), tensor("u", (4,), 0, 96)) + b"\0" * 300)
    facts = look(path)
    assert [t.type for t in facts.tensors] == ["type 777", "F32"]
    assert any("type 777" in problem.text for problem in problems(facts))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_flipped_bytes_never_are_a_traceback(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "flipped.gguf"
    if not path.exists():
        write_gguf(path, tokens=20)
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(0, min(len(raw), 2600) - 1))] = data.draw(st.integers(0, 255))
    try:
        result = read_header(lambda a, b: bytes(raw[a:b]), len(raw), "m")
    except ArmError as error:
        assert error.reason == "model_corrupt"
    else:
        assert result.data_end >= result.data_start >= result.header_bytes or not result.tensors


@given(st.binary(max_size=300))
def test_noise_after_the_magic_never_is_a_traceback(noise: bytes) -> None:
    raw = b"GGUF\3\0\0\0" + noise
    try:
        read_header(lambda a, b: raw[a:b], None, "m")
    except ArmError as error:
        assert error.reason == "model_corrupt"


# Split models


def split(tmp_path: Path, parts: int = 2) -> list[Path]:
    out = []
    for i in range(parts):
        path = tmp_path / f"m-{i + 1:05d}-of-{parts:05d}.gguf"
        writer = GGUFWriter(path, "llama")
        writer.add_uint16("split.no", i)
        writer.add_uint16("split.count", parts)
        writer.add_int32("split.tensors.count", parts)
        if i == 0:
            writer.add_uint32("llama.block_count", parts)
        import numpy as np

        writer.add_tensor(f"blk.{i}.attn_q.weight", np.zeros((4, 8), dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        out.append(path)
    return out


def test_split_files_are_one_model(tmp_path: Path) -> None:
    paths = split(tmp_path)
    facts = look(paths[0])
    assert (facts.split_count, facts.blocks_present, facts.block_count, len(facts.tensors)) == (2, 2, 2, 2)
    assert facts.file_bytes == sum(path.stat().st_size for path in paths)
    with pytest.raises(UsageError, match="first part"):
        look(paths[1])
    paths[1].write_bytes(paths[1].read_bytes()[:-40])
    assert paths[1].name in look(paths[0]).shortfalls[0]
    paths[1].unlink()
    with pytest.raises(ArmError, match="00002-of-00002"):
        look(paths[0])
    with pytest.raises(ArmError, match="one of 2 parts"):
        look(paths[0].rename(tmp_path / "renamed.gguf"))


# From afar


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with serve(Hub()) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def test_a_remote_header_is_read_without_the_file(tmp_path: Path, hub: Hub) -> None:
    path = write_gguf(tmp_path / "m.gguf", tokens=60_000)
    local = look(path)
    raw = path.read_bytes()
    # Tensor data that would take long: the header must do. Only the size in the facts may differ.
    hub.files["tiny/model/m.gguf"] = raw + b"\0" * (40 << 20)
    facts = look_remote("hf:tiny/model/m.gguf")
    assert replace(facts, file_bytes=local.file_bytes) == local
    assert hub.sent < len(raw) + (9 << 20)
    assert all("bytes=" in line for line in hub.log if line.startswith("GET tiny/model"))
    hub.files["tiny/model/m.gguf"] = raw[:-WIDTH]
    assert look_remote(ModelRef("hf:tiny/model/m.gguf")).truncated


def test_remote_files_that_are_not_there(hub: Hub) -> None:
    hub.files["tiny/model/page.gguf"] = b"<!doctype html>" + b" " * 100
    with pytest.raises(ArmError, match="no such file"):
        look_remote("hf:tiny/model/m.gguf")
    with pytest.raises(ArmError, match="web page"):
        look_remote("hf:tiny/model/page.gguf")


# Memory


def kv(tmp_path: Path, arch: str, keys: dict[str, Any], **changes: Any) -> int:
    count = keys.get("block_count", 2)
    path = write_gguf(tmp_path / "m.gguf", arch=arch, keys=keys, blocks=range(count))
    return estimate(look(path), arm(**changes)).kv_cache


def test_kv_cache_of_plain_attention(tmp_path: Path) -> None:
    # SmolLM2-135M's shape; its server logs "CPU KV buffer size = 45.00 MiB" for 2048 tokens in f16.
    shape = {"block_count": 30, "embedding_length": 576, "attention.head_count": 9, "attention.head_count_kv": 3}
    assert kv(tmp_path, "llama", shape, context=2048) == 45 << 20
    quantised = kv(tmp_path, "llama", shape, context=2048, kv_k="q8_0", kv_v="q8_0")
    assert quantised == (45 << 20) * 34 // 64
    assert kv(tmp_path, "llama", shape, context=2000) == 45 << 20, "contexts are padded to 256"
    assert kv(tmp_path, "llama", shape, context=2048, parallel=4) == 45 << 20
    mixed = kv(tmp_path, "llama", shape, context=2048, kv_k="f16", kv_v="q4_0")
    assert mixed == (45 << 20) // 2 + (45 << 20) * 18 // 128


def test_kv_cache_of_hybrids(tmp_path: Path) -> None:
    shape = {
        "block_count": 8,
        "full_attention_interval": 4,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 4096,
        "ssm.state_size": 128,
        "ssm.group_count": 16,
    }
    path = write_gguf(tmp_path / "m.gguf", arch="qwen35moe", keys=shape, blocks=range(8))
    memory = estimate(look(path), arm(context=4096))
    assert memory.attention_blocks == 2
    assert memory.kv_cache == 2 * 4096 * 2 * (256 + 256) * 2
    assert memory.recurrent_state == 6 * 4 * (3 * (4096 + 2 * 16 * 128) + 128 * 4096)
    # Without the key the architecture's own interval holds; a layer for prediction is none of its blocks.
    shape |= {"block_count": 9, "nextn_predict_layers": 1, "full_attention_interval": None}
    path = write_gguf(
        tmp_path / "n.gguf", arch="qwen35moe", keys=shape, blocks=range(9), extra=["blk.8.nextn.eh_proj.weight"]
    )
    assert estimate(look(path), arm(context=4096)).attention_blocks == 2
    drafting = estimate(look(path), arm(context=4096, spec_type="draft-mtp"))
    assert drafting.kv_cache == 3 * memory.kv_cache // 2 and drafting.notes


def test_kv_cache_of_blocks_without_attention(tmp_path: Path) -> None:
    shape = {"block_count": 4, "attention.head_count_kv": [0, 2, 0, 2], "shortconv.l_cache": 3}
    path = write_gguf(tmp_path / "m.gguf", arch="lfm2", keys=shape, blocks=range(4))
    memory = estimate(look(path), ARM)
    assert memory.attention_blocks == 2
    assert memory.kv_cache == 2 * 4096 * 2 * (16 + 16) * 2
    assert memory.recurrent_state == 2 * 4 * WIDTH * 2


def test_kv_cache_with_sliding_windows(tmp_path: Path) -> None:
    # Gemma 4's shape: 5 of 6 blocks see 1024 tokens, with heads of another size.
    shape = {
        "block_count": 6,
        "attention.head_count_kv": [8, 8, 8, 8, 8, 2],
        "attention.key_length": 512,
        "attention.value_length": 512,
        "attention.key_length_swa": 256,
        "attention.value_length_swa": 256,
        "attention.sliding_window": 1024,
        "attention.sliding_window_pattern": [True] * 5 + [False],
    }
    full, window = 131072 * 2 * 1024 * 2, 1536 * 8 * 512 * 2
    assert kv(tmp_path, "gemma4", shape, context=131072) == full + 5 * window
    shared = shape | {"attention.shared_kv_layers": 2}
    assert kv(tmp_path, "gemma4", shared, context=131072) == 4 * window
    plain = {"block_count": 6, "attention.sliding_window": 1024}
    assert kv(tmp_path, "gemma3", plain, context=8192) == (8192 + 5 * 1536) * 2 * 32 * 2
    unknown = write_gguf(tmp_path / "u.gguf", arch="newarch", keys=plain, blocks=range(6))
    memory = estimate(look(unknown), arm(context=8192))
    assert memory.kv_cache == 6 * 8192 * 2 * 32 * 2 and "sliding window" in memory.notes[0]


def test_kv_cache_of_latent_attention(tmp_path: Path) -> None:
    shape = {
        "attention.head_count_kv": 1,
        "attention.key_length": 576,
        "attention.value_length": 512,
        "attention.key_length_mla": 192,
        "attention.value_length_mla": 128,
    }
    assert kv(tmp_path, "deepseek2", shape) == 2 * 4096 * 576 * 2


def test_rows_of_a_quantised_cache_are_whole_blocks() -> None:
    assert [kv_row_bytes(n, "q8_0") for n in (32, 33, 64)] == [34, 68, 68]
    assert (kv_row_bytes(64, "f16"), kv_row_bytes(64, "q4_0"), kv_row_bytes(64, "f32")) == (128, 36, 256)


def test_where_weights_go(tmp_path: Path) -> None:
    facts = look(write_gguf(tmp_path / "m.gguf"))
    tensor_bytes = WIDTH * WIDTH // 32 * 34
    cpu = estimate(facts, ARM)
    assert (cpu.vram, cpu.weights) == (0, facts.tensor_bytes)
    everything = estimate(facts, arm(device="gpu", gpu_layers="all"))
    one = estimate(facts, arm(device="gpu", gpu_layers=1))
    two = estimate(facts, arm(device="gpu", gpu_layers=2))
    # `output` counts as the last layer: one layer is that alone, two bring the last block and its cache.
    assert two.vram - one.vram == tensor_bytes + everything.kv_cache // 2
    assert everything.ram == tensor_bytes, "the input embedding stays in RAM"
    tied = estimate(look(write_gguf(tmp_path / "t.gguf", output=False)), arm(device="gpu", gpu_layers="all"))
    assert tied.vram == everything.vram, "a tied embedding is on the GPU as the output"


def test_scores_without_flash_attention(tmp_path: Path) -> None:
    facts = look(write_gguf(tmp_path / "m.gguf"))
    assert estimate(facts, ARM).compute - estimate(facts, arm(flash_attention=True)).compute == 4 * 512 * 4 * 4096


def test_reference_arm_against_what_was_measured(tmp_path: Path) -> None:
    """AgentWorld's VRAM in the reference run was 21,387 MB idle, desktop included. The estimate is within 5 %."""
    keys = {
        "block_count": 41,
        "nextn_predict_layers": 1,
        "full_attention_interval": 4,
        "embedding_length": 2048,
        "attention.head_count": 16,
        "attention.head_count_kv": 2,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 4096,
        "ssm.state_size": 128,
        "ssm.group_count": 16,
    }
    facts = look(write_gguf(tmp_path / "aw.gguf", arch="qwen35moe", blocks=range(40), keys=keys))
    embedding = 248_320 * 2048 * 144 // 256
    sizes = {"token_embd.weight": embedding, "blk.0.attn_q.weight": 21_166_758_816 - embedding}
    tensors = tuple(replace(tensor, bytes=sizes.get(tensor.name, 0)) for tensor in facts.tensors)
    facts = replace(facts, tensors=tensors, tensor_bytes=21_166_758_816, vocabulary=248_320)
    agentworld = load_arm("agentworld-35b-a3b-q4", Path(__file__).resolve().parent.parent)
    memory = estimate(facts, replace(agentworld, override_kv=REPAIR))
    assert (memory.attention_blocks, memory.kv_cache) == (10, 713_031_680)
    # `overridden` counts the vocabulary anew from the small file: its logits are put back.
    logits = 4 * 512 * (248_320 - 300)
    assert (memory.vram + logits) / 2**20 == pytest.approx(21_387, rel=0.05)
