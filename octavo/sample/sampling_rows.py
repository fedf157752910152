"""Sampling state of all request rows, and the arrays of one step made from it.

Numbers every request has lie in arrays over rows and are gathered; lists and masks, which few
requests have, are objects in dicts and cost nothing when there are none.

Runs in: workers. Owns: per-row sampling state. Knows nothing of: schedulers, devices, text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from octavo.ops.step import Int32Array, SamplingArrays, UInt32Array
from octavo.sample.logit_bias import Entries, LogitBias, logit_biases
from octavo.sample.logits_processor import LogitsProcessor, RequestProcessors
from octavo.sample.seed import request_seed
from octavo.sample.seen_tokens import SeenTokens
from octavo.sample.step_hook import StepHook
from octavo.sample.token_mask import allowed_token_mask, num_mask_words
from octavo.sampling_params import SamplingParams

_NO_IDS: Int32Array = np.zeros(0, np.int32)


class TokenHistory(Protocol):
    """What looks back at the tokens a request has generated."""

    def append(self, token_id: int) -> None:
        """Tells that the request has generated `token_id`."""
        ...


class SamplingRows:
    """One entry per request row.

    Args:
        max_requests: number of rows.
        vocab_size: columns of the logits.
        engine_seed: seeds requests that bring no seed.
        processors: plugged in by the operator.
    """

    def __init__(
        self,
        *,
        max_requests: int,
        vocab_size: int,
        engine_seed: int,
        processors: Sequence[LogitsProcessor] = (),
    ) -> None:
        self._vocab_size = vocab_size
        self._num_added = 0  # rows set so far: what is written of older rows is stale
        self._engine_seed = engine_seed
        self._temperature = np.zeros(max_requests, np.float32)
        self._top_p = np.ones(max_requests, np.float32)
        self._min_p = np.zeros(max_requests, np.float32)
        self._top_k = np.zeros(max_requests, np.int32)
        self._seed = np.zeros(max_requests, np.uint64)
        self._num_logprobs = np.full(max_requests, -1, np.int32)
        self._num_prompt_logprobs = np.full(max_requests, -1, np.int32)
        self._repetition_penalty = np.ones(max_requests, np.float32)
        self._presence_penalty = np.zeros(max_requests, np.float32)
        self._frequency_penalty = np.zeros(max_requests, np.float32)
        self._prompt_scoring_rows: set[int] = set()
        self._row_to_seen: dict[int, SeenTokens] = {}
        self._row_to_biases: dict[int, list[LogitBias]] = {}
        self._row_to_mask: dict[int, UInt32Array] = {}
        self._row_to_report_ids: dict[int, Int32Array] = {}
        self._processors = processors
        self._row_to_processors: dict[int, RequestProcessors] = {}

    def add(
        self,
        row: int,
        request_id: str,
        params: SamplingParams,
        *,
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int],
        eos_token_ids: Sequence[int],
    ) -> None:
        """Sets a row to a request that has generated `output_token_ids` so far."""
        self._num_added += 1
        self._temperature[row] = params.temperature
        self._top_p[row] = params.top_p
        self._min_p[row] = params.min_p
        self._top_k[row] = params.top_k if params.top_k < self._vocab_size else 0
        self._seed[row] = request_seed(params.seed, self._engine_seed, request_id)
        self._num_logprobs[row] = self._logprob_count(params.num_logprobs)
        self._num_prompt_logprobs[row] = self._logprob_count(params.prompt_logprobs)
        self._repetition_penalty[row] = params.repetition_penalty
        self._presence_penalty[row] = params.presence_penalty
        self._frequency_penalty[row] = params.frequency_penalty
        if params.prompt_logprobs is not None:
            self._prompt_scoring_rows.add(row)
        if (
            params.repetition_penalty != 1
            or params.presence_penalty != 0
            or params.frequency_penalty != 0
        ):
            self._row_to_seen[row] = SeenTokens(prompt_token_ids, output_token_ids)
        if biases := logit_biases(params, eos_token_ids):
            self._row_to_biases[row] = biases
            for bias in biases:
                for token_id in output_token_ids:
                    bias.append(token_id)
        of_request = [each.new_req_logits_processor(params) for each in self._processors]
        if any(each is not None for each in of_request):
            self._row_to_processors[row] = RequestProcessors(
                [each for each in of_request if each is not None],
                prompt_token_ids,
                output_token_ids,
            )
        if params.logprob_token_ids is not None:
            self._row_to_report_ids[row] = np.array(params.logprob_token_ids, np.int32)
        if params.allowed_token_ids is not None:
            self._row_to_mask[row] = allowed_token_mask(params.allowed_token_ids, self._vocab_size)

    def remove(self, row: int) -> None:
        """Forgets a row's request."""
        self._prompt_scoring_rows.discard(row)
        self._row_to_seen.pop(row, None)
        self._row_to_biases.pop(row, None)
        self._row_to_mask.pop(row, None)
        self._row_to_report_ids.pop(row, None)
        self._row_to_processors.pop(row, None)

    def histories(self, arrays: SamplingArrays, rows: Int32Array) -> dict[int, list[TokenHistory]]:
        """Who must hear of the tokens that a step draws.

        The step keeps the objects themselves: when its tokens are known, a row may have another
        request.

        Args:
            arrays: as `fill` left them.
            rows: [L] request row of each logit row.

        Returns:
            By logit row; usually nothing.
        """
        if not self._row_to_seen and not self._row_to_biases and not self._row_to_processors:
            return {}
        found: dict[int, list[TokenHistory]] = {}
        for index, row in enumerate(self._drawing(arrays, rows)):
            listeners: list[TokenHistory] = [*self._row_to_biases.get(row, ())]
            if row in self._row_to_seen:
                listeners.append(self._row_to_seen[row])
            if row in self._row_to_processors:
                listeners.append(self._row_to_processors[row])
            if listeners:
                found[index] = listeners
        return found

    def wants_prompt_logprobs(self, rows: Int32Array) -> bool:
        """True when any of these rows' requests asked for them."""
        if not self._prompt_scoring_rows:
            return False
        return bool((self._num_prompt_logprobs[rows] >= 0).any())

    def has_prompt_logprobs(self, row: int) -> bool:
        """True when this row's request asked for prompt logprobs."""
        return bool(self._num_prompt_logprobs[row] >= 0)

    def fill(
        self,
        arrays: SamplingArrays,
        rows: Int32Array,
        *,
        output_index: Int32Array,
        targets: Int32Array | None,
        grammar_rows: Sequence[int],
    ) -> int:
        """Writes the arrays of a step.

        Args:
            rows: [L] request row of each logit row.
            output_index: [L] tokens the request has generated before.
            targets: [L] the prompt token whose log-probability is wanted, or -1: draw one. None:
                all are draws.
            grammar_rows: rows that a grammar constrains; `arrays.grammar_rows` says which
                logit rows those are, in the same order.

        Returns:
            The most logprobs any row reports; -1: none reports any.
        """
        count = len(rows)
        arrays.output_index[:count] = output_index
        self._fill_numbers(arrays, rows, targets)
        self._fill_penalties(arrays, rows)
        self._fill_biases(arrays, rows)
        self._fill_masks(arrays, rows, grammar_rows)
        self._fill_report_ids(arrays, rows)
        arrays.logits_hook = self._hook(arrays, rows) if self._row_to_processors else None
        return int(arrays.num_logprobs[:count].max(initial=-1))

    def _fill_numbers(
        self, arrays: SamplingArrays, rows: Int32Array, targets: Int32Array | None
    ) -> None:
        """What every request has. It stays as it is as long as the same requests draw."""
        count = len(rows)
        written_for = (self._num_added, rows.tobytes()) if targets is None else None
        if written_for is not None and written_for == arrays.written_for:
            return
        arrays.written_for = written_for
        # mode="clip" lets numpy write straight into `out`; rows are always in range
        for source, out in (
            (self._temperature, arrays.temperature),
            (self._top_p, arrays.top_p),
            (self._min_p, arrays.min_p),
            (self._top_k, arrays.top_k),
            (self._seed, arrays.seed),
            (self._num_logprobs, arrays.num_logprobs),
        ):
            np.take(source, rows, out=out[:count], mode="clip")
        arrays.state_row[:count] = rows
        if targets is None:
            arrays.target[:count] = -1
        else:
            arrays.target[:count] = targets
            is_prompt = targets >= 0
            arrays.state_row[:count][is_prompt] = -1
            arrays.num_logprobs[:count][is_prompt] = self._num_prompt_logprobs[rows[is_prompt]]

    def _logprob_count(self, asked: int | None) -> int:
        if asked is None:
            return -1
        return self._vocab_size if asked == -1 else asked

    def _drawing(self, arrays: SamplingArrays, rows: Int32Array) -> list[int]:
        """Request row of each logit row, -1 where the logit row only reports a prompt token."""
        drawing: list[int] = np.where(arrays.target[: len(rows)] >= 0, -1, rows).tolist()
        return drawing

    def _fill_penalties(self, arrays: SamplingArrays, rows: Int32Array) -> None:
        arrays.uses_penalties = False
        if not self._row_to_seen:
            return
        seen = [self._row_to_seen.get(row) for row in self._drawing(arrays, rows)]
        if not any(seen):
            return
        count = len(rows)
        arrays.uses_penalties = True
        arrays.repetition_penalty[:count] = self._repetition_penalty[rows]
        arrays.presence_penalty[:count] = self._presence_penalty[rows]
        arrays.frequency_penalty[:count] = self._frequency_penalty[rows]
        _set_offsets(arrays.seen_offsets, [0 if s is None else len(s.ids) for s in seen])
        present = [s for s in seen if s is not None]
        arrays.seen_ids = np.concatenate([s.ids for s in present])
        arrays.seen_counts = np.concatenate([s.counts for s in present])

    def _fill_biases(self, arrays: SamplingArrays, rows: Int32Array) -> None:
        arrays.uses_bias = False
        if not self._row_to_biases:
            return
        entries: list[Entries] = []
        lengths = []
        for row in self._drawing(arrays, rows):
            of_row = [bias.entries() for bias in self._row_to_biases.get(row, ())]
            lengths.append(sum(len(part.ids) for part in of_row))
            entries += of_row
        if not any(lengths):
            return
        arrays.uses_bias = True
        _set_offsets(arrays.bias_offsets, lengths)
        arrays.bias_ids = np.concatenate([part.ids for part in entries])
        arrays.bias_values = np.concatenate([part.values for part in entries])

    def _fill_masks(
        self, arrays: SamplingArrays, rows: Int32Array, grammar_rows: Sequence[int]
    ) -> None:
        arrays.uses_masks = arrays.uses_matchers = False
        arrays.grammar_rows = []
        arrays.num_own_masks = 0
        if not self._row_to_mask and not grammar_rows:
            return
        count, num_masks = len(rows), 0
        arrays.own_mask_row[:count] = -1
        drawing = self._drawing(arrays, rows)
        for index, row in enumerate(drawing) if self._row_to_mask else ():
            allowed = self._row_to_mask.get(row)
            if allowed is None:
                continue
            if num_masks == len(arrays.masks):
                arrays.masks = self._grown(arrays.masks, count)
            arrays.masks[num_masks] = allowed
            arrays.own_mask_row[index] = num_masks
            num_masks += 1
        arrays.mask_row[:count] = arrays.own_mask_row[:count]
        arrays.num_own_masks = num_masks
        arrays.uses_masks = num_masks > 0
        if grammar_rows:
            row_to_index = {row: index for index, row in enumerate(drawing)}
            arrays.grammar_rows = [row_to_index[row] for row in grammar_rows]

    def _fill_report_ids(self, arrays: SamplingArrays, rows: Int32Array) -> None:
        arrays.uses_report_ids = False
        if not self._row_to_report_ids:
            return
        ids = [self._row_to_report_ids.get(row, _NO_IDS) for row in self._drawing(arrays, rows)]
        arrays.uses_report_ids = any(map(len, ids))
        if arrays.uses_report_ids:
            _set_offsets(arrays.report_offsets, [len(part) for part in ids])
            arrays.report_ids = np.concatenate(ids)

    def _hook(self, arrays: SamplingArrays, rows: Int32Array) -> StepHook | None:
        """The processors of the rows that draw."""
        found = {
            index: self._row_to_processors[row]
            for index, row in enumerate(self._drawing(arrays, rows))
            if row in self._row_to_processors
        }
        return StepHook(found) if found else None

    def _grown(self, masks: UInt32Array, num_rows: int) -> UInt32Array:
        """Room for the masks of `num_rows` rows, those written so far kept."""
        grown = np.zeros((num_rows, num_mask_words(self._vocab_size)), np.uint32)
        if len(masks):
            grown[: len(masks)] = masks
        return grown


def _set_offsets(offsets: np.ndarray[tuple[int], np.dtype[np.int64]], lengths: list[int]) -> None:
    """CSR offsets [L+1] from the row lengths [L]."""
    offsets[0] = 0
    np.cumsum(lengths, out=offsets[1 : len(lengths) + 1])
