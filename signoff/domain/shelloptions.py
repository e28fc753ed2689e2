"""Options by which well-known programs run or write something else than their first words say."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: A rule that names one of them states it; a prefix alone does not cover it.
_RUNS: dict[str, tuple[str, ...]] = {
    "git": (
        "-c", "-C", "--config-env", "--exec-path", "--git-dir", "--work-tree", "--upload-pack",
        "--receive-pack", "--exec", "-x", "--ext-diff", "--textconv", "--output", "-O",
        "--open-files-in-pager", "--extcmd", "--upload-archive", "--template", "-u", "-o",
        "--smtp-server", "--sendmail-cmd", "--tree-filter", "--index-filter", "--msg-filter",
        "--env-filter", "--commit-filter", "--parent-filter", "--tag-name-filter", "--setup",
    ),
    "find": (
        "-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls",
    ),
    "fd": ("-x", "-X", "--exec", "--exec-batch"),
    "tar": (
        "--checkpoint-action", "--to-command", "-I", "--use-compress-program", "--rsh-command",
        "--rmt-command", "-F", "--info-script", "--new-volume-script", "--index-file",
    ),
    "sort": ("-o", "--output", "--compress-program"),
    "split": ("--filter",),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "rg": ("--pre", "--hostname-bin"),
    "make": ("--eval", "-f", "--file", "--makefile", "-C", "--directory", "-I"),
    "ssh": ("-o", "-F"),
    "scp": ("-o", "-S", "-F"),
    "curl": (
        "-o", "-O", "-K", "--output", "--config", "--remote-name", "-T", "--upload-file", "-D",
        "--dump-header", "-c", "--cookie-jar", "--trace", "--trace-ascii", "--stderr", "-J",
        "--remote-header-name", "--libcurl", "--etag-save", "--hsts", "--alt-svc",
    ),
    "wget": (
        "-O", "--output-document", "--use-askpass", "-e", "--execute", "-i", "--input-file", "-P",
        "--directory-prefix", "--post-file", "--body-file", "-o", "--output-file", "-a",
        "--append-output", "--config", "--save-cookies",
    ),
    "zip": ("-T", "-TT", "--unzip-command"),
    "man": ("-P", "--pager", "-H"),
    "less": ("-o", "-O", "-k", "--lesskey-file", "--log-file", "+"),
    "nc": ("-e", "-c", "--exec", "--sh-exec"),
    "ncat": ("-e", "-c", "--exec", "--sh-exec"),
    "gcc": ("-wrapper",),
    "go": ("-exec", "-toolexec", "-vettool", "-o", "-overlay"),
    "npm": ("--script-shell", "--prefix", "-C", "--node-options"),
    "cargo": ("--config", "-C", "-Z"),
}  # fmt: skip
#: Commands of git that run what its configuration or the next words say.
_GIT = frozenset({
    "bisect", "config", "credential", "daemon", "difftool", "filter-branch", "for-each-repo",
    "hook", "instaweb", "mergetool", "p4", "send-email", "shell", "submodule", "svn",
})  # fmt: skip
_PLAIN_SED = re.compile(r"s([/|,#:%@])(?:(?!\1).)*\1(?:(?!\1).)*\1[gpiI0-9]*")


def strays(name: str, words: Sequence[str], *, first: bool = True) -> bool:
    """True when an option among ``words`` makes the program called ``name`` do something else.

    ``first``: the words begin right behind the name.
    """
    if name == "git" and first and words and words[0] in _GIT:
        return True
    options = _RUNS.get(name, ())
    if name == "tar" and first and words and not words[0].startswith("-"):
        # Its first word may be options without their dash.
        words = (f"-{words[0]}", *words[1:])
    return any(_states_option(option, word) for word in words for option in options)


def _states_option(option: str, word: str) -> bool:
    if word == option or word.startswith(f"{option}="):
        return True
    if len(option) == 2 and option[0] == "-":  # noqa: PLR2004 - -x
        # -x hides among other letters: -vx, and nobody knows which of them take a value.
        return word.startswith("-") and not word.startswith("--") and option[1] in word
    if option == "+":
        return word.startswith("+")
    if not option.startswith("--"):
        # Programs with long options of one dash take two as well.
        return word == f"-{option}" or word.startswith(f"-{option}=")
    # Long options may be cut short: --outp=x.
    return len(word) > 3 and option.startswith(word.partition("=")[0])  # noqa: PLR2004 - --x


def plain_sed(script: str) -> bool:
    """True for a script that substitutes text and does nothing else."""
    return _PLAIN_SED.fullmatch(script) is not None


def runs_in_sed(known: Sequence[str]) -> bool:
    """True when a script of sed may run a command: its e, or what no eye tells from it."""
    scripts = [text for text in known if not text.startswith("-")][:1]
    scripts += [text for text in known if text.startswith("-") and "e" in text]
    return any("e" in text.lstrip("-") and not plain_sed(text) for text in scripts)
