"""Which URLs and addresses may be called: the tables of the threat model, row by row."""

import contextlib
import time
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.domain.error import SettingsError
from webhooks.address import blocked_as
from webhooks.guard import (
    AddressRefusedError,
    Policy,
    UrlRefusedError,
    check_address,
    check_addresses,
    check_url,
)
from webhooks.url import parse


def words(text):
    return text.split()


PRODUCTION = Policy()
DEV = Policy.load(None, dev=True)
INSIDE = Policy.load("10.1.0.0/16, fd00:1::/48")

DENIED = words("""
0.0.0.0 0.0.0.1 0.255.255.255 10.0.0.0 10.0.0.1 10.255.255.255 100.64.0.0 100.64.0.1
100.100.100.200 100.127.255.255 127.0.0.0 127.0.0.1 127.1.2.3 127.255.255.255 168.63.129.16
169.254.0.0 169.254.169.254 169.254.170.2 169.254.255.255 172.16.0.0 172.16.0.1 172.31.255.255
192.0.0.0 192.0.0.8 192.0.0.192 192.0.0.255 192.0.2.1 192.88.99.1 192.168.0.0 192.168.0.1
192.168.255.255 198.18.0.0 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1
239.255.255.255 240.0.0.1 255.255.255.254 255.255.255.255
:: ::1 ::2 ::127.0.0.1 ::8.8.8.8 ::ffff:0.0.0.0 ::ffff:10.0.0.1 ::ffff:127.0.0.1
::ffff:169.254.169.254 ::ffff:192.168.0.1 ::ffff:168.63.129.16 ::ffff:0:127.0.0.1
::ffff:0:8.8.8.8 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::a00:1 64:ff9b:1::1
64:ff9b:1::808:808 64:ff9b:2::1 100::1 100:0:0:1::1 200::1 400::1 1000::1 1fff::1
2001::1 2001:0:7f00:1::1 2001:1::1 2001:2::1 2001:10::1 2001:20::1 2001:1ff:ffff::1 2001:db8::1
2001:db8:ffff::1 2002:7f00:1:: 2002:a9fe:a9fe::1 2002:808:808::1 3fff::1 3fff:fff::1 4000::1
5f00::1 8000::1 fc00::1 fd00::1 fd00:ec2::254 fd20:ce::254 fdff:ffff::1 fe00::1 fe80::1
fe80::5efe:808:808 febf::1 fec0::1 feff::1 ff00::1 ff02::1 ffff::1
2606:4700::5efe:7f00:1 2606:4700::200:5efe:a00:1
""")

ALLOWED = words("""
1.0.0.0 1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.1 126.255.255.255
128.0.0.1 168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.1 172.15.255.255 172.32.0.1
191.255.255.255 192.0.1.1 192.0.3.1 192.88.98.1 192.167.255.255 192.169.0.1 198.17.255.255
198.20.0.1 198.51.101.1 203.0.112.1 203.0.114.1 223.255.255.255 ::ffff:8.8.8.8
::ffff:172.32.0.1 64:ff9b::808:808 2000::1 2001:200::1 2001:4860:4860::8888 2001:db7::1
2001:db9::1 2003::1 2606:4700:4700::1111 2606:4700::5efe:808:808 2a00:1450::1 3ffe:ffff::1
3fff:1000::1
""")


def spelled(address):
    return f"[{address}]" if ":" in address else address


def refusal(url, policy=PRODUCTION):
    with pytest.raises(UrlRefusedError) as caught:
        check_url(url, policy)
    assert (caught.value.code, caught.value.field) == ("invalid_url", "url")
    return caught.value.reason


class TestAddresses:
    @pytest.mark.parametrize("address", DENIED)
    def test_addresses_that_are_not_public_are_refused(self, address):
        """S002: as a literal at registration and as an answer at the dial, for both schemes."""
        assert blocked_as(ip_address(address)) is not None
        assert refusal(f"https://{spelled(address)}/hook") == "blocked_address"
        assert refusal(f"http://{spelled(address)}/hook") == "blocked_address"
        with pytest.raises(AddressRefusedError) as caught:
            check_address(ip_address(address), PRODUCTION, scheme="https")
        assert caught.value.code == "blocked_address"

    @pytest.mark.parametrize("address", ALLOWED)
    def test_neighbours_of_refused_ranges_are_public(self, address):
        """S003: no range is cut too wide."""
        target = check_url(f"https://{spelled(address)}:8443/hook", PRODUCTION)
        assert target.literal == ip_address(address)
        check_address(ip_address(address), PRODUCTION, scheme="https")

    def test_a_zone_is_never_public(self):
        """An answer with an interface name is link-local by nature."""
        assert blocked_as(IPv6Address("fe80::1%eth0")) == "link_local"

    @given(number=st.integers(0, 2**32 - 1))
    def test_an_embedded_address_is_never_more_public_than_itself(self, number):
        """Mapped, NAT64 and ISATAP spellings share the verdict of what they carry."""
        inner = IPv4Address(number)
        for outer in (0xFFFF << 32, 0x64FF9B << 96, (0x2606 << 112) | (0x5EFE << 32)):
            assert blocked_as(IPv6Address(outer | number)) == blocked_as(inner)

    @given(number=st.integers(0, 2**128 - 1))
    def test_the_table_answers_for_every_address(self, number):
        """Total, and outside the global unicast range only embedded addresses pass."""
        address = IPv6Address(number)
        if blocked_as(address) is None and number >> 125 != 1:
            assert number >> 32 in (0xFFFF, 0x64FF9B << 64)

    def test_plain_http_to_a_public_address_is_refused(self):
        """S032: only a network that the operator allows may be called without TLS."""
        assert refusal("http://8.8.8.8/") == "https_required"
        with pytest.raises(AddressRefusedError) as caught:
            check_address(ip_address("8.8.8.8"), DEV, scheme="http")
        assert caught.value.reason == "https_required"

    def test_one_forbidden_answer_refuses_the_name(self):
        """S018: in either order; which answer is tried first must not matter."""
        mixed = [ip_address("8.8.8.8"), ip_address("10.0.0.1")]
        for answers in (mixed, mixed[::-1]):
            with pytest.raises(AddressRefusedError):
                check_addresses(answers, PRODUCTION, scheme="https")
        check_addresses(mixed[:1], PRODUCTION, scheme="https")


class TestUrls:
    @pytest.mark.parametrize(
        "url",
        [
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0x7f000001/",
            "http://017700000001/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://127.0.1/",
            "http://0/",
            "http://127.0.0.01/",
            "http://127.0.0.0x1/",
            "http://127.0.0.1.1/",
            "http://256.0.0.1/",
            "http://1.2.3/",
            "http://example.1/",
            "http://example.0x/",
        ],
    )
    def test_numbers_that_are_not_dotted_addresses_are_refused(self, url):
        """S004: also where loopback is allowed, since resolvers disagree on what they mean."""
        for policy in (PRODUCTION, DEV):
            assert refusal(url, policy) == "ip_spelling"

    @pytest.mark.parametrize(
        "url",
        [
            "http://127\u30020\u30020\u30021/",
            "http://127\uff0e0\uff0e0\uff0e1/",
            "http://\uff11\uff12\uff17.0.0.1/",
            "https://b\u00fccher.example/",
            "https://example.com/\u2013",
            "https://exam\u00adple.com/",
        ],
    )
    def test_characters_outside_ascii_are_refused(self, url):
        """S005: names arrive as punycode, so that nothing downstream folds them into digits."""
        assert refusal(url, DEV) == "character"

    @pytest.mark.parametrize(
        "host",
        words(
            "localhost LOCALHOST x.localhost metadata.google.internal redis metadata printer.local "
            "x.svc.cluster.local db.internal box.lan router.home.arpa receiver.default.svc"
        ),
    )
    def test_names_of_the_inside_are_refused(self, host):
        """S006: a name that only our own network answers is never a tenant's endpoint."""
        assert refusal(f"https://{host}/") == "local_name"

    @pytest.mark.parametrize("host", ["localhost.", "example.com.", ".example.com", "a..b", ""])
    def test_empty_labels_are_refused(self, host):
        """S006: a trailing dot is a second spelling of a name."""
        assert refusal(f"https://{host}/", DEV) == "host"

    @pytest.mark.parametrize(
        ("url", "reason"),
        [
            ("http://user:pass@example.com/", "userinfo"),
            ("https://@example.com/", "userinfo"),
            ("http://example.com@127.0.0.1/", "userinfo"),
            ("http://127.0.0.1\\@example.com/", "character"),
            ("https://example.com#@127.0.0.1/", "fragment"),
            ("https://example.com/a#b", "fragment"),
            ("https://example.com/?a#", "fragment"),
        ],
    )
    def test_what_hides_the_real_host_is_refused(self, url, reason):
        """S007, S008: no credentials, no fragments, no backslashes."""
        assert refusal(url, DEV) == reason

    @pytest.mark.parametrize("character", list('\t\n\r \0\x7f\x0b\x1f\u00a0\u2028"<>^`{|}'))
    @pytest.mark.parametrize("place", range(4))
    def test_blanks_and_controls_are_refused_anywhere(self, character, place):
        """S009: in front, in the host, in the path and at the end."""
        parts = ["https://exam", "ple.com/a", "b?c"]
        parts.insert(place, character)
        assert refusal("".join(parts)) == "character"

    @pytest.mark.parametrize(
        "url",
        [
            "file:///etc/passwd",
            "gopher://example.com/",
            "dict://example.com/",
            "ftp://example.com/",
            "unix:/run/x.sock",
            "javascript:alert(1)",
            "data:text/plain,x",
            "//example.com/",
            "example.com/",
            "/path",
            "",
            "https:/example.com/",
            "https:example.com",
            "httpss://example.com/",
            "xhttps://example.com/",
        ],
    )
    def test_other_schemes_are_refused(self, url):
        """S010: https, and http where a network is allowed; nothing else and not nothing."""
        assert refusal(url, DEV) == "scheme"

    @pytest.mark.parametrize(
        "port", ["0", "65536", "99999", "-1", "80:443", "+80", "080", "", "1e3", "80.", "443443"]
    )
    def test_odd_ports_are_refused(self, port):
        """S011: plain digits from 1 to 65535."""
        assert refusal(f"https://example.com:{port}/") == "port"
        assert refusal(f"https://[2606:4700::1]:{port}/") == "port"

    def test_a_digit_of_another_script_is_no_digit(self):
        """S011: int() would take it."""
        assert refusal("https://example.com:8\u0660/") == "character"

    @pytest.mark.parametrize(
        "host",
        [
            "xn--",
            "xn--a.com-",
            "xn--a-.com",
            "xn--0000000000000000",
            "a" * 64 + ".com",
            "a." * 150 + "com",
            "-a.com",
            "a-.com",
            "a.com-",
            "exa%6dple.com",
            "exa!mple.com",
            "[example.com]",
            "[1.2.3.4]",
            "[]",
            "[::1",
            "::1",
            "[::1]]",
            "[::1%25lo]",
            "[fe80::1%eth0]",
        ],
    )
    def test_malformed_hosts_are_refused(self, host):
        """S012, S013: bad labels, bad punycode, bad brackets, zone ids."""
        assert refusal(f"https://{host}/", DEV) in {"host", "port", "escape"}

    def test_a_huge_url_is_refused_at_once(self):
        """S012: length is looked at before anything else."""
        started = time.perf_counter()
        assert refusal("https://example.com/" + "a" * 70_000) == "too_long"
        assert refusal("https://" + "xn--" * 500 + "/") == "host"
        assert time.perf_counter() - started < 0.1

    @pytest.mark.parametrize("url", [None, 1, b"https://example.com/", ["https://example.com/"]])
    def test_a_url_is_text(self, url):
        """Anything else is a refusal, not a crash."""
        assert refusal(url) == "not_text"

    @pytest.mark.parametrize(
        ("url", "host", "port", "path_qs"),
        [
            ("https://hooks.example.com/a/b?c=d&e=%2F", "hooks.example.com", 443, "/a/b?c=d&e=%2F"),
            ("HTTPS://Hooks.Example.COM", "hooks.example.com", 443, "/"),
            ("https://example.com:8443?x", "example.com", 8443, "/?x"),
            ("https://example.com/?a@b:c", "example.com", 443, "/?a@b:c"),
            ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", 443, "/"),
            ("https://a_b.example.com/../x//y", "a_b.example.com", 443, "/../x//y"),
            ("https://[2606:4700:0:0::1111]:443/", "2606:4700::1111", 443, "/"),
            ("https://1.1.1.1:65535/", "1.1.1.1", 65535, "/"),
            ("https://r3---sn-x.example.com/", "r3---sn-x.example.com", 443, "/"),
        ],
    )
    def test_ordinary_urls_are_accepted(self, url, host, port, path_qs):
        """Every part comes back as it will be dialled and sent."""
        target = check_url(url, PRODUCTION)
        assert (target.host, target.port, target.path_qs) == (host, port, path_qs)
        assert check_url(target.url, PRODUCTION) == target

    @given(url=st.one_of(st.text(), st.from_regex(r"https?://[!-~]{0,40}", fullmatch=True)))
    def test_the_parser_is_total_and_settles_on_one_spelling(self, url):
        """Any text is refused with our error, or has a spelling that parses to itself."""
        with contextlib.suppress(UrlRefusedError):
            target = parse(url)
            assert parse(target.url) == target
            assert target.url.isascii()


class TestPolicy:
    def test_unset_is_loopback_in_dev_only(self):
        """Nobody has to set anything to try it out, and production starts closed."""
        assert Policy.load(None).allow == ()
        assert check_url("http://127.0.0.1:9000/x", DEV).port == 9000
        assert check_url("http://[::1]:9000/x", DEV).host == "::1"
        assert check_url("http://localhost:9000/x", DEV).literal is None
        assert refusal("http://10.0.0.1/", DEV) == "blocked_address"

    @pytest.mark.parametrize("raw", ["", "  ", ",", " , "])
    def test_set_but_empty_is_nothing_in_dev_as_well(self, raw):
        """An operator can close loopback."""
        policy = Policy.load(raw, dev=True)
        assert policy.allow == ()
        assert refusal("http://127.0.0.1/", policy) == "blocked_address"
        assert refusal("http://localhost/", policy) == "local_name"
        assert refusal("http://example.com/", policy) == "https_required"

    def test_a_list_is_exactly_those_networks(self):
        """Addresses without a length count as one address."""
        policy = Policy.load("10.1.0.0/16 ,192.168.7.7, fd00:1::/48")
        for host in ("10.1.255.1", "192.168.7.7", "[fd00:1::9]"):
            for scheme in ("http", "https"):
                check_url(f"{scheme}://{host}/", policy)
        for host in ("10.2.0.1", "192.168.7.8", "[fd00:2::9]", "127.0.0.1"):
            assert refusal(f"https://{host}/", policy) == "blocked_address"

    @pytest.mark.parametrize(
        "raw", ["10.0.0.1/8", "10.0.0.0/33", "example.com", "127.0.0.1:9000", "fe80::1%lo/64", "*"]
    )
    def test_a_malformed_list_is_a_clear_error(self, raw):
        """The process does not start on a list it does not understand."""
        with pytest.raises(SettingsError) as caught:
            Policy.load(f"127.0.0.0/8,{raw}")
        assert caught.value.field == "SIGNOFF_WEBHOOK_ALLOW"
        assert raw in caught.value.message

    @pytest.mark.parametrize(
        "address", ["::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1"]
    )
    def test_wrapping_an_allowed_address_does_not_allow_it(self, address):
        """The list names addresses literally; odd forms stay odd."""
        assert refusal(f"http://[{address}]/", DEV) == "blocked_address"

    def test_local_names_need_an_allowed_network_to_be_in(self):
        """Containers call each other by name; with only loopback allowed there is no use for it."""
        assert check_url("http://receiver:9000/", INSIDE).host == "receiver"
        assert check_url("http://receiver.default.svc.cluster.local/", INSIDE).port == 80
        assert refusal("http://receiver:9000/", DEV) == "local_name"
        assert refusal("http://localhost/", INSIDE) == "local_name"
        assert refusal("http://x.localhost/", DEV) == "local_name"

    def test_everything_can_be_allowed(self):
        """Isolated test networks exist; loopback is part of everything."""
        policy = Policy.load("0.0.0.0/0,::/0")
        check_url("http://localhost/", policy)
        check_url("http://169.254.169.254/", policy)
