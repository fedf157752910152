"""The flag table as a whole."""

from __future__ import annotations

import pytest

from octavo.config.args import EngineArgs, ServerArgs, owner_of
from octavo.config.flags.flag import HINT, REMOVED, UNSUPPORTED, WORKS, Flag
from octavo.config.flags.table import BY_NAME, BY_SHORT, FLAGS, GROUPS

#: vLLM 0.32, `vllm serve --help=all`
VLLM_COUNTS = {
    "General": 13,
    "Frontend": 61,
    "ModelConfig": 46,
    "LoadConfig": 9,
    "AttentionConfig": 1,
    "MambaConfig": 4,
    "StructuredOutputsConfig": 2,
    "CacheConfig": 21,
    "SchedulerConfig": 18,
    "ParallelConfig": 53,
    "LoRAConfig": 13,
    "ObservabilityConfig": 13,
    "LoggingConfig": 3,
    "OffloadConfig": 7,
    "CompilationConfig": 2,
    "KernelConfig": 5,
    "MultiModalConfig": 24,
    "VllmConfig": 22,
}


def test_all_317_flags_of_vllm_are_there_group_by_group() -> None:
    counts = {name: len(flags) for name, flags in GROUPS.items() if name in VLLM_COUNTS}
    assert counts == VLLM_COUNTS
    assert sum(counts.values()) == 317


def test_no_spelling_is_taken_twice() -> None:
    spellings = [name for flag in FLAGS for name in (flag.name, *flag.aliases)]
    assert len(spellings) == len(set(spellings))
    shorts = [short for flag in FLAGS for short in flag.short]
    assert len(shorts) == len(set(shorts))
    assert not {"h", "v"} & set(shorts)


def test_spellings_lead_to_their_flags() -> None:
    assert BY_NAME["device-memory-utilization"] is BY_NAME["gpu-memory-utilization"]
    assert BY_SHORT["tp"] is BY_NAME["tensor-parallel-size"]
    assert BY_SHORT["O"] is BY_NAME["optimization-level"]


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_every_flag_explains_itself(flag: Flag) -> None:
    assert flag.status in (WORKS, HINT, UNSUPPORTED, REMOVED)
    assert flag.group in GROUPS
    assert flag.name == flag.name.lower().replace("_", "-")
    if flag.status != REMOVED:
        assert flag.help
    if flag.status != WORKS or flag.supported is not None:
        assert flag.why, "a flag without effect needs a reason"
    if flag.default is None and flag.status == WORKS:
        assert flag.auto or flag.field in NONE_MEANS_NONE, "say what None stands for"


#: working flags whose None means that the thing is not there
NONE_MEANS_NONE = {
    "api_key", "chat_template", "config", "custom_histogram_buckets",
    "default_chat_template_kwargs", "disable_access_log_for_endpoints", "hf_token",
    "log_config_file", "logging_config", "logits_processors", "root_path", "ssl_ca_certs",
    "ssl_certfile", "ssl_keyfile", "startup_trace", "tokenizer_revision", "uds",
}  # fmt: skip


def test_every_working_flag_is_a_field_of_one_class_and_the_other_way_round() -> None:
    fields = {*vars(EngineArgs()), *vars(ServerArgs())} - {"warnings", "ignored"}
    working = {f.field for f in FLAGS if f.status == WORKS and owner_of(f) != "parser"}
    assert fields == working
    assert not set(vars(EngineArgs())) & set(vars(ServerArgs())) - {"warnings", "ignored"}
