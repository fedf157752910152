"""`LLM`: the engine in your own process, for batches.

    with LLM("model.gguf") as llm:
        for output in llm.generate(["The capital of France is"], SamplingParams(max_tokens=8)):
            print(output.outputs[0].text)

No server, no sockets, no child process. Method names and arguments are vLLM's.

Neighbours: `octavo/launch/offline.py` (makes the engine), `octavo/frontend/offline_engine.py` (runs
it).
Runs in: the user's process. Owns: the engine until `close`.
Knows nothing of: scheduling, kernels, HTTP.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import msgspec

from octavo.api.openai.chat_prompt import ChatPrompt
from octavo.config.args import EngineArgs
from octavo.errors import InvalidParameter
from octavo.frontend.offline_engine import OfflineEngine
from octavo.frontend.prompt import Prompt, TextPrompt, TokensPrompt
from octavo.messages.profile import Profile
from octavo.outputs import RequestOutput
from octavo.sampling_params import BeamSearchParams, SamplingParams
from octavo.tokenizer.chat_template import ChatTemplate

if TYPE_CHECKING:
    from octavo.tokenizer.tokenizer import Tokenizer

#: one prompt: a text, token ids, one of the prompt types, or vLLM's dict form
#: (`{"prompt": text}` or `{"prompt_token_ids": ids}`, with `"cache_salt"` if wanted)
PromptLike = str | Sequence[int] | Prompt | Mapping[str, Any]
Message = Mapping[str, Any]


class LLM:
    """A model that generates for batches of prompts, in this process.

    Args:
        model: GGUF file, folder, or `org/repo`; None: the embedded default model.
        engine_args: options of the engine with their names on the command line
            (`max_model_len=4096`, `dtype="float32"`, ...). `logits_processors` may hold classes.

    Raises:
        ConfigError: an option is unknown or does not fit.
        StartupError: the model cannot be loaded.
    """

    def __init__(self, model: str | None = None, **engine_args: Any) -> None:
        if engine_args.get("logits_processors"):
            from octavo.sample.logits_processor import processor_name  # rarely asked for

            named = [processor_name(each) for each in engine_args["logits_processors"]]
            engine_args["logits_processors"] = named
        self._open(EngineArgs(model=model, **engine_args))

    @classmethod
    def of_args(cls, args: EngineArgs) -> Self:
        """An LLM with the options of a command line.

        Raises:
            ConfigError: an option does not fit.
            StartupError: the model cannot be loaded.
        """
        llm = cls.__new__(cls)
        llm._open(args)
        return llm

    @classmethod
    def of_engine(cls, engine: OfflineEngine, template: ChatTemplate | None) -> Self:
        """An LLM over an engine that exists; it is closed with this object.

        Args:
            template: the model's chat template.
        """
        llm = cls.__new__(cls)
        llm._take(engine, template)
        return llm

    def _open(self, args: EngineArgs) -> None:
        # here, so that `from octavo import LLM` is cheap: it imports the whole engine
        from octavo.launch.offline import build_in_process

        engine, template = build_in_process(args)
        self._take(engine, template)

    def _take(self, engine: OfflineEngine, template: ChatTemplate | None) -> None:
        self._engine = engine
        special_tokens = {} if engine.tokenizer is None else engine.tokenizer.special_tokens
        self._chat_prompt = ChatPrompt(
            template,
            make_template=lambda source: ChatTemplate(source, special_tokens),
            content_format="auto",
            trust_request_template=True,
            default_kwargs={},
        )
        # also where nobody calls close: with this object's end, at the latest with the program's
        self._close = weakref.finalize(self, engine.close)

    # generating

    def generate(
        self,
        prompts: PromptLike | Sequence[PromptLike],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Completes prompts.

        Args:
            prompts: one or many; see `PromptLike`.
            sampling_params: for all, or one for each; None: the model's defaults.
            use_tqdm: show progress if stderr is a terminal.
            priority: one for each prompt, lower first (`scheduling_policy="priority"`).

        Returns:
            The outputs in order of the prompts.

        Raises:
            RequestError: a prompt or a parameter cannot be served; nothing was computed.
            EngineError: the engine failed.
        """
        return self._run(_prompt_list(prompts), sampling_params, use_tqdm, priority)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        chat_template: str | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answers conversations.

        Args:
            messages: one conversation (a list of messages) or a list of them.
            sampling_params: for all, or one for each; None: the model's defaults.
            use_tqdm: show progress if stderr is a terminal.
            chat_template: used instead of the model's.
            add_generation_prompt: end the prompt with the header of the answer.
            continue_final_message: let the model go on with the last message.
            tools: JSON schemas of functions, for the template.
            chat_template_kwargs: more variables for the template.

        Returns:
            The outputs in order of the conversations; `prompt` is the rendered text.

        Raises:
            RequestError: as `generate`; also if there is no chat template, or it refuses the
                messages.
            EngineError: the engine failed.
        """
        prompts: list[Prompt] = [
            TextPrompt(
                self._chat_prompt.render(
                    _Chat(
                        messages=[dict(message) for message in conversation],
                        tools=None if tools is None else [dict(tool) for tool in tools],
                        chat_template=chat_template,
                        add_generation_prompt=add_generation_prompt,
                        continue_final_message=continue_final_message,
                        chat_template_kwargs=dict(chat_template_kwargs or {}),
                    )
                ),
                add_special_tokens=False,
            )
            for conversation in _conversations(messages)
        ]
        return self._run(prompts, sampling_params, use_tqdm, None)

    def beam_search(
        self, prompts: PromptLike | Sequence[PromptLike], params: BeamSearchParams
    ) -> list[RequestOutput]:
        """The `params.beam_width` best outputs of each prompt, best first.

        Needs `max_logprobs` of at least twice the width.

        Raises:
            RequestError: a prompt or a parameter cannot be served.
            EngineError: the engine failed.
        """
        return self._engine.beam_search(_prompt_list(prompts), params)

    # facts

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises:
            InvalidParameter: there is none (`skip_tokenizer_init=True`).
        """
        if self._engine.tokenizer is None:
            raise InvalidParameter("This LLM was made with skip_tokenizer_init=True.")
        return self._engine.tokenizer

    @property
    def max_model_len(self) -> int:
        """The window: most tokens of a prompt and its output together."""
        return self._engine.max_model_len

    @property
    def vocab_size(self) -> int:
        """Columns of the logits; token ids are below it."""
        return self._engine.config.model.vocab_size

    def get_default_sampling_params(self) -> SamplingParams:
        """What is used where no sampling parameters are given: the model's
        `generation_config.json`."""
        defaults: dict[str, Any] = self._engine.config.model.default_sampling_params
        return SamplingParams(**defaults)

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forgets cached prefixes; False while blocks are in use.

        Args:
            reset_running_requests: requests that run lose their blocks and compute them again.
        """
        return self._engine.reset_prefix_cache(preempt_running=reset_running_requests)

    def start_profile(self) -> None:
        """Clocks every operation until `stop_profile`.

        Raises:
            EngineError: the device has no clocks.
        """
        self._engine.start_profile()

    def stop_profile(self) -> Profile:
        """The time of each kind of operation, and what the machine can do at most."""
        return self._engine.stop_profile()

    # end

    def close(self) -> None:
        """Frees the model's memory and threads. Idempotent."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # inside

    def _run(
        self,
        prompts: list[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        use_tqdm: bool,
        priority: Sequence[int] | None,
    ) -> list[RequestOutput]:
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        if isinstance(sampling_params, SamplingParams):
            params: Sequence[SamplingParams] = [sampling_params] * len(prompts)
        else:
            params = sampling_params
        _check_length("sampling_params", params, prompts)
        if priority is not None:
            _check_length("priority", priority, prompts)
        if not (use_tqdm and sys.stderr.isatty()):
            return self._engine.run(prompts, params, priorities=priority)
        with _Progress(len(prompts)) as progress:
            return self._engine.run(
                prompts, params, priorities=priority, on_finished=progress.advance
            )


class _Chat(msgspec.Struct):
    """One conversation as `ChatPrompt` reads it."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    chat_template: str | None
    add_generation_prompt: bool
    continue_final_message: bool
    chat_template_kwargs: dict[str, Any] | None
    documents: list[dict[str, Any]] | None = None
    add_special_tokens: bool = False


class _Progress:
    """A bar on stderr with the speed so far."""

    def __init__(self, num_prompts: int) -> None:
        from tqdm import tqdm  # for terminals only

        self._bar = tqdm(
            total=num_prompts, desc="Processed prompts", dynamic_ncols=True, unit="prompt"
        )
        self._num_input = 0
        self._num_output = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.close()

    def advance(self, output: RequestOutput) -> None:
        """One prompt is done."""
        self._num_input += len(output.prompt_token_ids)
        self._num_output += sum(len(one.token_ids) for one in output.outputs)
        elapsed_s = max(self._bar.format_dict["elapsed"], 1e-9)
        self._bar.set_postfix_str(
            f"est. speed input: {self._num_input / elapsed_s:.2f} toks/s, "
            f"output: {self._num_output / elapsed_s:.2f} toks/s",
            refresh=False,
        )
        self._bar.update()


def _prompt_list(prompts: PromptLike | Sequence[PromptLike]) -> list[Prompt]:
    """One prompt or many, as the engine's prompt types."""
    if isinstance(prompts, str | TextPrompt | TokensPrompt | Mapping):
        return [_prompt(prompts)]
    items: list[Any] = list(prompts)
    if items and all(isinstance(item, int) for item in items):
        return [TokensPrompt(items)]
    return [_prompt(item) for item in items]


def _prompt(prompt: PromptLike) -> Prompt:
    if isinstance(prompt, TextPrompt | TokensPrompt):
        return prompt
    if isinstance(prompt, str):
        return TextPrompt(prompt)
    if isinstance(prompt, Mapping):
        salt = prompt.get("cache_salt")
        if "prompt_token_ids" in prompt:
            return TokensPrompt(prompt["prompt_token_ids"], prompt.get("prompt"), salt)
        if isinstance(prompt.get("prompt"), str):
            return TextPrompt(prompt["prompt"], cache_salt=salt)
        raise InvalidParameter(
            'A prompt given as a dict needs "prompt" (a text) or "prompt_token_ids".',
            param="prompts",
        )
    if isinstance(prompt, list | tuple):
        return TokensPrompt(prompt)
    raise InvalidParameter(
        f"A prompt must be a text or a list of token ids, got {type(prompt).__name__}.",
        param="prompts",
    )


def _conversations(
    messages: Sequence[Message] | Sequence[Sequence[Message]],
) -> list[Sequence[Message]]:
    conversations: list[Any] = list(messages)
    if not conversations or isinstance(conversations[0], Mapping):
        return [conversations]
    return conversations


def _check_length(name: str, given: Sequence[object], prompts: list[Prompt]) -> None:
    if len(given) != len(prompts):
        raise InvalidParameter(
            f"{name} has {len(given)} entries for {len(prompts)} prompts; give one for each.",
            param=name,
        )
