"""`signoff keys`: create, list and revoke the API keys of accounts."""

from __future__ import annotations

import argparse
import os
import sys

from signoff.domain.timestamp import iso
from signoff.settings import Settings
from signoff.store import bootstrap


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the three verbs."""
    verbs = parser.add_subparsers(dest="verb", required=True)
    create = verbs.add_parser("create", help="make a key; it is shown this once")
    create.add_argument(
        "--account",
        default="default",
        help="its id, or its name (%(default)s): one that no account has makes an account",
    )
    create.add_argument("--name", default="", help="what the key is for")
    listing = verbs.add_parser("list", help="show the keys, without their secrets")
    listing.add_argument("--account", help="of this account only: its id or its name")
    revoke = verbs.add_parser("revoke", help="make a key invalid at once")
    revoke.add_argument("id")


def run(args: argparse.Namespace) -> int:
    """Do one of them; `create` prints the secret alone on stdout, for scripts."""
    redis_url = Settings.load(os.environ).redis_url
    if args.verb == "create":
        made = bootstrap.create_key(redis_url, account=args.account, name=args.name)
        print(
            f"key {made.id} of account {made.account} (id {made.account_id}); keep it, it is not "
            "shown again:",
            file=sys.stderr,
        )
        print(made.secret)
        return 0
    if args.verb == "list":
        _list(redis_url, args.account)
        return 0
    if bootstrap.revoke_key(redis_url, args.id):
        return 0
    print(f"signoff: no active key {args.id}", file=sys.stderr)
    return 1


def _list(redis_url: str, account: str | None) -> None:
    print("id", "account", "prefix", "name", "created", "revoked", "account_id", sep="\t")
    for row in bootstrap.list_keys(redis_url, account=account):
        print(
            row.id,
            row.account,
            row.prefix,
            row.name,
            iso(row.created_at),
            "" if row.revoked_at is None else iso(row.revoked_at),
            row.account_id,
            sep="\t",
        )
