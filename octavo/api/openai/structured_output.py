"""What the output of a request must be: `response_format` and `structured_outputs` as one.

Neighbours: `octavo/api/openai/sampling.py` (caller). Runs in: API process, event loop.
Owns: the meaning of `response_format`. Knows nothing of: schemas, the engine.
"""

from __future__ import annotations

import msgspec

from octavo.api.openai.protocol import ResponseFormat, SamplingFields
from octavo.errors import InvalidParameter
from octavo.sampling_params import StructuredOutputsParams

FIELD = "response_format"


def structured_outputs(request: SamplingFields) -> StructuredOutputsParams | None:
    """The one constraint of a request, None if there is none.

    Raises:
        InvalidParameter: both fields constrain, or `response_format` lacks something.
    """
    fields = request.structured_outputs
    given = None if fields is None else StructuredOutputsParams(**msgspec.structs.asdict(fields))
    asked = None if request.response_format is None else _of_format(request.response_format)
    if given is not None and asked is not None:
        raise InvalidParameter(
            "You can only use one kind of structured outputs constraint but multiple are "
            f"specified: {FIELD}, structured_outputs. (parameter={FIELD})",
            param=FIELD,
        )
    return given or asked


def _of_format(asked: ResponseFormat) -> StructuredOutputsParams | None:
    if asked.type == "text":
        return None
    if asked.type == "json_object":
        return StructuredOutputsParams(json_object=True, origin=FIELD)
    if asked.type == "structural_tag":
        tag: dict[str, object] = {"structures": asked.structures, "triggers": asked.triggers}
        if asked.format is not None:
            tag = {"format": asked.format}
        return StructuredOutputsParams(structural_tag=tag, origin=FIELD)
    if asked.json_schema is None:
        raise InvalidParameter(
            f"{FIELD}.json_schema is required with type json_schema: "
            '{"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}} '
            f"(parameter={FIELD})",
            param=FIELD,
        )
    if asked.json_schema.schema is None:
        raise InvalidParameter(
            f"{FIELD}.json_schema.schema is required: the JSON schema itself. (parameter={FIELD})",
            param=FIELD,
        )
    return StructuredOutputsParams(
        json=asked.json_schema.schema, origin=f"{FIELD}.json_schema.schema"
    )
