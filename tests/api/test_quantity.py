"""Quantities against exact arithmetic, and against what Kubernetes is known to print."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kyu.api import quantity
from kyu.api.quantity import LOWEST, UNLIMITED, Quantity, QuantityError

SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(10**3),
    "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}  # fmt: skip
EXPONENTS = {f"{letter}{power}": Fraction(10) ** power for letter in "eE" for power in range(-12, 13)}
BINARY = {suffix for suffix in SUFFIXES if suffix.endswith("i")}

numbers = st.from_regex(r"[0-9]{1,12}(\.[0-9]{0,10})?|\.[0-9]{1,10}", fullmatch=True)
suffixes = st.sampled_from([*SUFFIXES, *EXPONENTS])
signs = st.sampled_from(["", "+", "-"])
texts = st.builds("{}{}{}".format, signs, numbers, suffixes)
amounts = st.integers(LOWEST, UNLIMITED) | st.sampled_from([UNLIMITED, LOWEST, 0, UNLIMITED - 1])


def exact(sign: str, number: str, suffix: str) -> Fraction:
    """The value in nano-units, rounded away from zero; binary quantities end at 64 bits."""
    value = Fraction("0" + number.rstrip(".")) * {**SUFFIXES, **EXPONENTS}[suffix] * 10**9
    rounded = Fraction(-(-value.numerator // value.denominator))
    if suffix in BINARY:
        rounded = min(rounded, Fraction(UNLIMITED * 10**9))
    return -rounded if sign == "-" else rounded


@given(signs, numbers, suffixes)
def test_parsing_is_exact(sign: str, number: str, suffix: str) -> None:
    assert quantity.parse(sign + number + suffix).nanos == exact(sign, number, suffix)


@given(texts)
@example("1.1Ki")
@example("1000E")
@example("0.5Ki")
def test_the_canonical_form_says_the_same_and_is_a_fixed_point(text: str) -> None:
    parsed = quantity.parse(text)
    canonical = str(parsed)
    assert quantity.parse(canonical) == parsed
    assert str(quantity.parse(canonical)) == canonical


@given(texts, texts)
def test_order_and_sums_are_those_of_the_values(left: str, right: str) -> None:
    a, b = quantity.parse(left), quantity.parse(right)
    assert (a < b, a <= b, a == b, a > b) == (
        a.nanos < b.nanos, a.nanos <= b.nanos, a.nanos == b.nanos, a.nanos > b.nanos
    )  # fmt: skip
    assert (a + b).nanos == a.nanos + b.nanos
    assert (a - b) + b == a
    assert (hash(a) == hash(b)) or a != b


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("0Gi", "0"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.", "1"),
        ("00012", "12"),
        ("1024Mi", "1Gi"),
        ("1023", "1023"),
        ("0.5Ki", "512"),
        ("1.1Ki", "1126400m"),
        ("1025Ki", "1025Ki"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("1500e-3", "1500e-3"),
        ("12e6", "12e6"),
        ("1E", "1E"),
        ("123456789k", "123456789k"),
        ("100Ei", "9223372036854775807"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("-2048Ki", "-2Mi"),
        ("1000000000Gi", "1000000000Gi"),
    ],
)
def test_canonical_forms_are_those_of_kubernetes(text: str, canonical: str) -> None:
    assert str(quantity.parse(text)) == canonical


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "m", ".", "-", "+", "--1", "1i", "1ki", "1KI", "0.1mi", "1e", "1e+", "1e1.5", "1e3m", "1,5",
     "0x10", "1_000", "NaN", "Inf", "٣", "1e9999", "9" * 1000],
)  # fmt: skip
def test_what_is_not_a_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        quantity.parse(text)


@pytest.mark.parametrize("value", [None, True, [], {}, float("nan"), float("inf")])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(QuantityError):
        quantity.parse(value)  # type: ignore[arg-type]


@given(st.integers(-(10**20), 10**20))
def test_integers_of_json_are_quantities(value: int) -> None:
    assert quantity.parse(value).nanos == value * 10**9


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e20, max_value=1e20))
def test_floats_of_json_mean_what_they_print(value: float) -> None:
    shortest = Fraction(repr(value)) * 10**9
    expected = -(-abs(shortest.numerator) // shortest.denominator)
    assert quantity.parse(value).nanos == (expected if value >= 0 else -expected)


@given(texts)
def test_amounts_are_rounded_up_and_kept_in_64_bits(text: str) -> None:
    nanos = quantity.parse(text).nanos
    for resource, unit in (("cpu", 10**6), ("memory", 10**9), ("example.com/gpu", 10**9)):
        value = quantity.amount(resource, text)
        assert LOWEST <= value <= UNLIMITED
        if LOWEST < value < UNLIMITED:
            assert abs(value) * unit >= abs(nanos) > (abs(value) - 1) * unit
        assert quantity.exact_amount(resource, quantity.parse(text)) == value


@pytest.mark.parametrize(
    ("resource", "text", "value"),
    [
        ("cpu", "1", 1000),
        ("cpu", 2, 2000),
        ("cpu", "1500u", 2),
        ("cpu", "0.1", 100),
        ("memory", "1Gi", 2**30),
        ("memory", "1500m", 2),
        ("nvidia.com/gpu", "4", 4),
        ("cpu", "1000000000Gi", UNLIMITED),
        ("memory", "1000000000Gi", 10**9 * 2**30),
    ],
)
def test_an_amount_is_a_whole_number_in_the_unit_of_its_resource(resource: str, text: str | int, value: int) -> None:
    assert quantity.amount(resource, text) == value
    assert quantity.quota_amount(resource, text) == value


def test_only_a_quota_can_be_unlimited() -> None:
    assert quantity.quota_amount("cpu", "10E") == UNLIMITED
    assert quantity.quota_amount("cpu", "-10E") == UNLIMITED
    assert quantity.amount("cpu", "-10E") == LOWEST


@given(amounts, amounts)
def test_sums_of_amounts_saturate(a: int, b: int) -> None:
    total, difference = quantity.add(a, b), quantity.subtract(a, b)
    assert LOWEST <= total <= UNLIMITED
    assert LOWEST <= difference <= UNLIMITED
    if UNLIMITED in (a, b):
        assert total == UNLIMITED
        assert difference == (0 if a == b else UNLIMITED if a == UNLIMITED else LOWEST)
    else:
        assert total == max(LOWEST, min(UNLIMITED, a + b))
        assert difference == max(LOWEST, min(UNLIMITED, a - b))


@given(amounts, st.integers(0, 2**31))
def test_products_saturate(a: int, count: int) -> None:
    assert quantity.multiply(a, count) == max(LOWEST, min(UNLIMITED, a * count))


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("cpu", 0, "0"),
        ("memory", 3 * 2**30, "3Gi"),
        ("memory", 1000, "1k"),
        ("ephemeral-storage", 2**20, "1Mi"),
        ("hugepages-2Mi", 2**21, "2Mi"),
        ("nvidia.com/gpu", 4, "4"),
        ("nvidia.com/gpu", 4000, "4k"),
        ("cpu", UNLIMITED, "<unlimited>"),
        ("cpu", -500, "-500m"),
    ],
)
def test_amounts_are_rendered_as_people_write_them(resource: str, value: int, text: str) -> None:
    assert quantity.render(resource, value) == text


@given(st.sampled_from(["cpu", "memory", "example.com/gpu"]), st.integers(LOWEST + 1, UNLIMITED - 1))
def test_what_is_rendered_is_read_back(resource: str, value: int) -> None:
    assert quantity.amount(resource, quantity.render(resource, value)) == value


def test_zero_takes_the_form_of_what_is_added() -> None:
    assert str(Quantity(0) + quantity.parse("2Gi")) == "2Gi"
