"""Archives: the named members' text and nothing else, anywhere."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from nmt.errors import UserError
from scripts import archives
from tests.scripts.wmt19.miniature import tar, zipped

DE, EN = b"eins\nzwei\n", b"one\ntwo\n"
PAIR = (["in/x.de"], ["in/x.en"])
KINDS = {"tar.gz": tar, "zip": zipped}


def take(data: bytes, kind: str, folder: Path) -> int:
    path = folder / f"a.{kind}"
    path.write_bytes(data)
    outs = folder / "0.de", folder / "0.en"
    return archives.extract_members(path, dict(zip(outs, PAIR, strict=True)))


def tree(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*")}


@pytest.mark.parametrize(("kind", "turned"), [("tar.gz", True), ("zip", False)])
def test_members_become_files(kind: str, turned: bool, tmp_path: Path) -> None:
    members = {"other.txt": b"x", "in/x.de": DE, "in/x.en": EN, "in/x.de.old": b"y"}
    if turned:
        members = dict(reversed(members.items()))
    assert take(KINDS[kind](members), kind, tmp_path) == 2
    assert (tmp_path / "0.de").read_bytes() == DE
    assert (tmp_path / "0.en").read_bytes() == EN
    assert tree(tmp_path) == {f"a.{kind}", "0.de", "0.en"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a\nb", b"a\nb\n"),
        (b"\xef\xbb\xbfa\nb\n", b"a\nb\n"),
        (b"a\x0b\xc2\x85x\rb\nc\r\n", b"a\x0b\xc2\x85x\rb\nc\r\n"),
    ],
)
def test_a_line_ends_with_lf(kind: str, raw: bytes, text: bytes, tmp_path: Path) -> None:
    assert take(KINDS[kind]({"in/x.de": raw, "in/x.en": EN}), kind, tmp_path) == 2
    assert (tmp_path / "0.de").read_bytes() == text


@pytest.mark.parametrize("kind", KINDS)
def test_unequal_sides(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"in/x.de has 2 lines, in/x.en has 3; the two") as caught:
        take(KINDS[kind]({"in/x.de": DE, "in/x.en": EN + b"x\n"}), kind, tmp_path)
    assert caught.value.code == 65


@pytest.mark.parametrize("type", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_are_no_members(type: bytes, tmp_path: Path) -> None:
    secret, out = tmp_path / "secret", io.BytesIO()
    secret.write_bytes(DE)
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        link = tarfile.TarInfo("in/x.de")
        link.type, link.linkname = type, str(secret)
        tar.addfile(link)
        text = tarfile.TarInfo("in/x.en")
        text.size = len(EN)
        tar.addfile(text, io.BytesIO(EN))
    with pytest.raises(UserError, match=r"no member in/x\.de"):
        take(out.getvalue(), "tar.gz", tmp_path)
    assert not (tmp_path / "0.de").exists()


@pytest.mark.parametrize(
    "data",
    [
        make({"../evil": b"evil", "/tmp/evil-of-nmt": b"x", "in/x.de": DE, "in/x.en": EN})
        for make in KINDS.values()
    ],
)
def test_members_that_want_out_are_left_alone(data: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    kind = "zip" if data.startswith(b"PK") else "tar.gz"
    take(data, kind, folder)
    assert tree(tmp_path) == {"deep", f"deep/a.{kind}", "deep/0.de", "deep/0.en"}
    assert not Path("/tmp/evil-of-nmt").exists()
    assert not any(p.is_symlink() for p in tmp_path.rglob("*"))


def test_columns_become_files(tmp_path: Path) -> None:
    raw = b"\xef\xbb\xbfa\tb\tmore\n\n\t\nc\td\r\n \tx\nx\t \t\nalone\n\xc2\x85e\tf"
    first, second = tmp_path / "0.de", tmp_path / "0.en"
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(raw))
    assert archives.extract_columns(tmp_path / "a.tsv.gz", first, second) == (3, 5)  # dropped: 5
    assert first.read_bytes() == b"a\nc\n\xc2\x85e\n"
    assert second.read_bytes() == b"b\nd\nf\n"
