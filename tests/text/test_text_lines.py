"""Lines end at LF only; everything malformed is refused with its place."""

import gzip
import io
import sys
from pathlib import Path

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from nmt.errors import Exit, UserError
from nmt.text.lines import (
    decoded,
    opened,
    raw_lines,
    read_parallel,
    read_text,
    refuse_other_than_lines,
)

LINE_LIKE = "\r\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029\x00\ufeff\t \u00a0"
TEXT = st.text(st.one_of(st.sampled_from(LINE_LIKE), st.characters(codec="utf-8")))
MALFORMED = [
    b"\xc0\x80",  # overlong
    b"\xc1\xbf",
    b"\xe0\x80\x80",
    b"\xf0\x80\x80\x80",
    b"\xed\xa0\x80",  # surrogates
    b"\xed\xbf\xbf",
    b"\xff",
    b"\xfe",
    b"\x80",  # continuation alone
    b"\xf5\x80\x80\x80",
    b"\xf4\x90\x80\x80",  # beyond U+10FFFF
    b"\xe2\x82",  # cut off
    b"\xf0\x9f\x98",
]


@given(st.lists(TEXT.filter(lambda t: "\n" not in t), min_size=1), st.booleans())
def test_any_text_without_lf_is_one_line(texts: list[str], final: bool) -> None:
    content = "\n".join(texts).encode() + (b"\n" if final or not texts[-1] else b"")
    found = list(raw_lines(io.BytesIO(content)))
    expected = [text.removesuffix("\r").encode() for text in texts]
    if texts[0].startswith("\ufeff"):
        expected[0] = texts[0][1:].removesuffix("\r").encode()
    assert found == expected


def test_crlf_and_byte_order_mark_are_removed() -> None:
    lines = raw_lines(io.BytesIO(b"\xef\xbb\xbfa\r\nb\n\xef\xbb\xbfc\r"))
    assert list(lines) == [b"a", b"b", b"\xef\xbb\xbfc"]


@pytest.mark.parametrize("bad", MALFORMED)
def test_malformed_utf8_is_refused_with_its_place(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "bad.de"
    path.write_bytes(b"gut\nab" + bad)
    with pytest.raises(UserError) as caught:
        read_text(path)
    assert caught.value.code == Exit.DATA
    place = "".join(f"\\x{byte:02x}" for byte in bad)
    assert str(caught.value).startswith(f"{path}:2: byte 2 of the line begins no UTF-8 character")
    assert place in str(caught.value)


def test_decoded_names_only_the_first_bytes() -> None:
    with pytest.raises(UserError, match=r"f:7: byte 0 .*: \\xff\\xff\\xff\\xff; do this$"):
        decoded(b"\xff" * 1000, "f:7", "do this")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file; set it") as caught:
        read_text(tmp_path / "none", "set it")
    assert caught.value.code == Exit.NO_INPUT
    with pytest.raises(UserError) as caught:
        read_text(tmp_path)  # a directory
    assert caught.value.code == Exit.NO_INPUT


GOOD = gzip.compress(b"".join(b"line %d\n" % i for i in range(10_000)), mtime=0)
DAMAGED = {
    "truncated": GOOD[: len(GOOD) // 2],
    "flipped": GOOD[:5000] + bytes([GOOD[5000] ^ 0xFF]) + GOOD[5001:],
    "garbage after": GOOD + b"garbage",
    "no gzip": b"plain text\n",
    "checksum": GOOD[:-8] + b"\x00\x00\x00\x00" + GOOD[-4:],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_gzip_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.gz"
    path.write_bytes(DAMAGED[name])
    with pytest.raises(UserError, match="damaged gzip") as caught:
        read_text(path)
    assert caught.value.code == Exit.DATA


PACKED = zstd.compress(b"".join(b"line %d\n" % i for i in range(10_000)))


@pytest.mark.parametrize("bad", [PACKED[:-1], PACKED[:500], b"plain text\n", PACKED + b"garbage"])
def test_damaged_zstd_is_refused(tmp_path: Path, bad: bytes) -> None:
    path = tmp_path / "t.zst"
    path.write_bytes(bad)
    with pytest.raises(UserError, match="damaged zstd") as caught:
        read_text(path)
    assert caught.value.code == Exit.DATA


def test_zstd_needs_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.zst"
    path.write_bytes(PACKED * 2)
    assert len(read_text(path)) == 20_000
    for name in ("compression", "backports"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=r"t\.zst: .*: pip install backports\.zstd$"):
        read_text(path)


def test_a_column_has_the_lines_of_its_table(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_bytes(b"\xef\xbb\xbfa\tb\r\n\r\n" + b"x\t\ty\n" * 3000 + b"p\tq")
    first, second = (read_text(Path(f"{path}:{n}")) for n in (1, 2))
    assert first == ["a", "", *["x"] * 3000, "p"]
    assert second == ["b", "", *[""] * 3000, "q"]
    with pytest.raises(UserError, match=rf"^{path}:1: has no column 3, only 2"):
        read_text(Path(f"{path}:3"))


@pytest.mark.parametrize(("content", "lines"), [(GOOD * 2, 20_000), (GOOD + bytes(512), 10_000)])
def test_whole_gzip_is_read(tmp_path: Path, content: bytes, lines: int) -> None:
    path = tmp_path / "t.gz"
    path.write_bytes(content)
    with opened(path) as stream:
        assert sum(1 for _ in raw_lines(stream)) == lines


SENTENCES = {
    "German": "Die Größe des Hauses\nist „groß“.\n",
    "Russian": "Дом стоит у реки,\nа река течёт.\n",  # noqa: RUF001  (its UTF-16 is UTF-8 as well)
    "Chinese": "房子很大。\n河水在流。\n",
}


@pytest.mark.parametrize("name", SENTENCES)
@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        *((f"utf-{code}", False) for code in ("16-le", "16-be", "32-le", "32-be")),
        ("utf-16-le", True),
    ],
)
@pytest.mark.parametrize("mark", ["\ufeff", ""])
def test_wide_encodings_are_refused(
    name: str, codec: str, mark: str, packed: bool, tmp_path: Path
) -> None:
    path = tmp_path / ("it's.de.gz" if packed else "it's.de")
    content = (mark + SENTENCES[name] * 9).encode(codec)
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(UserError) as caught:
        read_text(path)
    assert caught.value.code == Exit.DATA
    assert str(caught.value).startswith(f"{path}: is UTF-16 or UTF-32, not UTF-8; convert it: ")


def is_refused(head: bytes) -> bool:
    try:
        refuse_other_than_lines(head, "a.de")
    except UserError:
        return True
    return False


@given(TEXT, st.booleans())
def test_utf8_is_not_taken_for_another_encoding(text: str, mark: bool) -> None:
    content = ("\ufeff" if mark else "").encode() + text.replace("\x00", "").encode()
    assert not is_refused(content)


@pytest.mark.parametrize("odd", [b"a\x00b\n", b"\x00\n", b"", b"a", b"\x00", b"ab" * 90 + b"\0"])
def test_a_few_nuls_are_control_characters(odd: bytes) -> None:
    assert not is_refused(odd)
    assert is_refused(odd + 99 * b"\0")


def test_lines_that_belong_together_are_as_many(tmp_path: Path) -> None:
    path, other = tmp_path / "a.en", tmp_path / "a.de"
    path.write_text("one\ntwo\n")
    assert read_parallel(path, ["eins", "zwei"], other) == ["one", "two"]
    with pytest.raises(UserError, match=r"a\.en: has 2 lines, but .*a\.de has 3; ") as error:
        read_parallel(path, ["eins", "zwei", "drei"], other)
    assert error.value.code == Exit.DATA


@pytest.mark.parametrize(
    "head",
    [
        b'<srcset setid="t">\n<seg id="1">A</seg>',
        b'\xef\xbb\xbf<?xml version="1.0" encoding="UTF-8"?>\r\n<dataset id="wmt">',
        b'<?xml version="1.0"?>',
        b"<!DOCTYPE mteval SYSTEM 'x'>",
        b'\n<TMX version="1.4">',
    ],
)
def test_markup_is_no_text_of_lines(head: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.sgm").write_bytes(head)
    with pytest.raises(UserError, match=r"t\.sgm: is SGML, XML or TMX") as caught:
        read_text(tmp_path / "t.sgm")
    assert caught.value.code == Exit.DATA


@pytest.mark.parametrize("line", ["<b>bold</b> text", "<?xml version='1.0'?> begins a file", "< 3"])
def test_tags_in_a_sentence_are_text(line: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(f"{line}\n", encoding="utf-8")
    assert read_text(tmp_path / "t") == [line]
