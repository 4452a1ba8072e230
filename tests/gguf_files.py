"""Small GGUF files, written by the gguf package as a converter would."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

Q8_0 = GGMLQuantizationType.Q8_0
WIDTH = 64


def write_gguf(
    path: Path,
    *,
    arch: str = "llama",
    blocks: Iterable[int] = (0, 1),
    keys: Mapping[str, Any] | None = None,
    extra: Sequence[str] = (),
    template: str | None = "{{ messages }}",
    tokens: int = 300,
    output: bool = True,
    left_out: Sequence[str] = (),
) -> Path:
    """Write a model with a tensor or two a block. `keys` are the architecture's own; None leaves a default one out."""
    writer = GGUFWriter(path, arch)
    writer.add_type("model")
    writer.add_name("Tiny")
    writer.add_size_label("1M")
    writer.add_file_type(7)
    values: dict[str, Any] = {
        "block_count": 2,
        "context_length": 8192,
        "embedding_length": WIDTH,
        "feed_forward_length": 128,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "rope.freq_base": 10000.0,
    }
    values |= keys or {}
    for key, value in values.items():
        if value is not None and key not in left_out:
            _add(writer, f"{arch}.{key}", value)
    if tokens:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list([f"token{i}" for i in range(tokens)])
        writer.add_token_scores([0.0] * tokens)
        writer.add_add_bos_token(False)
    if template is not None:
        writer.add_chat_template(template)
    names = ["token_embd.weight", *(f"blk.{n}.attn_q.weight" for n in blocks), *extra]
    for name in [*names, *(["output.weight"] if output else [])]:
        _tensor(writer, name)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def _tensor(writer: GGUFWriter, name: str) -> None:
    rows = np.zeros((WIDTH, WIDTH // 32 * 34), dtype=np.uint8)
    writer.add_tensor(name, rows, raw_dtype=Q8_0)
