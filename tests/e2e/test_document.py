"""Schemathesis finds no answer that /openapi.json does not tell of, whatever it sends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import KEY, OTHER_KEY, running

# What a document cannot say: which tools and models are loaded, whose run it is, which parameters
# exclude each other. So a body that fits its schema may still be refused, by a documented code.
SKIPPED = "positive_data_acceptance"
FEW, MANY = 3, int(os.environ.get("FUZZ_EXAMPLES", "40"))
# Here alone a setting may be changed that other requests would be refused by.
SETTINGS = r"^/(v1|api/v2)/settings$"


@pytest.fixture(scope="module")
def dev(tmp_path_factory):
    with running(tmp_path_factory.mktemp("document")) as started:
        yield started


def _search(dev, folder: Path, key: str, *options: str, examples: int = FEW) -> None:
    """Fails with what schemathesis says when it found something."""
    done = subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"),
            "run",
            f"{dev.url}/openapi.json",
            f"--header=Authorization: Bearer {key}",
            f"--max-examples={examples}",
            f"--exclude-checks={SKIPPED}",
            "--suppress-health-check=all",
            "--warnings=off",
            "--no-color",
            "--request-timeout=40",  # longer than any long poll
            *(["--seed=1", "--generation-deterministic"] if os.environ.get("CI") else []),
            *options,
        ],
        cwd=folder,  # it keeps what it found beside itself
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    assert "Test cases:" in done.stdout, done.stdout + done.stderr
    if done.returncode != 0:
        pytest.fail(done.stdout, pytrace=False)


def test_every_answer_is_documented(dev, tmp_path):
    """No 5xx, no other status, media type or body than the document says, for good and bad data."""
    options = ("--phases=coverage,fuzzing", f"--exclude-path-regex={SETTINGS}")
    _search(dev, tmp_path, KEY, *options, "--exclude-path-regex=^/api/")


def test_the_other_mount_answers_alike(dev, tmp_path):
    """The same under /api/v2, with fewer tries: the handlers are the same."""
    options = ("--phases=fuzzing", "--mode=positive", f"--exclude-path-regex={SETTINGS}")
    _search(dev, tmp_path, KEY, *options, "--include-path-regex=^/api/v2/")


def test_settings_are_documented(dev, tmp_path):
    """Settings, in an account of their own."""
    options = ("--phases=fuzzing", f"--include-path-regex={SETTINGS}")
    _search(dev, tmp_path, OTHER_KEY, *options)


@pytest.mark.soak
def test_nothing_is_found_in_minutes(dev, tmp_path):
    """Many tries on both mounts, also in sequences that use what they have made."""
    options = ("--workers=2", f"--exclude-path-regex={SETTINGS}")
    _search(dev, tmp_path, KEY, *options, examples=MANY)
