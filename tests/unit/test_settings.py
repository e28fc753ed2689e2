"""The settings: what an empty environment means, and what each malformed value is told."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.domain.error import SettingsError
from signoff.settings import Settings

KEY = base64.urlsafe_b64encode(bytes(range(32))).decode()
OTHER_KEY = base64.urlsafe_b64encode(bytes(range(1, 33))).decode()

NAMES = (
    "SIGNOFF_REDIS_URL",
    "SIGNOFF_BROKER_URL",
    "SIGNOFF_SECRET_KEYS",
    "SIGNOFF_PUBLIC_URL",
    "SIGNOFF_TOOLS",
    "SIGNOFF_AGENTS",
    "SIGNOFF_AGENT_TIMEOUT_S",
    "SIGNOFF_MCP_SERVERS",
    "SIGNOFF_WEBHOOK_ALLOW",
    "SIGNOFF_WEBHOOK_SCHEDULE",
    "SIGNOFF_LEASE_S",
    "SIGNOFF_SWEEP_S",
    "SIGNOFF_SHARDS",
    "SIGNOFF_WORKER_SLOTS",
    "SIGNOFF_SCRIPTED_MODEL",
    "SIGNOFF_SCRIPTED_DELAY_MS",
    "SIGNOFF_ALLOW_VOLATILE_REDIS",
    "SIGNOFF_DEMO_LEDGER",
    "SIGNOFF_DEFAULT_MODEL",
    "SIGNOFF_DEV",
    "OPENAI_BASE_URL",
)


def test_an_empty_environment_gives_the_documented_defaults():
    """Every default of PRODUCT section 8 holds when nothing is set."""
    settings = Settings.load({})
    assert settings.redis_url == "redis://127.0.0.1:6379/0"
    assert settings.broker_url == "redis://127.0.0.1:6379/1"
    assert list(settings.webhook_schedule) == [0, 5, 60, 300, 1800, 7200, 21600, 43200, 86400]
    assert (settings.lease_s, settings.sweep_s, settings.shards) == (30.0, 2.0, 1)
    assert (settings.worker_slots, settings.scripted_delay_ms) == (32, 0)
    assert settings.secret_keys == ()
    assert settings.public_url is None
    assert settings.webhook_allow is None
    assert not settings.scripted_model
    assert not settings.allow_volatile_redis
    assert settings.default_model == ""


def test_blank_values_count_as_unset():
    """A variable that is exported but empty behaves as if it were not there."""
    assert Settings.load(dict.fromkeys(NAMES, "  ")) == Settings.load({"SIGNOFF_WEBHOOK_ALLOW": ""})


@pytest.mark.parametrize(
    ("redis", "broker"),
    [
        ("redis://cache:6380", "redis://cache:6380/1"),
        ("redis://u:p%40w@cache:6380/4", "redis://u:p%40w@cache:6380/5"),
        ("redis://cache:6380/?db=3", "redis://cache:6380/4"),
        ("redis://cache:6380/15", "redis://cache:6380/15"),
        ("redis://cache:6380/40", "redis://cache:6380/40"),
        ("redis://cache/0?socket_timeout=3", "redis://cache/1"),
        ("rediss://cache/0", "rediss://cache/1?ssl_cert_reqs=required"),
        (
            "rediss://cache/0?ssl_cert_reqs=none&ssl_ca_certs=/a/b",
            "rediss://cache/1?ssl_cert_reqs=none&ssl_ca_certs=%2Fa%2Fb",
        ),
        ("unix:///run/store.sock?db=2", "redis+socket:///run/store.sock?virtual_host=3"),
        ("unix://u:p@/run/a%20b.sock", "redis+socket://u:p@/run/a%20b.sock?virtual_host=1"),
    ],
)
def test_the_broker_is_the_next_database_of_the_same_server(redis, broker):
    """Without SIGNOFF_BROKER_URL kombu gets the same server, its own database, and checked TLS."""
    assert Settings.load({"SIGNOFF_REDIS_URL": redis}).broker_url == broker


@pytest.mark.parametrize(
    ("given_url", "broker"),
    [
        ("redis://other:1/0", "redis://other:1/0"),
        ("sentinel://a:26379/0;sentinel://b:26379/0", "sentinel://a:26379/0;sentinel://b:26379/0"),
        ("unix:///run/store.sock?db=2", "redis+socket:///run/store.sock?virtual_host=2"),
    ],
)
def test_a_given_broker_url_is_kept(given_url, broker):
    """An explicit broker stays as it is, except that a unix URL takes the form kombu knows."""
    assert Settings.load({"SIGNOFF_BROKER_URL": given_url}).broker_url == broker


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SIGNOFF_REDIS_URL", "http://cache:6379"),
        ("SIGNOFF_REDIS_URL", "cache:6379"),
        ("SIGNOFF_REDIS_URL", "redis://cache:port/0"),
        ("SIGNOFF_REDIS_URL", "redis://cache:99999/0"),
        ("SIGNOFF_REDIS_URL", "redis://[::1/0"),
        ("SIGNOFF_REDIS_URL", "redis://cache/first"),
        ("SIGNOFF_REDIS_URL", "redis:///0"),
        ("SIGNOFF_REDIS_URL", "unix://run/store.sock"),
        ("SIGNOFF_REDIS_URL", "unix:///"),
        ("SIGNOFF_REDIS_URL", "unix:///run/store.sock?db=x"),
        ("SIGNOFF_BROKER_URL", "amqp://rabbit"),
        ("SIGNOFF_BROKER_URL", "redis"),
        ("SIGNOFF_SECRET_KEYS", "secret"),
        ("SIGNOFF_SECRET_KEYS", f"{KEY},short"),
        ("SIGNOFF_SECRET_KEYS", f"{KEY},{KEY}"),
        ("SIGNOFF_SECRET_KEYS", KEY.replace("A", "+", 1)),
        ("SIGNOFF_SECRET_KEYS", KEY[:-1]),
        ("SIGNOFF_PUBLIC_URL", "signoff.example.com"),
        ("SIGNOFF_PUBLIC_URL", "ftp://signoff.example.com"),
        ("SIGNOFF_PUBLIC_URL", "https://u:p@signoff.example.com"),
        ("SIGNOFF_PUBLIC_URL", "https://signoff.example.com/?a=b"),
        ("SIGNOFF_PUBLIC_URL", "https://signoff.example.com/a b"),
        ("SIGNOFF_TOOLS", "examples/demo_tools.py"),
        ("SIGNOFF_TOOLS", "examples..demo"),
        ("SIGNOFF_TOOLS", "1tools"),
        ("SIGNOFF_AGENTS", "research"),
        ("SIGNOFF_AGENTS", "research=module"),
        ("SIGNOFF_AGENTS", "a b=module:make"),
        ("SIGNOFF_AGENTS", "a=module:make()"),
        ("SIGNOFF_AGENTS", "a=m:make,a=m:other"),
        ("SIGNOFF_AGENT_TIMEOUT_S", "0"),
        ("SIGNOFF_MCP_SERVERS", "files"),
        ("SIGNOFF_MCP_SERVERS", "[]"),
        ("SIGNOFF_MCP_SERVERS", "[" * 5000),
        ("SIGNOFF_WEBHOOK_ALLOW", "10.0.0.0/33"),
        ("SIGNOFF_WEBHOOK_ALLOW", "10.0.0.1/8"),
        ("SIGNOFF_WEBHOOK_ALLOW", "localhost"),
        ("SIGNOFF_WEBHOOK_SCHEDULE", "0,5,soon"),
        ("SIGNOFF_WEBHOOK_SCHEDULE", "0,,5"),
        ("SIGNOFF_WEBHOOK_SCHEDULE", "-1"),
        ("SIGNOFF_WEBHOOK_SCHEDULE", "inf"),
        ("SIGNOFF_WEBHOOK_SCHEDULE", "3000000"),
        ("SIGNOFF_WEBHOOK_SCHEDULE", ",".join(["1"] * 51)),
        ("SIGNOFF_LEASE_S", "0"),
        ("SIGNOFF_LEASE_S", "nan"),
        ("SIGNOFF_LEASE_S", "30s"),
        ("SIGNOFF_SWEEP_S", "1e9"),
        ("SIGNOFF_SHARDS", "0"),
        ("SIGNOFF_SHARDS", "1_0"),
        ("SIGNOFF_SHARDS", "٣"),
        ("SIGNOFF_WORKER_SLOTS", "-4"),
        ("SIGNOFF_SCRIPTED_DELAY_MS", "1.5"),
        ("SIGNOFF_SCRIPTED_MODEL", "2"),
        ("SIGNOFF_ALLOW_VOLATILE_REDIS", "please"),
        ("SIGNOFF_DEV", "maybe"),
        ("SIGNOFF_DEMO_LEDGER", "a\x00b"),
        ("SIGNOFF_DEFAULT_MODEL", "a\nb"),
        ("OPENAI_BASE_URL", "localhost:11434"),
    ],
)
def test_a_malformed_value_is_refused_by_its_name(name, value):
    """Each unusable value raises SettingsError, whose field and text name the variable."""
    with pytest.raises(SettingsError) as caught:
        Settings.load({name: value})
    assert caught.value.code == "invalid_setting"
    assert caught.value.field == name
    assert caught.value.message.startswith(name)


@given(name=st.sampled_from(NAMES), value=st.text(max_size=80))
def test_loading_is_total(name, value):
    """Any text in any variable gives settings or SettingsError, and nothing else."""
    refused = name
    try:
        Settings.load({name: value})
    except SettingsError as error:
        refused = error.field or ""
    assert refused == name


def test_lists_take_blanks_around_their_commas():
    """Lists are written with or without blanks, and keep their order."""
    settings = Settings.load(
        {
            "SIGNOFF_SECRET_KEYS": f" {KEY} , {OTHER_KEY} ",
            "SIGNOFF_TOOLS": "examples.demo_tools, other.mod",
            "SIGNOFF_AGENTS": "a=pkg.mod:make, b-2 = m:Class.make ,",
            "SIGNOFF_WEBHOOK_ALLOW": "10.0.0.0/8, ::1",
            "SIGNOFF_WEBHOOK_SCHEDULE": "0, .5, 2.25",
        }
    )
    assert settings.secret_keys == (KEY, OTHER_KEY)
    assert settings.require_secret_keys() == (KEY, OTHER_KEY)
    assert settings.tools == "examples.demo_tools,other.mod"
    assert settings.agents == {"a": "pkg.mod:make", "b-2": "m:Class.make"}
    assert settings.webhook_allow == "10.0.0.0/8,::1"
    assert settings.webhook_schedule == (0.0, 0.5, 2.25)


def test_no_networks_differs_from_nothing_said_about_networks():
    """Unset leaves the choice to the guard; set but empty allows nothing."""
    assert Settings.load({}).webhook_allow is None
    assert Settings.load({"SIGNOFF_WEBHOOK_ALLOW": ""}).webhook_allow == ""


@pytest.mark.parametrize(
    ("environ", "model"),
    [
        ({"SIGNOFF_SCRIPTED_MODEL": "1"}, "scripted"),
        (
            {"SIGNOFF_SCRIPTED_MODEL": "1", "ANTHROPIC_API_KEY": "k"},
            "anthropic:claude-sonnet-5-5",
        ),
        ({"OPENAI_API_KEY": "k"}, "openai:gpt-6.1-sol"),
        ({"OPENAI_BASE_URL": "http://localhost:11434/v1"}, "openai:gpt-6.1-sol"),
        ({"OPENAI_API_KEY": "k", "SIGNOFF_DEFAULT_MODEL": "openai:mine"}, "openai:mine"),
    ],
)
def test_the_default_model_follows_what_is_configured(environ, model):
    """The scripted model is the default only while no provider is configured."""
    settings = Settings.load(environ)
    assert settings.default_model == model
    assert settings.has_provider == (model != "scripted")


def test_secrets_stay_out_of_the_representation():
    """Logging the settings shows neither keys nor the passwords in URLs."""
    shown = repr(
        Settings.load(
            {
                "SIGNOFF_SECRET_KEYS": KEY,
                "SIGNOFF_REDIS_URL": "redis://:hunter2@cache/0",
                "ANTHROPIC_API_KEY": "sk-ant",
            }
        )
    )
    for secret in (KEY, "hunter2", "sk-ant"):
        assert secret not in shown


def test_a_refused_secret_is_not_repeated():
    """The message about a bad secret key does not contain it."""
    with pytest.raises(SettingsError) as caught:
        Settings.load({"SIGNOFF_SECRET_KEYS": "almost-a-secret"})
    assert "almost" not in str(caught.value)


def test_a_process_that_needs_secrets_says_so():
    """Without SIGNOFF_SECRET_KEYS the demand for them names the variable."""
    with pytest.raises(SettingsError) as caught:
        Settings.load({}).require_secret_keys()
    assert caught.value.field == "SIGNOFF_SECRET_KEYS"
