"""Archives are read, never unpacked; decoded arrays are kept and trusted no further than needed."""

import contextlib
import io
import os
import tarfile
import zipfile

import numpy as np
import pytest

from llpkit import LLPError
from llpkit.datasets.files import cache_folder, decoded, fingerprint, members
from llpkit.files import atomic

FILES = {"a/1.txt": b"one", "a/2.txt": b"two", "b.bin": b"\0"}


@pytest.fixture(params=["folder", "zip", "tar", "tar.gz", "tar.xz"])
def archive(request, tmp_path):
    path = tmp_path / f"data.{request.param}"
    if request.param == "folder":
        for name, content in FILES.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
    elif request.param == "zip":
        with zipfile.ZipFile(path, "w") as file:
            file.mkdir("a")
            for name, content in FILES.items():
                file.writestr(name, content)
    else:
        with tarfile.open(path, "w:" + request.param.partition(".")[2]) as file:
            for name, content in FILES.items():
                add(file, f"./{name}", content)
    return path


def anything(_):
    return True


def add(archive, name, content=b"", **fields):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    archive.addfile(info, io.BytesIO(content))


def test_members(archive):
    assert dict(members(archive, anything)) == FILES
    assert list(members(archive, lambda name: name.endswith("2.txt"))) == [("a/2.txt", b"two")]


def test_nothing_is_written_and_links_are_passed_over(tmp_path):
    path = tmp_path / "in" / "evil.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w") as file:
        add(file, "../outside.txt", b"gotcha")
        add(file, "/absolute.txt", b"gotcha")
        add(file, "soft", type=tarfile.SYMTYPE, linkname="/etc/passwd")
        add(file, "hard", type=tarfile.LNKTYPE, linkname="/etc/passwd")
        add(file, "pipe", type=tarfile.FIFOTYPE)
        add(file, "good", b"good")
    found = dict(members(path, anything))
    assert set(found) == {"../outside.txt", "/absolute.txt", "good"}  # names are only names
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["evil.tar", "in"]


def test_links_in_a_zip_are_passed_over(tmp_path):
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as file:
        link = zipfile.ZipInfo("soft")
        link.external_attr = 0o120777 << 16
        file.writestr(link, "/etc/passwd")
    assert list(members(path, anything)) == []


@pytest.mark.parametrize("content", [b"", b"no archive at all", b"\xfd7zXZ\0junk", b"\x1f\x8bjunk"])
def test_not_an_archive(tmp_path, content):
    path = tmp_path / "data.tar.xz"
    path.write_bytes(content)
    with pytest.raises(LLPError, match=r"data.tar.xz cannot be read: .*get it again"):
        list(members(path, anything))


def test_a_truncated_archive(archive):
    if archive.is_dir():
        pytest.skip("a folder has no end to lose")
    whole = archive.read_bytes()
    # The members of a plain .tar come first, then ten kilobytes of zeros.
    for end in (513,) if archive.suffix == ".tar" else (len(whole) // 5, len(whole) * 3 // 5):
        archive.write_bytes(whole[:end])
        with pytest.raises(LLPError, match="it may be incomplete"):
            list(members(archive, anything))


def test_fingerprint_follows_the_files(tmp_path):
    file = tmp_path / "x" / "a"
    file.parent.mkdir()
    file.write_bytes(b"1")
    first = fingerprint(file.parent), fingerprint(file)
    assert first == (fingerprint(file.parent), fingerprint(file))
    file.write_bytes(b"22")
    assert fingerprint(file.parent) != first[0]
    assert fingerprint(file) != first[1]
    assert fingerprint(file) == "785f3ec7eb32f30b90cd0fcf3657d388b5ff4297f2f9716ff66e9b69c05ddd09"


# The cache


class Build:
    """Counts how often the arrays had to be made."""

    def __init__(self):
        self.times = 0

    def __call__(self):
        self.times += 1
        return {"x": np.arange(5), "name": np.array(["a", "bcd"])}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source"
    path.write_bytes(b"source")
    return path


def test_decoded_arrays_are_kept(source):
    build = Build()
    for _ in range(3):
        arrays = decoded(source, "kind", build)
        assert arrays["x"].tolist() == [0, 1, 2, 3, 4]
        assert arrays["name"].tolist() == ["a", "bcd"]
    assert build.times == 1
    assert [p.suffix for p in (cache_folder() / "decoded").iterdir()] == [".npz"]
    decoded(source, "other kind", build)
    source.write_bytes(b"changed")
    decoded(source, "kind", build)
    assert build.times == 3


@pytest.mark.parametrize("damage", ["cut short", "emptied", "overwritten"])
def test_a_damaged_cache_is_made_again(source, damage):
    build = Build()
    decoded(source, "kind", build)
    (kept,) = (cache_folder() / "decoded").iterdir()
    whole = kept.read_bytes()
    kept.write_bytes({"cut short": whole[:-30], "emptied": b""}.get(damage, b"junk" * 9))
    assert decoded(source, "kind", build)["x"].tolist() == [0, 1, 2, 3, 4]
    assert build.times == 2
    decoded(source, "kind", build)
    assert build.times == 2


def test_a_changed_byte_in_the_cache_is_noticed(source):
    build = Build()
    decoded(source, "kind", build)
    (kept,) = (cache_folder() / "decoded").iterdir()
    whole = bytearray(kept.read_bytes())
    where = whole.index(np.arange(5).tobytes())
    whole[where + 8] ^= 1
    kept.write_bytes(whole)
    assert decoded(source, "kind", build)["x"].tolist() == [0, 1, 2, 3, 4]
    assert build.times == 2


def test_objects_in_the_cache_are_not_unpickled(source):
    build = Build()
    decoded(source, "kind", build)
    (kept,) = (cache_folder() / "decoded").iterdir()
    with kept.open("wb") as file:
        np.savez(file, x=np.array([{"code": 1}], dtype=object))
    assert decoded(source, "kind", build)["x"].tolist() == [0, 1, 2, 3, 4]
    assert build.times == 2


def test_a_cache_that_cannot_be_written_only_costs_time(source, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(source))  # a file, not a folder
    assert decoded(source, "kind", Build())["x"].tolist() == [0, 1, 2, 3, 4]


def test_atomic_leaves_nothing_behind(tmp_path):
    path = tmp_path / "result.txt"
    with atomic(path) as temporary:
        temporary.write_text("first")
        assert not path.exists()
    with contextlib.suppress(KeyError), atomic(path) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["result.txt"]


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/c"}, "/c/llpkit"),
        ("linux", {"HOME": "/h"}, "/h/.cache/llpkit"),
        ("darwin", {"HOME": "/h"}, "/h/Library/Caches/llpkit"),
        ("win32", {"LOCALAPPDATA": "/l"}, "/l/llpkit"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="paths of other platforms")
def test_cache_folder(platform, variables, expected, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("sys.platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder().as_posix() == expected
