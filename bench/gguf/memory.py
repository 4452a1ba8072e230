"""How much memory an arm will take, estimated from the file's header before anything is loaded.

Weights are exact (sizes of the tensors, placed as llama.cpp places them). The KV cache is exact where the metadata
tells which blocks have attention: `cells x kv_heads x (key_length x size(kv_k) + value_length x size(kv_v))` a block,
as in llama.cpp's `llama-kv-cache.cpp`, `llama-kv-cache-iswa.cpp` and `llama-hparams.cpp` (build 9785). Recurrent state
likewise (`n_embd_r`, `n_embd_s`). The compute buffers are an estimate, and say so: logits and activations of one
micro-batch, and scores of the whole context where flash attention is off. Sizes are bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bench.gguf.facts import GgufFacts
from bench.gguf.header import Tensor
from bench.presets.load import Arm

UBATCH = 512
"""llama-server's default micro-batch, tokens."""
CUDA_CONTEXT_BYTES = 400 << 20
"""What a CUDA process holds before any buffer; 300 to 500 MiB on current drivers."""

_KV_BYTES = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "iq4_nl": (32, 18),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
}
"""Type of the cache -> (values in a block, bytes of a block)."""

_WINDOW_PERIOD = {
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "gpt-oss": 2,
    "cohere2": 4,
    "cohere2moe": 4,
    "exaone4": 4,
    "exaone-moe": 4,
    "olmo2": 4,
    "llama4": 4,
    "plamo3": 8,
    "afmoe": 4,
    "mellum": 4,
    "smallthinker": 4,
}
"""Every n-th block sees the whole context, in architectures whose files need not say so; llama.cpp's own defaults."""
_WHOLE_FIRST = ("cohere2moe", "smallthinker")
"""Where it is the first of each n blocks and not the last."""
_HYBRID_INTERVAL = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4}
"""Every n-th block has attention and the others a recurrent state, where the file does not say otherwise."""
_BOTH = ("falcon-h1",)
"""Architectures with attention and a recurrent state in each block."""

_INPUT_ONLY = ("token_embd.weight", "per_layer_token_embd.weight", "position_embd.weight")
"""Tensors that stay in RAM however many layers go to the GPU."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes by purpose, and where they go."""

    weights: int
    """All tensors."""
    kv_cache: int
    recurrent_state: int
    compute: int
    """Buffers for one micro-batch. A rough figure."""
    vram: int
    """What of all this goes to the GPU, with the CUDA context; 0 on a CPU arm."""
    ram: int
    """The rest; weights in RAM are mapped from the file."""
    attention_blocks: int
    """Blocks with a KV cache of their own."""
    notes: tuple[str, ...]
    """What could not be read from the file and was taken to be larger rather than smaller."""


@dataclass(frozen=True)
class _Block:
    kv: int
    state: int


def estimate(facts: GgufFacts, arm: Arm) -> MemoryEstimate:
    """The memory that a server will take with this file and this arm's settings, overrides included."""
    facts = facts.overridden(arm.override_kv)
    notes: list[str] = []
    blocks = _blocks(facts, arm, notes)
    offloaded = _offloaded(facts, arm)
    weights = facts.tensor_bytes
    tied = not any(tensor.name == "output.weight" for tensor in facts.tensors)
    gpu_weights = sum(_on_gpu(tensor, offloaded, len(blocks), tied) for tensor in facts.tensors)
    kv, state = sum(block.kv for block in blocks), sum(block.state for block in blocks)
    gpu_kv = sum(block.kv + block.state for i, block in enumerate(blocks) if i >= len(blocks) + 1 - offloaded)
    compute = _compute(facts, arm)
    if arm.spec_type == "draft-mtp":
        notes.append(
            "the drafting layers' own buffers are counted as one block of KV cache and a second compute buffer"
        )
        drafting = max((block.kv for block in blocks), default=0) * max(facts.nextn_layers, 1)
        kv, gpu_kv, compute = kv + drafting, gpu_kv + (drafting if offloaded else 0), compute * 2
    vram = gpu_weights + gpu_kv + compute + CUDA_CONTEXT_BYTES if offloaded else 0
    ram = weights + kv + state + compute - (gpu_weights + gpu_kv + compute if offloaded else 0)
    attention = sum(block.kv > 0 for block in blocks)
    return MemoryEstimate(weights, kv, state, compute, vram, ram, attention, tuple(notes))


def kv_row_bytes(values: int, kind: str) -> int:
    """Bytes of a row of a cache; rows of quantised types are whole blocks."""
    block, size = _KV_BYTES[kind]
    return -(-values // block) * size


def _offloaded(facts: GgufFacts, arm: Arm) -> int:
    """Layers on the GPU as llama.cpp counts them: blocks from the last one down, and the output as one more."""
    everything = (facts.block_count or facts.blocks_present) + 1
    if arm.device == "cpu":
        return 0
    return everything if arm.gpu_layers == "all" else min(arm.gpu_layers, everything)


def _on_gpu(tensor: Tensor, offloaded: int, blocks: int, tied: bool) -> int:
    """Bytes of a tensor on the GPU. A tied embedding is there a second time, as the output."""
    size = tensor.bytes or 0
    if offloaded == 0:
        return 0
    if match := re.match(r"blk\.(\d+)\.", tensor.name):
        return size if int(match[1]) >= blocks + 1 - offloaded else 0
    if tensor.name in _INPUT_ONLY:
        return size if tied and tensor.name == "token_embd.weight" else 0
    return size


def _blocks(facts: GgufFacts, arm: Arm, notes: list[str]) -> list[_Block]:
    count = facts.block_count or facts.blocks_present
    predicting = min(facts.nextn_layers, count)
    if facts.kv_heads is None:
        # rwkv and mamba have no attention at all; others whose keys we do not know get no figure.
        if not any(".attention." in key and key.endswith("_length") for key in facts.metadata) and _state(facts, 1):
            return [_Block(0, _state(facts, arm.parallel))] * count
        notes.append("the file does not say how many KV heads there are: no KV cache is counted")
        return [_Block(0, 0)] * count
    per_slot = _pad(arm.context // arm.parallel, 256)
    window = facts.number("attention.sliding_window") or 0
    window_cells = _pad(min(per_slot, window + UBATCH), 256)
    sliding = _sliding(facts, count, notes) if window else [False] * count
    shared_from = 20 if facts.architecture == "gemma3n" else count - (facts.number("attention.shared_kv_layers") or 0)
    state = _state(facts, arm.parallel)
    recurrent = _recurrent(facts, count, predicting)
    out = []
    for i in range(count):
        heads = facts.kv_heads[i] if i < len(facts.kv_heads) else facts.kv_heads[-1]
        if recurrent[i] or heads == 0:
            out.append(_Block(0, state))
        elif i >= shared_from or i >= count - predicting:
            out.append(_Block(0, 0))
        else:
            cells = (window_cells if sliding[i] else per_slot) * arm.parallel
            own_state = state if facts.architecture in _BOTH else 0
            out.append(_Block(cells * _cell_bytes(facts, arm, heads, sliding[i]), own_state))
    return out


def _recurrent(facts: GgufFacts, count: int, predicting: int) -> list[bool]:
    """Which blocks have a recurrent state in place of attention; blocks for prediction never do."""
    said = facts.get("attention.recurrent_layers")
    if isinstance(said, list) and len(said) >= count:
        return [bool(value) for value in said[:count]]
    interval = facts.number("full_attention_interval") or _HYBRID_INTERVAL.get(facts.architecture, 0)
    return [interval > 1 and (i + 1) % interval != 0 and i < count - predicting for i in range(count)]


def _cell_bytes(facts: GgufFacts, arm: Arm, heads: int, sliding: bool) -> int:
    """Bytes that one token takes in the cache of one block."""
    suffix = "_swa" if sliding else ""
    key = facts.number(f"attention.key_length{suffix}") or facts.key_length or 0
    value = facts.number(f"attention.value_length{suffix}") or facts.value_length or 0
    if facts.number("attention.key_length_mla"):
        value = 0  # multi-head latent attention keeps one compressed row, from which K and V are both read
    return kv_row_bytes(heads * key, arm.kv_k) + kv_row_bytes(heads * value, arm.kv_v)


def _sliding(facts: GgufFacts, count: int, notes: list[str]) -> list[bool]:
    """Which blocks see a window only."""
    said = facts.get("attention.sliding_window_pattern")
    if isinstance(said, list) and len(said) >= count:
        return [bool(value) for value in said[:count]]
    every = said if isinstance(said, int) and said > 0 else _WINDOW_PERIOD.get(facts.architecture)
    if every is None:
        notes.append("the file does not say which blocks have a sliding window: all are counted with the whole context")
        return [False] * count
    whole = 0 if facts.architecture in _WHOLE_FIRST else every - 1
    return [i % every != whole for i in range(count)]


def _state(facts: GgufFacts, slots: int) -> int:
    """Recurrent state of one block in bytes: convolution and state, in f32, for each slot (`n_embd_r`, `n_embd_s`)."""
    embedding, kernel = facts.embedding_length or 0, facts.number("ssm.conv_kernel") or 0
    if head := facts.number("wkv.head_size"):
        shifts = facts.number("token_shift_count") or 2
        return 4 * slots * (shifts * embedding + embedding * head)
    if cached := facts.number("shortconv.l_cache"):
        return 4 * slots * embedding * (cached - 1)
    if head := facts.number("kda.head_dim"):
        heads = max(facts.heads or (0,))
        return 4 * slots * (3 * (kernel - 1 if kernel else 3) * heads * head + head * head * heads)
    inner, size = facts.number("ssm.inner_size") or 0, facts.number("ssm.state_size") or 0
    groups = facts.number("ssm.group_count") or 0
    return 4 * slots * (max(kernel - 1, 0) * (inner + 2 * groups * size) + size * inner)


def _compute(facts: GgufFacts, arm: Arm) -> int:
    """Logits, some activations, and the scores of a whole context where flash attention is off."""
    embedding = facts.embedding_length or 0
    hidden = facts.number("feed_forward_length") or (facts.number("expert_feed_forward_length") or 0) * (
        facts.number("expert_used_count") or 1
    )
    tokens = min(UBATCH, arm.context)
    out = 4 * tokens * ((facts.vocabulary or 0) + 6 * embedding + 3 * hidden)
    if arm.flash_attention is False:
        out += 4 * tokens * max(facts.heads or (0,)) * arm.context
    return out


def _pad(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple
