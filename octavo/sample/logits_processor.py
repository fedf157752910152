"""Logits processors: code of the operator's that changes the logits of single requests.

    class Favour(LogitsProcessor):
        def new_req_logits_processor(self, params):
            token_id = (params.extra_args or {}).get("favoured_token")
            if token_id is None:
                return None

            def process(output_token_ids, logits):
                logits[token_id] += 5
                return logits

            return process

Named by `--logits-processors module:Class` or given to `LLM(logits_processors=[Class])`. The shape
is that of vLLM's `AdapterLogitsProcessor`, with numpy arrays in place of tensors.

Runs in: workers; the front end calls `validate_params`. Owns: the interface and how it is loaded.
Knows nothing of: batches, devices, text.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from octavo.config.engine import ModelConfig
from octavo.errors import ConfigError
from octavo.ops.step import Float32Array
from octavo.sampling_params import SamplingParams
from octavo.wording import first_line

#: (output_token_ids, logits) or (prompt_token_ids, output_token_ids, logits); logits [vocab_size]
#: f32 may be changed in place; what is returned replaces them, None keeps them
RequestLogitsProcessor = Callable[..., Float32Array | None]


class LogitsProcessor:
    """Made once per worker.

    Args:
        config: the model.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.config = config

    @classmethod
    def validate_params(cls, params: SamplingParams) -> None:
        """Looks at a request before it is queued.

        Raises:
            ValueError: `params.extra_args` cannot be served; the client gets the message with 400.
        """

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        """What is called for each token of a new request; None: nothing, at no cost."""
        raise NotImplementedError


class RequestProcessors:
    """Those of one request, and the tokens they are shown.

    Args:
        processors: in the order in which they are called.
        prompt_token_ids, output_token_ids: so far; the latter grow with `append`.
    """

    def __init__(
        self,
        processors: Sequence[RequestLogitsProcessor],
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
    ) -> None:
        self._prompt_token_ids = list(prompt_token_ids)
        self._output_token_ids = list(output_token_ids)
        self._processors = [(each, _takes_prompt(each)) for each in processors]

    def append(self, token_id: int) -> None:
        """Tells that the request has generated `token_id`."""
        self._output_token_ids.append(token_id)

    def apply(self, logits: Float32Array) -> None:
        """Changes the logits [vocab_size] of the next token in place.

        Raises:
            Exception: a processor failed, or returned something else than logits.
        """
        for processor, takes_prompt in self._processors:
            if takes_prompt:
                result = processor(self._prompt_token_ids, self._output_token_ids, logits)
            else:
                result = processor(self._output_token_ids, logits)
            if result is not None and result is not logits:
                logits[:] = _checked(result, logits)


def load_logits_processors(names: Sequence[str]) -> list[type[LogitsProcessor]]:
    """The classes of `module:Class` names.

    Raises:
        ConfigError: one cannot be imported or is something else.
    """
    return [_load(name) for name in names]


def processor_name(processor: str | type) -> str:
    """`module:Class` of a processor given by name or as a class."""
    if isinstance(processor, str):
        return processor
    name = f"{processor.__module__}:{processor.__qualname__}"
    if _load(name) is not processor:
        raise ConfigError(f"logits_processors: {name} names another class than the given one")
    return name


def _load(name: str) -> type[LogitsProcessor]:
    module_name, separator, path = name.partition(":")
    if not separator or not path:
        raise ConfigError(f"--logits-processors {name}: must be module:Class")
    try:
        found: object = importlib.import_module(module_name)
        for attribute in path.split("."):
            found = getattr(found, attribute)
    except Exception as error:  # a foreign module may raise anything
        raise ConfigError(
            f"--logits-processors {name} cannot be imported ({first_line(error)}); is it in "
            "PYTHONPATH?"
        ) from error
    if not isinstance(found, type) or not issubclass(found, LogitsProcessor):
        raise ConfigError(
            f"--logits-processors {name}: must be a class derived from "
            "octavo.sample.logits_processor.LogitsProcessor"
        )
    return found


def _checked(result: object, logits: Float32Array) -> npt.NDArray[np.generic]:
    """What a processor returned; numpy would spread a single number over all tokens, and drop the
    imaginary part of a complex one."""
    found = np.asarray(result)
    if found.shape != logits.shape:
        raise ValueError(f"it returned shape {found.shape}, must be {logits.shape}")
    if found.dtype.kind not in "fiu":
        raise TypeError(f"it returned {found.dtype} values, must be real numbers")
    return found


def _takes_prompt(processor: RequestLogitsProcessor) -> bool:
    return len(inspect.signature(processor).parameters) == 3
