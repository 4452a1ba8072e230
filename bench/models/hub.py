"""Hugging Face: what a repository's file is, and where it lies. Tokens and HF_* settings are the user's own."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.errors import ArmError
from bench.models.sources import HfSource


@dataclass(frozen=True)
class HubFile:
    """A file as the hub describes it, without downloading it."""

    url: str
    commit: str
    size: int | None
    sha256: str | None
    """Known for files in large-file storage, as models are."""
    headers: dict[str, str]
    """What a request for `url` must carry, the token included."""


def endpoint() -> str | None:
    """The hub to ask: `HF_ENDPOINT`, read when it is needed, else huggingface_hub's default."""
    return (os.environ.get("HF_ENDPOINT") or "").rstrip("/") or None


def offline() -> bool:
    """Whether the user has forbidden network access to the hub."""
    return any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in _OFFLINE)


_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def describe(source: HfSource, revision: str | None, file: str) -> HubFile:
    """Ask the hub for commit, size and checksum of a file. Raises ArmError model_missing with one line."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.utils._headers import build_hf_headers

    if offline():
        raise ArmError("model_missing", f"{source.repo}/{file} is not in the cache", advice="unset HF_HUB_OFFLINE")
    with _errors(source, revision, file):
        url = hf_hub_url(source.repo, file, revision=revision or "main", endpoint=endpoint())
        meta = get_hf_file_metadata(url, endpoint=endpoint(), timeout=20)
        headers = build_hf_headers()
        if meta.commit_hash is None:
            raise ArmError("model_missing", f"{source.repo}/{file}: the hub's answer names no commit ({url})")
        # The commit's own address: the file behind it never changes, however long the download takes.
        url = hf_hub_url(source.repo, file, revision=meta.commit_hash, endpoint=endpoint())
    sha256 = meta.etag if meta.etag and re.fullmatch(r"[0-9a-f]{64}", meta.etag) else None
    return HubFile(url, meta.commit_hash, meta.size, sha256, headers)


def in_users_cache(source: HfSource, revision: str | None, file: str) -> Path | None:
    """The file in Hugging Face's own cache, where another program has already downloaded it."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(source.repo, file, revision=revision or "main")
    return Path(found) if isinstance(found, str) and Path(found).is_file() else None


def list_files(source: HfSource, revision: str | None) -> list[str]:
    """All files of a repository at a revision. Raises ArmError model_missing."""
    from huggingface_hub import HfApi

    if offline():
        raise ArmError("model_missing", f"{source.repo} cannot be listed", advice="unset HF_HUB_OFFLINE")
    with _errors(source, revision, source.file):
        return list(HfApi(endpoint=endpoint()).list_repo_files(source.repo, revision=revision or "main"))


def read_range(file: HubFile) -> Callable[[int, int], bytes]:
    """A function that reads bytes `[start, stop)` of a file by range requests."""

    def read(start: int, stop: int) -> bytes:
        headers = {**file.headers, "Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        try:
            with httpx.stream("GET", file.url, headers=headers, follow_redirects=True, timeout=60) as answer:
                if answer.status_code == 416:
                    return b""
                answer.raise_for_status()
                if answer.status_code != 206 and start > 0:
                    raise ArmError("model_missing", f"{file.url}: the server does not answer range requests")
                out = b""
                for chunk in answer.iter_bytes():
                    out += chunk
                    if len(out) >= stop - start:
                        break
                return out[: stop - start]
        except httpx.HTTPError as error:
            raise ArmError("model_missing", f"{file.url}: {type(error).__name__}: {error}") from None

    return read


@contextmanager
def _errors(source: HfSource, revision: str | None, file: str) -> Iterator[None]:
    """Turn what huggingface_hub raises into one line with advice."""
    from huggingface_hub import errors as hf

    what = f"{source.repo}/{file}" + (f" at {revision}" if revision else "")
    # huggingface_hub's HTTP client may be another than ours: its transport errors are found by their base class.
    transport = tuple(c for c in hf.HfHubHTTPError.__mro__ if c.__name__ == "HTTPError")
    unreachable: tuple[type[BaseException], ...] = (hf.OfflineModeIsEnabled, OSError, httpx.HTTPError, *transport)
    try:
        yield
    except hf.GatedRepoError:
        advice = "accept its terms on the model's page, then `hf auth login` or set HF_TOKEN"
        raise ArmError("model_missing", f"{what}: the repository is gated", advice=advice) from None
    except hf.RepositoryNotFoundError:
        advice = "check the name; a private one needs `hf auth login` or HF_TOKEN"
        raise ArmError("model_missing", f"{what}: the hub has no such repository", advice=advice) from None
    except hf.RevisionNotFoundError:
        raise ArmError("model_missing", f"{what}: the repository has no such revision") from None
    except hf.EntryNotFoundError:
        raise ArmError("model_missing", f"{what}: the repository has no such file") from None
    except hf.HfHubHTTPError as error:
        status = error.response.status_code
        advice = "set HF_TOKEN" if status in (401, 403) else "try again later"
        raise ArmError("model_missing", f"{what}: the hub answered with status {status}", advice=advice) from None
    except hf.HFValidationError as error:
        raise ArmError("model_missing", f"{what}: {str(error).splitlines()[0]}") from None
    except unreachable as error:
        detail = f"{what}: the hub cannot be reached ({type(error).__name__})"
        advice = "check the network; a file in the cache is used without it when its revision is locked"
        raise ArmError("model_missing", detail, advice=advice) from None
