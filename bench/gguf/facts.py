"""What the header of a GGUF says of the model, as typed facts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bench.gguf.header import Header, LongArray, Tensor

_BLOCK = re.compile(r"^blk\.(\d+)\.")

SAMPLING_KEYS = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_p": "top_p",
    "general.sampling.top_k": "top_k",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repeat_penalty",
}
"""Keys by which a file recommends a sampler -> our name."""


@dataclass(frozen=True)
class GgufFacts:
    """A model file as its header describes it. None is "the header does not say"."""

    name: str | None
    architecture: str
    kind: str
    """general.type: `model`, or `adapter`, `mmproj`, ..."""
    size_label: str | None
    quant: str
    """The name of general.file_type, such as Q4_K_M; without one, the type that holds most bytes."""
    tensor_types: Mapping[str, int]
    """Bytes of tensor data by type, largest first."""
    parameters: int
    block_count: int | None
    """Blocks that the metadata announces, those for multi-token prediction included."""
    blocks_present: int
    """Highest N of any tensor blk.N.*, plus one; 0 without such tensors."""
    missing_blocks: tuple[int, ...]
    """Blocks below `blocks_present` of which there is no tensor at all."""
    nextn_layers: int
    """Layers for multi-token prediction that the metadata announces."""
    nextn_tensors: int
    """Tensors of such layers that are there."""
    context_length: int | None
    """Context the model was trained for, tokens."""
    embedding_length: int | None
    heads: tuple[int, ...] | None
    """Attention heads, one value for all blocks or one for each."""
    kv_heads: tuple[int, ...] | None
    """KV heads, likewise; 0 in a block without attention."""
    key_length: int | None
    """Size of a K head."""
    value_length: int | None
    vocabulary: int | None
    tokenizer: str | None
    chat_template: str | None = field(repr=False)
    chat_template_sha256: str | None
    split_count: int
    sampling: Mapping[str, float | int]
    """Sampler settings that the file recommends, under our names."""
    tensor_bytes: int
    """All tensor data."""
    needed_bytes: int
    """Bytes that the files must have in all, by their headers."""
    file_bytes: int | None
    """Bytes that they have; None where nobody could say."""
    shortfalls: tuple[str, ...]
    """One line for each file that is shorter than its header needs."""
    metadata: Mapping[str, Any] = field(repr=False)
    kinds: Mapping[str, str] = field(repr=False)
    tensors: tuple[Tensor, ...] = field(repr=False)

    @property
    def truncated(self) -> bool:
        """Whether tensor data is missing at the end."""
        return bool(self.shortfalls)

    def get(self, key: str) -> Any:
        """A value of the architecture's own: `get("block_count")` is `ARCH.block_count`."""
        return self.metadata.get(f"{self.architecture}.{key}")

    def number(self, key: str) -> int | None:
        """A whole number of the architecture's own; None when it is absent or of another kind."""
        return as_int(self.get(key))

    def overridden(self, overrides: Sequence[str]) -> GgufFacts:
        """The facts as a server sees them with these `KEY=TYPE:VALUE`; those it would ignore change nothing."""
        metadata = dict(self.metadata)
        for text in overrides:
            key, kind, value = split_override(text)
            if self.kinds.get(key) == kind:
                metadata[key] = override_value(kind, value)
        return _derived(replace(self, metadata=metadata))


def split_override(text: str) -> tuple[str, str, str]:
    """`KEY=TYPE:VALUE` -> (key, type, value)."""
    key, _, rest = text.partition("=")
    kind, _, value = rest.partition(":")
    return key, kind, value


def override_value(kind: str, value: str) -> Any:
    """The value of an override, as its type says."""
    if kind == "int":
        return int(value)
    if kind == "float":
        return float(value)
    return value == "true" if kind == "bool" else value


def as_int(value: object) -> int | None:
    """A whole number, else None; true is not 1."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def facts_of(headers: Sequence[Header], sizes: Sequence[int | None], names: Sequence[str]) -> GgufFacts:
    """Facts of a model from the headers of its parts. The first part's metadata count."""
    first = headers[0]
    tensors = tuple(tensor for header in headers for tensor in header.tensors)
    shortfalls = tuple(
        f"{name}: expected at least {header.data_end:,} bytes by its header, found {size:,}"
        for header, size, name in zip(headers, sizes, names, strict=True)
        if size is not None and size < header.data_end
    )
    blank = GgufFacts(
        name=_text(first.metadata.get("general.name")),
        architecture=_text(first.metadata.get("general.architecture")) or "",
        kind=_text(first.metadata.get("general.type")) or "model",
        size_label=_text(first.metadata.get("general.size_label")),
        quant="",
        tensor_types={},
        parameters=sum(tensor.elements for tensor in tensors),
        block_count=None,
        blocks_present=0,
        missing_blocks=(),
        nextn_layers=0,
        nextn_tensors=sum(".nextn." in tensor.name for tensor in tensors),
        context_length=None,
        embedding_length=None,
        heads=None,
        kv_heads=None,
        key_length=None,
        value_length=None,
        vocabulary=None,
        tokenizer=None,
        chat_template=None,
        chat_template_sha256=None,
        split_count=as_int(first.metadata.get("split.count")) or 1,
        sampling={},
        tensor_bytes=sum(tensor.bytes or 0 for tensor in tensors),
        needed_bytes=sum(header.data_end for header in headers),
        file_bytes=None if None in sizes else sum(size or 0 for size in sizes),
        shortfalls=shortfalls,
        metadata=first.metadata,
        kinds=first.kinds,
        tensors=tensors,
    )
    types: dict[str, int] = {}
    for tensor in tensors:
        types[tensor.type] = types.get(tensor.type, 0) + (tensor.bytes or 0)
    types = dict(sorted(types.items(), key=lambda item: -item[1]))
    present = {int(match[1]) for tensor in tensors if (match := _BLOCK.match(tensor.name))}
    highest = max(present, default=-1) + 1
    holes = tuple(sorted(set(range(min(highest, 100_000))) - present))
    return _derived(replace(blank, tensor_types=types, blocks_present=highest, missing_blocks=holes))


def _derived(facts: GgufFacts) -> GgufFacts:
    """What is read off the metadata, which overrides may have changed."""
    meta = facts.metadata
    embedding, heads = facts.number("embedding_length"), _per_layer(facts.get("attention.head_count"))
    kv_heads = _per_layer(facts.get("attention.head_count_kv")) or heads
    head_size = embedding // max(heads) if embedding and heads and max(heads) > 0 else None
    template = _text(meta.get("tokenizer.chat_template"))
    tokens = meta.get("tokenizer.ggml.tokens")
    counted = tokens.length if isinstance(tokens, LongArray) else len(tokens) if isinstance(tokens, list) else None
    return replace(
        facts,
        quant=_file_type(meta.get("general.file_type")) or next(iter(facts.tensor_types), "none"),
        block_count=facts.number("block_count"),
        nextn_layers=facts.number("nextn_predict_layers") or 0,
        context_length=facts.number("context_length"),
        embedding_length=embedding,
        heads=heads,
        kv_heads=kv_heads,
        key_length=facts.number("attention.key_length") or head_size,
        value_length=facts.number("attention.value_length") or head_size,
        vocabulary=counted if counted is not None else facts.number("vocab_size"),
        tokenizer=_text(meta.get("tokenizer.ggml.model")),
        chat_template=template,
        chat_template_sha256=hashlib.sha256(template.encode()).hexdigest() if template else None,
        sampling={
            ours: value
            for key, ours in SAMPLING_KEYS.items()
            if isinstance(value := meta.get(key), int | float) and not isinstance(value, bool)
        },
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _per_layer(value: object) -> tuple[int, ...] | None:
    values = value if isinstance(value, list) else [value]
    numbers = tuple(number for item in values if (number := as_int(item)) is not None and number >= 0)
    return numbers if numbers and len(numbers) == len(values) else None


def _file_type(value: object) -> str | None:
    """The name of general.file_type; the top bit marks a guessed one."""
    from gguf.constants import LlamaFileType

    number = as_int(value)
    names = {int(member.value): str(member.name) for member in LlamaFileType}
    name = names.get(number & ~1024) if number is not None and number >= 0 else None
    return name.removeprefix("MOSTLY_").removeprefix("ALL_") if name else None
