"""Section 14: the files in a POSIX tar archive (ustar), read once from the beginning to the end.

Python's `tarfile` also reads what other programs add to the format, such as other names for the files behind. What programs take for
different things is no evidence, so anything but plain files is `malformed_evidence`, and so is an archive without its end.
"""

import re

from .encoding import Finding, decode_utf8

CODE = "malformed_evidence"
BLOCK = 512
MAGIC = b"ustar\x0000"
# What stands there in GNU's own format, which programs write unless they are told otherwise.
MAGIC_OF_GNU = b"ustar  \0"

# What a header begins: a file, or what else there is to pack: links, folders and the like, and more about the file behind.
FILE = b"0"
NOT_FILES = b"1234567"
OF_PAX = b"xg"

# Something stands behind the digits: there are programs that do not read the last byte of a number.
_OCTAL = re.compile(rb"[0-7]+[ \0]+")


def files(archive):
    """Each name with its `File`. What is not read of a file is skipped."""
    while any(header := _read(archive, BLOCK)):
        name, size = _read_header(header)
        file = File(archive, size)
        yield name, file
        while file.read(1 << 16):
            pass
        if any(_read(archive, -size % BLOCK)):
            raise damaged(f"something stands behind {name}")
    # It ends with two blocks of zeros, and most programs fill up what is left of twenty.
    is_filled_up = not any(_read(archive, BLOCK))
    while is_filled_up and (begin := archive.read(1)):
        is_filled_up = not any(begin + _read(archive, BLOCK - 1))
    if not is_filled_up:
        raise damaged("something stands behind its end")


class File:
    """What is left of a file in an archive."""

    def __init__(self, archive, size):
        self._archive = archive
        self._left = size

    def read(self, bytes_max):
        return self._took(self._archive.read(min(bytes_max, self._left)))

    def readline(self, bytes_max):
        return self._took(self._archive.readline(min(bytes_max, self._left)))

    def _took(self, taken):
        if self._left and not taken:
            raise damaged("it is cut off")
        self._left -= len(taken)
        return taken


def damaged(what):
    return Finding(CODE, what)


def other_format():
    return damaged("the archive is not in the ustar format; pack it with `--format=ustar`")


def _read(archive, count):
    taken = b""
    while len(taken) < count:
        part = archive.read(count - len(taken))
        if not part:
            raise damaged("it is cut off")
        taken += part
    return taken


def _read_header(header):
    """The name and the size of the file that a header begins."""
    total = sum(header[:148]) + 8 * ord(" ") + sum(header[156:])
    if header[257:265] == MAGIC_OF_GNU:
        raise other_format()
    if header[257:265] != MAGIC or _octal(header[148:156]) != total:
        raise damaged("not the header of a file")
    if any(header[345:500]):
        raise damaged("a name in the archive has a prefix, which no name of evidence needs")
    name = decode_utf8(header[:100].split(b"\0")[0], CODE)
    kind = header[156:157]
    if kind in NOT_FILES:
        raise damaged("there is a folder or a link in the archive; pack the files alone, in the same order")
    if kind in OF_PAX:
        raise other_format()
    if kind != FILE:
        raise damaged(f"{name} is not a file")
    return name, _octal(header[124:136])


def _octal(field):
    if _OCTAL.fullmatch(field) is None:
        raise damaged("not a number")
    return int(field.rstrip(b" \0"), 8)
