"""Canonical JSON: RFC 8785 of I-JSON (RFC 7493), to check that a text is it and that it has one meaning."""

import json

from .encoding import write_string

DEPTH_MAX = 256


class Ambiguous(ValueError):
    """Not JSON, or JSON that could be read in two ways."""


def parse(text, depth_max=DEPTH_MAX, parse_int=None):
    """Reads a JSON text that has one meaning. Every number becomes a float, because that is what I-JSON can hold; integers that are
    not beyond all floats become what `parse_int` makes of them, if it is given.
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_float=_number,
            parse_int=_number if parse_int is None else _within_doubles(parse_int),
            parse_constant=_constant,
        )
    except (ValueError, RecursionError) as error:
        raise Ambiguous(str(error)) from None
    _check(value, depth_max)
    return value


def write(value):
    """The canonical text of what `parse` returned."""
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be"))
        return "{" + ",".join(f"{write_string(key)}:{write(member)}" for key, member in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(write(element) for element in value) + "]"
    if isinstance(value, str):
        return write_string(value)
    if isinstance(value, float):
        return _write_number(value)
    return {True: "true", False: "false", None: "null"}[value]


def is_canonical(text):
    """Whether a text is canonical JSON."""
    try:
        return write(parse(text)) == text
    except Ambiguous:
        return False


def _object(members):
    value = dict(members)
    if len(value) != len(members):
        raise Ambiguous("a member stands twice")
    return value


def _number(token):
    try:
        value = float(token)
    except ValueError:
        raise Ambiguous("not a number") from None
    if value in (float("inf"), float("-inf")):
        raise Ambiguous("a number that no double holds")
    return value


def _within_doubles(parse_int):
    def integer(token):
        _number(token)
        return parse_int(token)

    return integer


def _constant(token):
    raise Ambiguous(f"{token} is not JSON")


def _check(value, depth_left):
    """Refuses lone surrogates and what is nested too deeply, without recursion."""
    waiting = [([value], depth_left)]
    while waiting:
        elements, depth_left = waiting.pop()
        for value in elements:
            if isinstance(value, str):
                _check_text(value)
            elif isinstance(value, (dict, list)):
                if depth_left == 0:
                    raise Ambiguous("nested too deeply")
                if isinstance(value, dict):
                    for key in value:
                        _check_text(key)
                    value = value.values()
                waiting.append((value, depth_left - 1))


def _check_text(text):
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Ambiguous("a lone surrogate") from None


def _write_number(value):
    """As ECMAScript writes it: section 3.2.2.3 of RFC 8785."""
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    # The value is 0.DIGITS times ten to the power of `point`.
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    return sign + _place_point(digits, point)


def _place_point(digits, point):
    count = len(digits)
    if count <= point <= 21:
        return digits + "0" * (point - count)
    if 0 < point <= 21:
        return digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    exponent = f"e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return digits[0] + ("." + digits[1:] if count > 1 else "") + exponent
