"""Secrets at rest open with the operator's keys, and only as what they were sealed for."""

from __future__ import annotations

import pytest
from cryptography.fernet import Fernet

from signoff.store.sealing import Seal, SealError

OLD, NEW, OTHER = (Fernet.generate_key().decode() for _ in range(3))
PURPOSE = "endpoint-secret:1:7"


def test_what_is_sealed_opens_for_its_purpose() -> None:
    """A roundtrip, also of what is not ASCII; the sealed form shows nothing of the secret."""
    sealed = Seal([NEW]).close("whsec_ä", PURPOSE)
    assert "whsec" not in sealed
    assert Seal([NEW]).open(sealed, PURPOSE) == "whsec_ä"


def test_a_sealed_value_moved_to_another_object_does_not_open() -> None:
    """Who can write to the store cannot give one endpoint the secret of another."""
    sealed = Seal([NEW]).close("whsec_a", PURPOSE)
    with pytest.raises(SealError, match="another object"):
        Seal([NEW]).open(sealed, "endpoint-secret:2:8")


def test_keys_rotate() -> None:
    """The first key seals, every key opens; without the right one nothing does."""
    sealed = Seal([OLD]).close("whsec_a", PURPOSE)
    assert Seal([NEW, OLD]).open(sealed, PURPOSE) == "whsec_a"
    fresh = Seal([NEW, OLD]).close("whsec_a", PURPOSE)
    assert Seal([NEW]).open(fresh, PURPOSE) == "whsec_a"
    with pytest.raises(SealError, match="given keys"):
        Seal([OTHER]).open(sealed, PURPOSE)


@pytest.mark.parametrize("sealed", ["", "x", "gAAAAA==", "ä"])
def test_damage_is_our_error(sealed: str) -> None:
    """Whatever stands in the store, the outcome is a secret or SealError."""
    with pytest.raises(SealError):
        Seal([NEW]).open(sealed, PURPOSE)


def test_a_foreign_token_of_the_same_key_is_our_error() -> None:
    """The operator may use the key elsewhere; what was sealed there is none of ours."""
    for text in (b"whsec_a", b"[]", b'["a","b","c"]', b"1"):
        with pytest.raises(SealError):
            Seal([NEW]).open(Fernet(NEW).encrypt(text).decode(), PURPOSE)
