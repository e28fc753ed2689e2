"""`signoff keys`: whose key is made, whose are shown, and what is said when nothing answers."""

import re

import pytest

from signoff.cli import main
from signoff.store.bootstrap import shown_address


@pytest.fixture
def keys(redis_url, monkeypatch, capsys):
    """The command on an empty store: (exit code, lines on stdout, stderr)."""
    monkeypatch.setenv("SIGNOFF_REDIS_URL", redis_url)

    def run(*words):
        code = main(["keys", *words])
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err

    return run


def accounts(lines):
    """(name, id) of the account of each row."""
    return [(row.split("\t")[1], row.split("\t")[6]) for row in lines[1:]]


def test_an_account_is_named_by_its_id_or_its_name(keys):
    """Both lead to the same one; a key by id makes no account of that name."""
    assert keys("create", "--account", "acme")[0] == 0
    assert keys("create", "--account", "other")[0] == 0
    code, _, said = keys("create", "--account", "1", "--name", "second")
    assert (code, "of account acme (id 1)" in said) == (0, True)
    for named in ("1", "acme"):
        assert accounts(keys("list", "--account", named)[1]) == [("acme", "1")] * 2
    assert sorted(accounts(keys("list")[1])) == [("acme", "1")] * 2 + [("other", "2")]


def test_digits_never_become_a_name(keys):
    """An id that does not exist is refused, and so is a list of it; no account is made."""
    for named in ("7", "٣"):
        code, shown, said = keys("create", "--account", named)
        assert (code, shown, "there is no account" in said) == (2, [], True)
    assert keys("create", "--account", " a")[0] == 2
    assert keys("create", "--account", "")[0] == 2
    assert keys("list", "--account", "nobody")[0] == 2
    assert keys("list")[1][1:] == []


def test_times_are_shown_as_such(keys):
    """When a key was made and revoked, in UTC; only its whole id revokes it."""
    keys("create")
    (row,) = keys("list")[1][1:]
    key_id = row.split("\t")[0]
    assert keys("revoke", key_id[:5])[0] == keys("revoke", "")[0] == 1
    assert keys("revoke", key_id)[0] == 0
    (row,) = keys("list")[1][1:]
    for text in row.split("\t")[4:6]:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)


def test_a_store_that_does_not_answer_is_named(keys, monkeypatch, tmp_path):
    """By its address, so that a wrong one is seen; a password is not part of it."""
    monkeypatch.setenv("SIGNOFF_REDIS_URL", f"unix://:secret@{tmp_path}/none.sock?db=0")
    code, _, said = keys("list")
    assert (code, f"unix://{tmp_path}/none.sock?db=0" in said, "secret" in said) == (1, True, False)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:pw@host:6379/3", "redis://host:6379/3"),
        ("rediss://host/0?password=pw", "rediss://host/0"),
        ("unix:///srv/store.sock?db=2&password=pw", "unix:///srv/store.sock?db=2"),
    ],
)
def test_an_address_is_shown_without_its_password(url, shown):
    """Wherever the URL holds one."""
    assert shown_address(url) == shown
