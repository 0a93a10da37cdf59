"""Archives, friendly and hostile: the named members' text and nothing else, anywhere."""

import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from nmt.errors import UserError
from nmt.recipes import archive
from tests.recipes.miniature import tar, zipped

DE, EN = b"eins\nzwei\n", b"one\ntwo\n"
PAIR = (["in/x.de"], ["in/x.en"])
KINDS = {"tar.gz": tar, "zip": zipped}
CAP = 1000


def take(data: bytes, kind: str, folder: Path, cap: int = CAP) -> int:
    path = folder / f"a.{kind}"
    path.write_bytes(data)
    outs = folder / "0.de", folder / "0.en"
    return archive.take_pairs(path, list(zip(PAIR, outs, strict=True)), cap)


def tree(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*")}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("turned", [False, True])
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
        (b"\n\n", b"\n\n"),
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_member_and_what_is_near(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no member in/x.en; near are in/x.eng") as caught:
        take(KINDS[kind]({"in/x.de": DE, "in/x.eng": EN}), kind, tmp_path)
    assert caught.value.code == 65
    with pytest.raises(UserError, match="it is empty"):
        take(KINDS[kind]({}), kind, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_any_of_the_accepted_names(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes(KINDS[kind]({"x_ch": DE, "x_en": EN}))
    outs = tmp_path / "0.zh", tmp_path / "0.en"
    sides = zip([["x_cn", "x_ch"], ["x_en"]], outs, strict=True)
    assert archive.take_pairs(path, list(sides), CAP) == 2
    assert outs[0].read_bytes() == DE


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_stops_at_its_cap(kind: str, tmp_path: Path) -> None:
    data = KINDS[kind]({"in/x.de": b"a\n" * 10_000_000, "in/x.en": EN})
    assert len(data) < 1_000_000
    with pytest.raises(UserError, match=r"in/x.de: more than the 3000000 bytes") as caught:
        take(data, kind, tmp_path, 3_000_000)
    assert caught.value.code == 65
    assert (tmp_path / "0.de").stat().st_size <= 3_000_000


def hostile(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> bytes:
    """An archive with a member that wants out, before the ones that are asked for."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as made:
        evil = tarfile.TarInfo(name)
        evil.type, evil.linkname = kind, target
        evil.size = 4 if kind == tarfile.REGTYPE else 0
        made.addfile(evil, io.BytesIO(b"evil"))
        for each, data in (("in/x.de", DE), ("in/x.en", EN)):
            info = tarfile.TarInfo(each)
            info.size = len(data)
            if each != name:
                made.addfile(info, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        hostile("../evil"),
        hostile("/tmp/evil-of-nmt"),
        hostile("in", tarfile.SYMTYPE, "/tmp"),
        hostile("0.de", tarfile.SYMTYPE, "/etc/passwd"),
        hostile("dev", tarfile.CHRTYPE),
        hostile("fifo", tarfile.FIFOTYPE),
        zipped({"../evil": b"evil", "/tmp/evil-of-nmt": b"x", "in/x.de": DE, "in/x.en": EN}),
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


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE]
)
def test_a_named_member_that_is_no_file(kind: bytes, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"in/x.de: a link, directory or device") as caught:
        take(hostile("in/x.de", kind, "/etc/passwd"), "tar.gz", tmp_path)
    assert caught.value.code == 65


def test_a_link_in_a_zip(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        info = zipfile.ZipInfo("in/x.de")
        info.external_attr = (0o120777) << 16
        made.writestr(info, "/etc/passwd")
        made.writestr("in/x.en", EN)
    with pytest.raises(UserError, match="a link, directory or device"):
        take(out.getvalue(), "zip", tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9])
def test_damaged_archives(kind: str, share: float, tmp_path: Path) -> None:
    noise = os.urandom(20_000).hex().encode() + b"\n"
    data = KINDS[kind]({"in/x.de": noise, "in/x.en": noise})
    with pytest.raises(UserError, match=r"damaged archive|no member") as caught:
        take(data[: int(share * len(data))], kind, tmp_path, 10**6)
    assert caught.value.code == 65


def test_an_archive_that_is_something_else(tmp_path: Path) -> None:
    for kind in KINDS:
        with pytest.raises(UserError, match="damaged archive"):
            take(b"<html>" * 100, kind, tmp_path)


def columns(raw: bytes, folder: Path, swapped: bool = False, cap: int = CAP) -> tuple[int, int]:
    path = folder / "a.tsv.gz"
    path.write_bytes(gzip.compress(raw))
    return archive.take_columns(path, swapped, (folder / "0.de", folder / "0.en"), cap)


@pytest.mark.parametrize("swapped", [False, True])
def test_columns_become_files(swapped: bool, tmp_path: Path) -> None:
    raw = b"\xef\xbb\xbfa\tb\tmore\n\n\t\nc\td\r\n \tx\nx\t \t\nalone\n\xc2\x85e\tf"
    assert columns(raw, tmp_path, swapped) == (3, 5)  # kept, dropped
    first, second = b"a\nc\n\xc2\x85e\n", b"b\nd\nf\n"
    wanted = (second, first) if swapped else (first, second)
    assert ((tmp_path / "0.de").read_bytes(), (tmp_path / "0.en").read_bytes()) == wanted


def test_columns_without_end(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a.tsv.gz: more than the 1000 bytes"):
        columns(b"a\tb\n" * 1_000_000, tmp_path)
    with pytest.raises(UserError, match="or a row of more"):
        columns(b"a" * 50_000_000, tmp_path, cap=10**9)


def test_damaged_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.gz"
    data = gzip.compress(os.urandom(10_000).hex().encode() + b"\ta\n")
    for broken in (data[:-9], data[: len(data) // 2], b"text\ttext\n"):
        path.write_bytes(broken)
        with pytest.raises(UserError, match="damaged archive"):
            archive.take_columns(path, False, (tmp_path / "0.de", tmp_path / "0.en"), 10**6)
