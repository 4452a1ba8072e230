"""Model files that are already on this machine: files, patterns, folders, LM Studio's and Ollama's."""

from __future__ import annotations

import fnmatch
import glob
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.errors import UsageError

_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)
_NO_MODEL = re.compile(r"(^|[-_.])(mmproj|lora|imatrix|vocab)([-_.]|$)", re.IGNORECASE)


@dataclass(frozen=True)
class LocalModel:
    """A model file on this machine."""

    name: str
    """What a person calls it."""
    path: Path
    sha256: str | None = None
    """Checksum, where the place that holds it records one."""


def find_models(targets: Iterable[str]) -> list[LocalModel]:
    """The models that these targets name, in order, each once.

    A target is a file, a pattern with `*`, a folder (searched with all below), or `lmstudio` or `ollama`, with
    `:PATTERN` to choose among theirs. Files that are no models by their name (projectors, later parts of a split one)
    are left out of patterns and folders. Raises UsageError for a target without any model.
    """
    out: dict[Path, LocalModel] = {}
    for target in targets:
        found = list(_one(target))
        if not found:
            raise UsageError(f"--model {target}: expected a GGUF file, a pattern or a folder with some, found none")
        for model in found:
            out.setdefault(model.path.resolve(), model)
    return list(out.values())


def lm_studio_folders() -> list[Path]:
    """Where LM Studio keeps models; the present and the former place."""
    return [Path.home() / ".lmstudio" / "models", Path.home() / ".cache" / "lm-studio" / "models"]


def ollama_folders() -> list[Path]:
    """Where Ollama keeps models: $OLLAMA_MODELS, the user's folder, the service's folder."""
    own = os.environ.get("OLLAMA_MODELS")
    rest = [Path.home() / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models")]
    return [Path(own).expanduser(), *rest] if own else rest


def _one(target: str) -> Iterator[LocalModel]:
    place, _, pattern = target.partition(":")
    kind = place.casefold().replace("-", "").replace(" ", "")
    path = Path(target).expanduser()
    if kind in ("lmstudio", "ollama") and not path.exists():
        folders = lm_studio_folders() if kind == "lmstudio" else ollama_folders()
        found = list(_lm_studio(folders) if kind == "lmstudio" else _ollama(folders))
        if not found:
            looked = ", ".join(map(str, folders))
            raise UsageError(f"--model {target}: no models found in {looked}")
        chosen = [model for model in found if not pattern or _matches(model.name, pattern)]
        if not chosen:
            known = ", ".join(model.name for model in found[:8])
            raise UsageError(f"--model {target}: none of {len(found)} models matches `{pattern}`; there are: {known}")
        yield from chosen
    elif path.is_dir():
        yield from _folder(path)
    elif path.exists():
        yield LocalModel(path.name, path.absolute())
    else:
        for name in sorted(glob.glob(str(path), recursive=True)):  # noqa: PTH207 - absolute patterns too
            match = Path(name)
            if match.is_dir():
                yield from _folder(match)
            elif _is_model(match):
                yield LocalModel(match.name, match.absolute())


def _matches(name: str, pattern: str) -> bool:
    name, pattern = name.casefold(), pattern.casefold()
    return fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(name, f"*{pattern}*")


def _is_model(path: Path) -> bool:
    wanted = path.suffix.lower() == ".gguf" and path.is_file()
    return wanted and not _LATER_PART.search(path.name) and not _NO_MODEL.search(path.stem)


def _folder(folder: Path) -> Iterator[LocalModel]:
    for path in sorted(folder.rglob("*")):
        if _is_model(path):
            yield LocalModel(path.name, path.absolute())


def _lm_studio(folders: Iterable[Path]) -> Iterator[LocalModel]:
    """LM Studio: OWNER/NAME/FILE.gguf."""
    for folder in folders:
        for model in _folder(folder) if folder.is_dir() else ():
            yield LocalModel(str(model.path.relative_to(folder.absolute())), model.path)


def _ollama(folders: Iterable[Path]) -> Iterator[LocalModel]:
    """Ollama: a manifest for each NAME and TAG, which names the model's blob by its checksum."""
    for folder in folders:
        for manifest in sorted((folder / "manifests").glob("*/*/*/*")):
            try:
                layers = json.loads(manifest.read_text(encoding="utf-8"))["layers"]
                kinds = {layer["mediaType"].rsplit(".", 1)[-1]: layer["digest"] for layer in layers}
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                continue
            digest = kinds.get("model", "")
            match = re.fullmatch(r"sha256:([0-9a-f]{64})", digest if isinstance(digest, str) else "")
            blob = folder / "blobs" / f"sha256-{match[1]}" if match else None
            if match and blob is not None and blob.is_file():
                owner = "" if manifest.parts[-3] == "library" else f"{manifest.parts[-3]}/"
                name = f"{owner}{manifest.parts[-2]}:{manifest.parts[-1]}"
                yield LocalModel(name, blob.absolute(), match[1])
