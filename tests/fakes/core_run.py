"""An engine core over the fake executor, and everything it has said.

Knows nothing of: real models, front ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.config.engine import CacheConfig, SchedulerConfig
from octavo.core.engine_core import EngineCore
from octavo.messages.engine import EngineCoreOutput, EngineCoreRequest, SchedulerStats
from octavo.messages.kv_cache import KVCacheSpec
from octavo.messages.step import SchedulerOutput
from tests.fakes.engine_config import engine_config
from tests.fakes.fake_executor import FakeExecutor


@dataclass
class Run:
    """An engine and everything it has said."""

    core: EngineCore
    executor: FakeExecutor
    outputs: dict[str, list[EngineCoreOutput]] = field(default_factory=dict)
    stats: list[SchedulerStats] = field(default_factory=list)

    def add(self, *requests: EngineCoreRequest) -> None:
        for request in requests:
            self.core.add_request(request)

    def step(self) -> SchedulerOutput | None:
        """One step; what was scheduled in it, if anything."""
        before = len(self.executor.steps)
        said = self.core.step()
        if said is not None:
            assert said.scheduler_stats is not None
            self.stats.append(said.scheduler_stats)
            for output in said.outputs:
                self.outputs.setdefault(output.request_id, []).append(output)
        return self.executor.steps[-1] if len(self.executor.steps) > before else None

    def finish(self, *, max_steps: int = 5000) -> None:
        for _ in range(max_steps):
            if not self.core.has_work:
                return
            self.step()
        raise AssertionError(f"there is still work after {max_steps} steps")

    def tokens(self, request_id: str) -> list[int]:
        return [t for output in self.outputs[request_id] for t in output.new_token_ids]

    def end(self, request_id: str) -> EngineCoreOutput:
        last = self.outputs[request_id][-1]
        assert last.finish_reason is not None
        return last


def engine(
    *,
    num_blocks: int = 100,
    block_size: int = 4,
    max_model_len: int = 200,
    caching: bool = True,
    depth: int = 1,
    specs: list[KVCacheSpec] | None = None,
    tells_prompts_apart: bool = False,
    **scheduler: object,
) -> Run:
    executor = FakeExecutor(specs=specs, tells_prompts_apart=tells_prompts_apart)
    config = engine_config(
        cache=CacheConfig(
            block_size=block_size,
            num_gpu_blocks_override=num_blocks,
            enable_prefix_caching=caching,
        ),
        scheduler=SchedulerConfig(depth=depth, **scheduler),  # type: ignore[arg-type]
        max_model_len=max_model_len,
    )
    return Run(EngineCore(config, executor), executor)


def scheduled(step: SchedulerOutput | None) -> dict[str, int]:
    assert step is not None
    return step.num_scheduled_tokens
