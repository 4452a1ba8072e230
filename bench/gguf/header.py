"""The header of a GGUF file, read safely from whatever gives byte ranges: a whole file, a cut-off one, a web server.

The layout is that of llama.cpp's docs (`gguf.md`, versions 2 and 3, little-endian). Nothing in the file is believed:
every count and length is held against a limit and against the bytes that there are, so that a hostile or damaged file
ends in one ArmError and costs neither memory nor time. The `gguf` package is used for the sizes of tensor types; its
own reader maps the whole file and needs all of it.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.errors import ArmError
from bench.visible import visible

ReadRange = Callable[[int, int], bytes]
"""Bytes `[start, stop)`; fewer where the file ends."""

MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 18
MAX_KEY_BYTES = 1 << 16
MAX_NAME_BYTES = 1 << 10
MAX_TEXT_BYTES = 1 << 26
MAX_ITEMS = 1 << 22
MAX_HEADER_BYTES = 1 << 28
KEPT_ITEMS = 1 << 14
"""Arrays up to this length are kept; of longer ones (vocabularies) only the length."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_KINDS = {6: "float", 12: "float", 7: "bool", _STRING: "str", _ARRAY: "array"}


@dataclass(frozen=True)
class LongArray:
    """An array that was skipped."""

    length: int


@dataclass(frozen=True)
class Tensor:
    """A tensor as the header announces it."""

    name: str
    type: str
    """Name of the type, such as Q4_K; `type N` for one that the gguf package does not know."""
    dims: tuple[int, ...]
    offset: int
    """From the start of the data section."""
    bytes: int | None
    """Size of the data; None for an unknown type."""

    @property
    def elements(self) -> int:
        """Number of weights."""
        out = 1
        for dim in self.dims:
            out *= dim
        return out


@dataclass(frozen=True)
class Header:
    """All that stands before the tensor data."""

    version: int
    metadata: dict[str, Any]
    kinds: dict[str, str]
    """Kind of each key's value in the words of `--override-kv` (int, float, bool, str), or array."""
    tensors: tuple[Tensor, ...]
    data_start: int
    data_end: int
    """Bytes that the file must have at least."""
    header_bytes: int


def read_header(read: ReadRange, size: int | None, name: str) -> Header:
    """Read a header. `size` is the file's, where it is known. Raises ArmError model_corrupt naming what is wrong."""
    cursor = _Cursor(read, size, name)
    magic = cursor.take(4, "magic")
    if magic != b"GGUF":
        from bench.models.checksums import foreign_content

        hint = foreign_content(magic + cursor.peek(252)) or "this is not a GGUF file"
        raise ArmError("model_corrupt", f"{name}: magic: expected `GGUF`, found {magic!r}", advice=hint)
    version = cursor.number("I", "version")
    if version & 0xFFFF == 0:
        raise cursor.error("big-endian GGUF: convert the model for this machine's byte order")
    if version not in (2, 3):
        raise cursor.error(f"GGUF version: expected 2 or 3, found {version}")
    tensor_count = cursor.count("q", "number of tensors", MAX_TENSORS, 24)
    key_count = cursor.count("q", "number of keys", MAX_KEYS, 13)
    metadata, kinds = _read_metadata(cursor, key_count)
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise cursor.error(f"general.alignment: expected a power of two, found {alignment!r}")
    tensors = _read_tensors(cursor, tensor_count, alignment)
    end = cursor.position
    data_start = _pad(end, alignment) if tensors else end
    data_end = data_start + max((t.offset + (t.bytes or 0) for t in tensors), default=0)
    return Header(version, metadata, kinds, tensors, data_start, data_end, end)


def _read_metadata(cursor: _Cursor, count: int) -> tuple[dict[str, Any], dict[str, str]]:
    metadata: dict[str, Any] = {}
    kinds: dict[str, str] = {}
    for _ in range(count):
        key = cursor.text(MAX_KEY_BYTES, "a key")
        if key in metadata:
            raise cursor.error(f"the key `{key}` occurs twice")
        kind = cursor.number("I", f"the type of `{key}`")
        metadata[key] = _read_value(cursor, kind, key, 0)
        kinds[key] = _KINDS.get(kind, "int")
    return metadata, kinds


def _read_value(cursor: _Cursor, kind: int, key: str, depth: int) -> Any:
    if kind in _SCALARS:
        return cursor.number(_SCALARS[kind], f"`{key}`")
    if kind == _STRING:
        return cursor.text(MAX_TEXT_BYTES, f"`{key}`")
    if kind != _ARRAY:
        raise cursor.error(f"`{key}` has the unknown value type {kind}")
    if depth >= 3:
        raise cursor.error(f"`{key}` nests arrays too deeply")
    inner = cursor.number("I", f"`{key}`")
    if inner in _SCALARS:
        width = struct.calcsize("<" + _SCALARS[inner])
        length = cursor.count("Q", f"length of `{key}`", MAX_ITEMS, width)
        if length > KEPT_ITEMS:
            cursor.skip(length * width, f"`{key}`")
            return LongArray(length)
        return list(struct.unpack(f"<{length}{_SCALARS[inner]}", cursor.take(length * width, f"`{key}`")))
    length = cursor.count("Q", f"length of `{key}`", MAX_ITEMS, 8 if inner == _STRING else 12)
    if inner == _STRING and length > KEPT_ITEMS:
        cursor.skip_texts(length, f"`{key}`")
        return LongArray(length)
    if inner == _ARRAY and length > KEPT_ITEMS:
        raise cursor.error(f"`{key}` is an array of {length} arrays")
    return [_read_value(cursor, inner, key, depth + 1) for _ in range(length)]


def _read_tensors(cursor: _Cursor, count: int, alignment: int) -> tuple[Tensor, ...]:
    sizes = _type_sizes()
    tensors: list[Tensor] = []
    seen: set[str] = set()
    expected: int | None = 0
    for _ in range(count):
        name = cursor.text(MAX_NAME_BYTES, "a tensor's name")
        if name in seen:
            raise cursor.error(f"the tensor `{name}` occurs twice")
        seen.add(name)
        n_dims = cursor.number("I", f"dimensions of `{name}`")
        if n_dims > 4:
            raise cursor.error(f"tensor `{name}`: expected at most 4 dimensions, found {n_dims}")
        dims = struct.unpack(f"<{n_dims}q", cursor.take(8 * n_dims, f"dimensions of `{name}`"))
        kind = cursor.number("I", f"type of `{name}`")
        offset = cursor.number("Q", f"offset of `{name}`")
        tensor = _tensor(cursor, name, kind, dims, offset, sizes)
        if expected is not None and offset != expected:
            raise cursor.error(f"tensor `{name}`: expected its data at offset {expected}, found {offset}")
        expected = None if tensor.bytes is None else _pad(offset + tensor.bytes, alignment)
        tensors.append(tensor)
    return tuple(tensors)


def _tensor(
    cursor: _Cursor, name: str, kind: int, dims: tuple[int, ...], offset: int, sizes: dict[int, tuple[str, int, int]]
) -> Tensor:
    elements = 1
    for dim in dims:
        elements *= dim
        if dim < 0 or elements >= 1 << 62:
            raise cursor.error(f"tensor `{name}`: impossible dimensions {list(dims)}")
    if offset >= 1 << 62:
        raise cursor.error(f"tensor `{name}`: impossible offset {offset}")
    if kind not in sizes:
        return Tensor(name, f"type {kind}", dims, offset, None)
    label, block, block_bytes = sizes[kind]
    if (dims[0] if dims else 1) % block:
        raise cursor.error(f"tensor `{name}`: rows of {dims[0]} weights do not divide into {label} blocks of {block}")
    return Tensor(name, label, dims, offset, elements // block * block_bytes)


def _type_sizes() -> dict[int, tuple[str, int, int]]:
    """Tensor type number -> (name, weights in a block, bytes of a block), from the gguf package."""
    from gguf.constants import GGML_QUANT_SIZES

    return {int(kind.value): (str(kind.name), int(n), int(size)) for kind, (n, size) in GGML_QUANT_SIZES.items()}


def _pad(n: int, alignment: int) -> int:
    return (n + alignment - 1) // alignment * alignment


class _Cursor:
    """A place in the file that only moves forward, with a window of bytes read ahead."""

    def __init__(self, read: ReadRange, size: int | None, name: str) -> None:
        self._read, self._size, self._name = read, size, name
        self._window, self._start, self._at = b"", 0, 0
        self._ahead = 1 << 18

    @property
    def position(self) -> int:
        return self._start + self._at

    def error(self, what: str) -> ArmError:
        """The file is damaged at this place."""
        detail = f"{self._name}: {visible(what[:300])} (near byte {self.position})"
        return ArmError(
            "model_corrupt", detail, advice="download the file again; if that does not help, convert it again"
        )

    def _ensure(self, n: int, what: str) -> None:
        if len(self._window) - self._at >= n:
            return
        start = self.position
        if start + n > MAX_HEADER_BYTES:
            raise self.error(f"the header is larger than {MAX_HEADER_BYTES} bytes")
        stop = start + max(n, self._ahead)
        self._ahead = min(self._ahead * 2, 1 << 23)
        if self._size is not None:
            stop = min(stop, self._size)
        kept = self._window[self._at :]
        more = self._read(start + len(kept), stop) if stop > start + len(kept) else b""
        self._window, self._start, self._at = kept + more, start, 0
        if len(self._window) < n:
            end = start + len(self._window)
            raise self.error(f"the file ends at byte {end}, inside its header ({what})")

    def peek(self, n: int) -> bytes:
        """Up to n further bytes, without moving."""
        with contextlib.suppress(ArmError):
            self._ensure(n, "")
        return self._window[self._at : self._at + n]

    def take(self, n: int, what: str) -> bytes:
        """Exactly n bytes."""
        self._ensure(n, what)
        out = self._window[self._at : self._at + n]
        self._at += n
        return out

    def skip(self, n: int, what: str) -> None:
        """Move on by n bytes; what lies outside of the window is not read."""
        if self._at + n <= len(self._window):
            self._at += n
            return
        target = self.position + n
        if target > MAX_HEADER_BYTES or (self._size is not None and target > self._size):
            raise self.error(f"the file ends inside its header ({what})")
        self._window, self._start, self._at = b"", target, 0

    def number(self, form: str, what: str) -> Any:
        """A number in the form of the struct module."""
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form), what))[0]

    def count(self, form: str, what: str, limit: int, each: int) -> int:
        """How many items follow, at least `each` bytes long; refused when the file cannot hold so many."""
        n: int = self.number(form, what)
        room = (self._size if self._size is not None else MAX_HEADER_BYTES) - self.position
        if not 0 <= n <= limit or n * each > max(room, 0):
            raise self.error(f"{what}: {n} is more than the file can hold")
        return n

    def text(self, limit: int, what: str) -> str:
        """A length and so many bytes of UTF-8."""
        n = self.count("Q", f"length of {what}", limit, 1)
        return self.take(n, what).decode("utf-8", errors="replace")

    def skip_texts(self, count: int, what: str) -> None:
        """Move past many texts (a vocabulary); this loop is what reading a header mostly takes."""
        for _ in range(count):
            if len(self._window) - self._at < 8:
                self._ensure(8, what)
            n = int.from_bytes(self._window[self._at : self._at + 8], "little")
            if n > MAX_TEXT_BYTES:
                raise self.error(f"a text of {n} bytes in {what}")
            self._at += 8
            if self._at + n <= len(self._window):
                self._at += n
            else:
                self.skip(n, what)
