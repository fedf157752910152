"""The served names: `GET /v1/models`, and the check that a request names one of them.

Runs in: API process. Owns: the list of names. Knows nothing of: the engine.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

import msgspec

from octavo.api.asgi import Receive, Scope, Send, respond
from octavo.api.endpoint import Operation
from octavo.api.openai.protocol import ModelCard, ModelList, ModelPermission
from octavo.errors import ModelNotFound, Unauthorized
from octavo.wording import printable


class ServedModels:
    """The names under which the model is served.

    Args:
        names: the first one is the default and the one in responses without a name.
        root: the model as the operator named it.
        max_model_len: gives the tokens in its window, which are final only when the core is ready.
    """

    def __init__(
        self, names: Sequence[str], *, root: str, max_model_len: Callable[[], int]
    ) -> None:
        assert names
        self._names = list(names)
        self._root = root
        self._max_model_len = max_model_len
        self._created = int(time.time())

    def check(self, name: str) -> str:
        """The served name a request means; an empty one means the default.

        Raises:
            ModelNotFound: no such name.
        """
        if not name:
            return self._names[0]
        if name not in self._names:
            raise self._not_found(name)
        return name

    def operations(self) -> list[Operation]:
        """The routes."""
        return [
            Operation(
                ("GET",),
                "/v1/models",
                self._list,
                "List the served models",
                "models",
                response=ModelList,
                errors=(Unauthorized,),
            ),
            Operation(
                ("GET",),
                "/v1/models/{model_id:path}",
                self._card,
                "Describe one served model",
                "models",
                response=ModelCard,
                errors=(Unauthorized, ModelNotFound),
                path_params={"model_id": "a served name; it may contain slashes"},
            ),
        ]

    async def _list(self, scope: Scope, receive: Receive, send: Send) -> None:
        cards = ModelList(data=[self._card_of(name) for name in self._names])
        await respond(send, 200, msgspec.json.encode(cards))

    async def _card(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = self.check(scope["path_params"]["model_id"])
        await respond(send, 200, msgspec.json.encode(self._card_of(name)))

    def _card_of(self, name: str) -> ModelCard:
        return ModelCard(
            id=name,
            created=self._created,
            root=self._root,
            max_model_len=self._max_model_len(),
            permission=[
                ModelPermission(id=f"modelperm-{secrets.token_hex(16)}", created=self._created)
            ],
        )

    def _not_found(self, name: str) -> ModelNotFound:
        aliases = ", ".join(f"`{n}`" for n in self._names)
        return ModelNotFound(
            f"The model `{printable(name, 200)}` does not exist. Valid aliases: {aliases}.",
            param="model",
        )
