"""Shell commands as rules see them: what is literal, and which commands a text may run.

Two readings with opposite duties. ``literal_words`` answers only for text that every shell takes
as one command of exactly these words; allow rules rest on it. ``ShellCode`` lists whatever may
run, rather too much than too little; ask and deny rules rest on that.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from signoff.domain.glob import fold
from signoff.domain.shelloptions import runs_in_sed, strays

#: Longer text is not read at all: nobody reviews it, and reading must stay fast.
MAX_LENGTH = 10_000
#: More candidates than this in one text are not looked at one by one any more.
MAX_PARTS = 20_000
MAX_WORDS = 64

_KEYWORDS = frozenset(
    "if then elif else fi for while until do done case esac select function time coproc in "
    "{ } ! [[ ]]".split()
)
_UNQUOTED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./=:,@%+")
_ACTIVE_IN_QUOTES = frozenset("$`\\!")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=")

SHELLS = frozenset("sh bash dash zsh ksh mksh ash fish csh tcsh rbash busybox toybox".split())
_WRAPPERS = frozenset(
    "env sudo doas su runuser nice ionice nohup timeout time stdbuf command builtin exec xargs "
    "parallel setsid chroot watch strace ltrace gdb perf unshare nsenter flock script taskset chrt "
    "numactl prlimit firejail bwrap systemd-run unbuffer rlwrap chronic caffeinate noglob "
    "pkexec fakeroot entr ssh-agent dbus-run-session cgexec setpriv catchsegv proot torsocks "
    "proxychains tmux screen expect at batch setarch linux32 linux64 i386 x86_64 uname26 valgrind "
    "choom runcon uclampset coresched chpst logsave start-stop-daemon capsh sg newgrp xvfb-run "
    "nocorrect".split()
)
_EVALUATE = frozenset(
    "eval source . alias unalias trap hash complete compgen bind enable mapfile readarray exec "
    "coproc function let declare typeset local export readonly unset read getopts wait shopt set "
    "fc history printf test [ [[ builtin command".split()
)
#: Their words are code wherever they stand.
_CODED = frozenset(
    "awk gawk mawk nawk ed ex vi vim view nvim rvim vimdiff emacs emacsclient sqlite3 psql mysql "
    "mariadb dc m4 gnuplot expect".split()
)
_INTERPRETERS = _CODED | frozenset(
    "python pypy ipython perl ruby irb node nodejs deno bun php lua luajit tclsh wish guile racket "
    "osascript pwsh powershell julia r rscript octave groovy scala elixir iex erl ghc runghc ocaml "
    "jshell jrunscript tsx ts-node".split()
)
#: They run a command that stands behind one of these words, or that they are given as an option.
_LAUNCHERS = frozenset(
    "docker podman nerdctl kubectl oc vagrant ip uv poetry pdm pipenv hatch rye pipx npm pnpm yarn "
    "bun bundle direnv mise asdf nix conda mamba micromamba".split()
)
_LAUNCH = frozenset("exec run x dlx foreach -- netns".split())
_PACKAGES = frozenset("npx bunx uvx pipx corepack".split())
_LINKER = re.compile(r"ld-linux|ld\.so|ld-musl")
#: They run what comes in by a file or a pipe.
_FED = frozenset("at batch crontab expect gdb bc dc m4".split())
#: What carries other commands in its words without being a mere wrapper.
_CARRIERS = _WRAPPERS.union(
    _PACKAGES,
    "find fd fdfind ssh eval alias trap hash complete bind enable mapfile readarray coproc".split(),
)


@dataclass(frozen=True, slots=True)
class Word:
    """One word after quote removal; ``text`` None when only the running shell knows it."""

    text: str | None
    #: Unquoted characters of a file name pattern are in it.
    globs: bool = False


Part = tuple[Word, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellCode:
    """What one text may run."""

    #: The words, if the text is exactly one literal simple command.
    literal: tuple[str, ...] | None
    #: Simple commands anywhere in the text, also those that others of them carry.
    parts: tuple[Part, ...]
    #: Something runs that the text does not show: a variable, a script, code for an interpreter.
    opaque: bool
    #: False: the text is not understood.
    parsed: bool

    _heads: Mapping[str | None, Sequence[Part]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Sorts the commands by what they run, so that rules need not look at each."""
        found: dict[str | None, list[Part]] = {}
        for part in self.parts:
            text = part[0].text
            unknown = text is None or part[0].globs
            names = {None} if unknown or text is None else {fold(text), fold(program(text))}
            for name in names:
                found.setdefault(name, []).append(part)
        object.__setattr__(self, "_heads", found)

    def run_as(self, name: str) -> Sequence[Part]:
        """The commands whose folded name may be ``name``, however it is spelled."""
        return (*self._heads.get(name, ()), *self._heads.get(None, ()))


UNREAD = ShellCode(literal=None, parts=(), opaque=True, parsed=False)


def program(word: str) -> str:
    """The name that a command word runs, however it is spelled."""
    return word.rsplit("/", 1)[-1].lower()


def carries(words: Sequence[str]) -> bool:
    """True when the command runs something that its first word does not name.

    No allow rule with a pattern covers it, since such a rule would not say what runs.
    """
    name = program(words[0])
    if name in SHELLS or name in _WRAPPERS or name in _EVALUATE:
        return True
    # Code on the command line. A module or a script has a name that a rule can state.
    inline = len(words) > 1 and words[1].startswith("-") and words[1] != "-m"
    return name in _CODED or (interpreter(words[0]) and inline)


def launches(words: Sequence[str]) -> bool:
    """True when the second word says no more than that the ones behind it are run."""
    return program(words[0]) in _LAUNCHERS and words[1] in _LAUNCH


def interpreter(word: str) -> bool:
    """True for programs that run code they are given."""
    name = program(word)
    return name in _INTERPRETERS or name.rstrip("0123456789.") in _INTERPRETERS


def literal_words(text: str) -> tuple[str, ...] | None:
    """The words of ``text``, if no shell would do anything but run one command of them.

    No separator, redirect, expansion, pattern, comment, assignment, keyword, escape or control
    character, and outside quotes nothing but plain ASCII.
    """
    words = _scan(text, stars=False)
    return None if words is None else tuple("".join(part or "" for part in word) for word in words)


def pattern_words(text: str) -> list[list[str | None]] | None:
    """``text`` as literal words in which an unquoted star is None; None if it is not that."""
    return _scan(text, stars=True)


def _scan(text: str, *, stars: bool) -> list[list[str | None]] | None:
    if not text or len(text) > MAX_LENGTH:
        return None
    words: list[list[str | None]] = []
    word: list[str | None] | None = None
    at = 0
    while at < len(text):
        char = text[at]
        if char == " ":
            if word is not None:
                words.append(word)
            word = None
            at += 1
            continue
        piece, after = _piece(text, at, first=word is None, stars=stars)
        if after < 0:
            return None
        word = [] if word is None else word
        word.append(piece)
        at = after
    if word is not None:
        words.append(word)
    if not words or _special(text.lstrip(" ")):
        return None
    return words


def _piece(text: str, at: int, *, first: bool, stars: bool) -> tuple[str | None, int]:
    """The next characters of a word and where they end; -1 for what is not literal."""
    char = text[at]
    if char in "'\"":
        end = text.find(char, at + 1)
        inside = text[at + 1 : end]
        if end < 0 or not inside.isprintable():
            return "", -1
        if char == '"' and not _ACTIVE_IN_QUOTES.isdisjoint(inside):
            return "", -1
        return inside, end + 1
    if char == "*" and stars:
        return None, at + 1
    if char in _UNQUOTED:
        return char, at + 1
    # Home folders, comments and substitutions begin at a word's edge; HEAD~1 and a^b do not.
    if char in "~^#" and not first and text[at - 1].isascii() and text[at - 1].isalnum():
        return char, at + 1
    return "", -1


def _special(text: str) -> bool:
    head = text.split(" ", 1)[0]
    return head in _KEYWORDS or _ASSIGNMENT.match(head) is not None


def carried(whole: Part) -> tuple[list[Part], list[str], bool]:
    """What else a command may run: other commands, code to be read as such, and the unseen."""
    part = whole[:MAX_WORDS]
    head = part[0].text
    if head is None:
        # An empty variable in front of a command is no command.
        return list(_suffixes(part)), [], True
    name = program(head)
    rest = [word.text for word in part[1:]]
    known = [text for text in rest if text is not None]
    if name in SHELLS:
        code = any(re.fullmatch(r"-[a-zA-Z]*c|--command", text) for text in known)
        return list(_suffixes(part)), _codes(known), not code or len(known) < len(whole) - 1
    if name in ("source", "."):
        return [], [], True
    unknown = len(known) < len(rest) or len(part) < len(whole)
    if name in _CARRIERS or _LINKER.match(name):
        codes = _codes(known)
        if name == "eval":
            codes.append(" ".join(known))
        return list(_suffixes(part)), codes, unknown or name in _FED
    if interpreter(head):
        inline = not rest or name in _CODED or rest[0] is None or rest[0].startswith("-")
        return [], [], inline
    if at := _launched(name, rest):
        return list(_suffixes(part[at:])), _codes(known), unknown
    if strays(name, known):
        # Words of git are more often names of its own commands.
        return [] if name == "git" else list(_suffixes(part)), _codes(known), False
    if name in _EVALUATE:
        # [ -v 'a[$(rm)]' ] evaluates what is quoted.
        return [], _codes(known), False
    return [], [], name in _FED or (name == "sed" and runs_in_sed(known))


def _launched(name: str, rest: Sequence[str | None]) -> int:
    """Where a launcher's own words end; 0 when it launches nothing."""
    if name == "git":
        bisect = list(rest[:2]) == ["bisect", "run"]
        return 2 if bisect or list(rest[:2]) == ["submodule", "foreach"] else 0
    if name not in _LAUNCHERS:
        return 0
    return next((n for n, text in enumerate(rest, 1) if text in _LAUNCH), 0)


def _suffixes(part: Part) -> Iterator[Part]:
    for n in range(1, len(part)):
        yield part[n:]
        text = part[n].text
        if text is not None and text.startswith("-"):
            # -Srm, --split-string=rm, -exec=rm
            inner = {text[2:], text.partition("=")[2]} - {""}
            yield from ((Word(item), *part[n + 1 :]) for item in inner)


def _codes(texts: Iterable[str]) -> list[str]:
    pieces = (
        piece
        for text in texts
        for piece in (
            text,
            text.partition("=")[2],
            text.rpartition("=")[2].lstrip("!+"),  # alias.x=!rm x, +!rm x
            text[2:] if text.startswith("-") else "",
        )
    )
    return [piece for piece in pieces if re.search(r"[\s;&|<>()$`\\'\"{}]", piece)]


def spread(text: str) -> Part:
    """The words that braces may make of ``text``; more of them rather than fewer."""
    try:
        words = shlex.split(re.sub(r"[{},]", " ", text))
    except ValueError:
        words = re.sub(r"[{},'\"\\]", " ", text).split()
    return tuple(Word(word) for word in words)
