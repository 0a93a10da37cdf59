"""Lines end at LF only; everything malformed is refused with its place."""

import bz2
import gzip
import io
import lzma
import os
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from backports import zstd
from hypothesis import assume, given
from hypothesis import strategies as st

from nmt.errors import Exit, UserError
from nmt.text.lines import (
    check_stream,
    open_lines,
    raw_lines,
    read_parallel,
    read_text,
    refuse_other_than_lines,
)

LINE_LIKE = "\r\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029\x00\ufeff\t \u00a0"
TEXT = st.text(st.one_of(st.sampled_from(LINE_LIKE), st.characters(codec="utf-8")))
MALFORMED = [
    b"\xc0\x80",  # overlong
    b"\xf0\x80\x80\x80",
    b"\xed\xa0\x80",  # a surrogate
    b"\x80",  # continuation alone
    b"\xf4\x90\x80\x80",  # beyond U+10FFFF
    b"\xe2\x82",  # cut off
]


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


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file; set it") as caught:
        read_text(tmp_path / "none", "set it")
    assert caught.value.code == Exit.NO_INPUT
    with pytest.raises(UserError) as caught:
        read_text(tmp_path)  # a directory
    assert caught.value.code == Exit.NO_INPUT


LINES = b"".join(b"line %d\n" % i for i in range(10_000))
GOOD, PACKED = gzip.compress(LINES, mtime=0), zstd.compress(LINES)
DAMAGED = {
    "truncated": GOOD[: len(GOOD) // 2],
    "flipped": GOOD[:5000] + bytes([GOOD[5000] ^ 0xFF]) + GOOD[5001:],
    "garbage after": GOOD + b"garbage",
    "checksum": GOOD[:-8] + b"\x00\x00\x00\x00" + GOOD[-4:],
    "truncated zstd": PACKED[:-1],
    "garbage after zstd": PACKED + b"garbage",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_archives_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t"
    path.write_bytes(DAMAGED[name])
    with pytest.raises(UserError, match=r"damaged (zstd|gzip)") as caught:
        read_text(path)
    assert caught.value.code == Exit.DATA


def test_whole_gzip_is_read(tmp_path: Path) -> None:
    for content, lines in ((GOOD * 2, 20_000), (GOOD + bytes(512), 10_000)):
        (tmp_path / "t.gz").write_bytes(content)
        assert len(read_text(tmp_path / "t.gz")) == lines


UNREAD: dict[str, Callable[[bytes], bytes]] = {
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zip": lambda content: b"PK\x03\x04" + content,
}


@pytest.mark.parametrize("kind", UNREAD)
def test_what_is_compressed_otherwise_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "train.de"
    for content in (b"eins\n" * 99, b"", b"\n"):
        for written in (UNREAD[kind](content), gzip.compress(UNREAD[kind](content))):
            path.write_bytes(written)
            with pytest.raises(UserError, match=rf"^{path}: is compressed by {kind}; ") as caught:
                read_text(path)
            assert caught.value.code == Exit.DATA


SENTENCES = {
    "English": "It is small.\n",
    "German": "Die Größe des Hauses\nist „groß“.\n",
    "Russian": "Дом стоит у реки,\nа река течёт.\n",  # noqa: RUF001  (its UTF-16 is UTF-8 as well)
    "Chinese": "房子很大。\n河水在流。\n",
    "Japanese": "昨日の夜はとても雨が降ったので、川の水が高くなりました。\n橋を渡れません。\n",
    "Korean": "어젯밤에비가많이와서강물이불었습니다\n",
    "Thai": "เมื่อคืนฝนตกหนักมากน้ำในแม่น้ำจึงสูงขึ้น\n",
    "Arabic": "البيت كبير\nوالنهر يجري\n",  # noqa: RUF001
    "Hindi": "घर बड़ा है।\nनदी बहती है।\n",
}
WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")


@pytest.mark.parametrize("codec", WIDE)
def test_wide_encodings_are_refused(codec: str, tmp_path: Path) -> None:
    """Of any script, with a mark or without; in a file, and within the first lines of a pipe."""
    path = tmp_path / "it's.de"
    for sentences in SENTENCES.values():
        for mark in ("\ufeff", ""):
            path.write_bytes((mark + sentences * 20).encode(codec))
            with pytest.raises(UserError) as caught:
                read_text(path)
            assert caught.value.code == Exit.DATA
            assert str(caught.value).startswith(f"{path}: is UTF-16 or UTF-32, not UTF-8; convert")
        read: list[bytes] = []
        with pytest.raises(UserError, match="UTF-16"):
            read.extend(check_stream(io.BytesIO((sentences * 3).encode(codec)), "stdin"))
        assert len(read) < 4


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        (SENTENCES["German"] * 20, "latin-1"),
        (SENTENCES["Russian"] * 20, "cp1251"),
        (SENTENCES["Chinese"] * 20, "gb18030"),
        ("Un café très agréable où l'on mange bien.\n" * 20, "cp1252"),
    ],
)
def test_other_encodings_are_refused(text: str, codec: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(text.encode(codec, "replace"))
    with pytest.raises(UserError, match=r"t: is not UTF-8") as caught:
        read_text(tmp_path / "t")
    assert caught.value.code == Exit.DATA


def test_a_damaged_line_is_no_other_encoding(tmp_path: Path) -> None:
    good, bad = SENTENCES["German"].encode(), "Größe über alles größer\n".encode("latin-1")
    (tmp_path / "t").write_bytes(good * 20 + bad * 4 + good)
    with pytest.raises(UserError, match=r"t:41: byte 2 of the line begins no UTF-8 character"):
        read_text(tmp_path / "t")


def test_a_named_pipe_gives_a_line_before_the_next_is_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p")
    answered = threading.Event()

    def write() -> None:
        with (tmp_path / "p").open("wb", buffering=0) as pipe:
            pipe.write(b"one\n")
            if answered.wait(10):
                pipe.write(b"two\n")

    writer = threading.Thread(target=write)
    writer.start()
    with open_lines(tmp_path / "p") as lines:
        rows = iter(lines)
        first = next(rows)
        answered.set()
        assert [first, *rows] == [b"one\n", b"two\n"]
    writer.join()


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


LINE = st.lists(st.one_of(TEXT, st.text(st.characters(codec="utf-8")), st.just("plain words " * 5)))


@given(st.lists(LINE.map("".join), min_size=1), st.booleans(), st.booleans())
def test_no_line_is_lost_added_or_moved(texts: list[str], final: bool, mark: bool) -> None:
    """Of any text in a file, compressed or not, and in a stream."""
    lines = [text.replace("\n", "").rstrip("\r") for text in texts]
    lines[0] = lines[0].removeprefix("\ufeff")
    ended = "\n" if final or not lines[-1] else ""
    content = ("\ufeff" * mark + "\n".join(lines) + ended).encode()
    assume(not is_refused(content))
    with TemporaryDirectory() as folder:
        path = Path(folder, "t")
        for written in (content, gzip.compress(content, 1), zstd.compress(content)):
            path.write_bytes(written)
            assert read_text(path) == lines
    if b"\0" not in content:
        stream = check_stream(io.BytesIO(content), "stdin")
        assert [line.decode() for line in raw_lines(stream)] == lines


def test_a_few_nuls_are_control_characters() -> None:
    for odd in (b"a\x00b\n", b"", b"\x00", b"ab" * 90 + b"\0"):
        assert not is_refused(odd)
        assert is_refused(odd + 99 * b"\0")


def test_lines_that_belong_together_are_as_many(tmp_path: Path) -> None:
    path, other = tmp_path / "a.en", tmp_path / "a.de"
    path.write_text("one\ntwo\n")
    assert read_parallel(path, ["eins", "zwei"], other) == ["one", "two"]
    with pytest.raises(UserError, match=r"a\.en: has 2 lines, but .*a\.de has 3; ") as error:
        read_parallel(path, ["eins", "zwei", "drei"], other)
    assert error.value.code == Exit.DATA


def test_markup_is_no_text_of_lines_and_tags_in_a_sentence_are(tmp_path: Path) -> None:
    path = tmp_path / "t.sgm"
    for head in (
        b'<srcset setid="t">\n<seg id="1">A</seg>',
        b'\xef\xbb\xbf<?xml version="1.0" encoding="UTF-8"?>\r\n<dataset id="wmt">',
        b"<!DOCTYPE mteval SYSTEM 'x'>",
        b'\n<TMX version="1.4">',
    ):
        path.write_bytes(head)
        with pytest.raises(UserError, match=r"t\.sgm: is SGML, XML or TMX"):
            read_text(path)
    for line in ("<b>bold</b> text", "<?xml version='1.0'?> begins a file", "< 3"):
        path.write_text(f"{line}\n", encoding="utf-8")
        assert read_text(path) == [line]
