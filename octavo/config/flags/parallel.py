"""Flags of devices and processes (vLLM's ParallelConfig group)."""

from __future__ import annotations

from octavo.config.flags.flag import BOOL, INT, JSON, STR, Flag, hint, unsupported

GROUP = "ParallelConfig"

ONE_DEVICE = "one device per engine so far"
ONE_ENGINE = "one engine per server so far"
ONE_NODE = "one machine so far"
NO_MOE = "mixture-of-experts models are not distributed"

FLAGS = (
    unsupported(
        "tensor-parallel-size", INT, 1, "devices per layer", ONE_DEVICE, short=("tp",), low=1
    ),
    unsupported(
        "pipeline-parallel-size", INT, 1, "groups of layers", ONE_DEVICE, short=("pp",), low=1
    ),
    unsupported(
        "data-parallel-size",
        INT,
        1,
        "engines that share the load",
        ONE_ENGINE,
        short=("dp",),
        low=1,
    ),
    Flag(
        "distributed-executor-backend",
        STR,
        None,
        "how workers are run",
        supported=("uni", "mp"),
        why=ONE_DEVICE,
        auto="uni",
    ),
    hint("enable-expert-parallel", BOOL, False, "experts by rank", ONE_DEVICE, short=("ep",)),
    unsupported(
        "device-ids",
        STR,
        None,
        "devices to use, separated by commas",
        "CPUs are chosen by affinity (taskset, OCTAVO_CPU_OMP_THREADS_BIND)",
    ),
    unsupported("nnodes", INT, 1, "machines", ONE_NODE, short=("n",), low=1),
    unsupported("node-rank", INT, 0, "rank of this machine", ONE_NODE, short=("r",)),
    hint("master-addr", STR, "127.0.0.1", "address of the first machine", ONE_NODE),
    hint("master-port", INT, 29501, "port of the first machine", ONE_NODE),
    hint("distributed-timeout-seconds", INT, None, "timeout of collectives", ONE_DEVICE),
    hint("cpu-distributed-timeout-seconds", INT, None, "timeout of CPU collectives", ONE_DEVICE),
    unsupported("data-parallel-rank", INT, None, "rank of this engine", ONE_ENGINE, short=("dpn",)),
    unsupported(
        "data-parallel-start-rank",
        INT,
        None,
        "first rank of this machine",
        ONE_ENGINE,
        short=("dpr",),
    ),
    unsupported(
        "data-parallel-size-local", INT, None, "engines of this machine", ONE_ENGINE, short=("dpl",)
    ),
    hint(
        "data-parallel-address",
        STR,
        None,
        "address of the head machine",
        ONE_ENGINE,
        short=("dpa",),
    ),
    hint(
        "data-parallel-rpc-port", INT, None, "port of the head machine", ONE_ENGINE, short=("dpp",)
    ),
    hint(
        "data-parallel-backend",
        STR,
        "mp",
        "how engines are started",
        ONE_ENGINE,
        short=("dpb",),
        choices=("mp", "ray"),
    ),
    unsupported(
        "data-parallel-hybrid-lb",
        BOOL,
        False,
        "balance within machines",
        ONE_ENGINE,
        short=("dph",),
    ),
    unsupported(
        "data-parallel-external-lb", BOOL, False, "balance outside", ONE_ENGINE, short=("dpe",)
    ),
    unsupported(
        "data-parallel-multi-port-external-lb",
        BOOL,
        False,
        "one port per engine",
        ONE_ENGINE,
        short=("dpm",),
    ),
    hint("numa-bind", BOOL, False, "bind GPU workers to NUMA nodes", ONE_DEVICE),
    hint("numa-bind-nodes", STR, None, "nodes of each worker", ONE_DEVICE),
    hint("numa-bind-cpus", STR, None, "CPUs of each worker", ONE_DEVICE),
    hint("disable-custom-all-reduce", BOOL, False, "reduce with NCCL", ONE_DEVICE),
    hint("max-parallel-loading-workers", INT, None, "workers that load at a time", ONE_DEVICE),
    unsupported("worker-cls", STR, "auto", "class path of the worker", "workers are built in"),
    unsupported(
        "worker-extension-cls", STR, "", "class mixed into the worker", "workers are built in"
    ),
    unsupported(
        "decode-context-parallel-size",
        INT,
        1,
        "devices per context in decode",
        ONE_DEVICE,
        short=("dcp",),
        low=1,
    ),
    hint("dcp-comm-backend", STR, None, "collective of that", ONE_DEVICE),
    hint("dcp-q-replicate", BOOL, None, "replicate queries", ONE_DEVICE),
    hint("dcp-kv-cache-interleave-size", INT, 1, "tokens per rank in turn", ONE_DEVICE),
    hint("cp-kv-cache-interleave-size", INT, None, "tokens per rank in turn", ONE_DEVICE),
    unsupported(
        "prefill-context-parallel-size",
        INT,
        1,
        "devices per context in prefill",
        ONE_DEVICE,
        short=("pcp",),
        low=1,
    ),
    hint("enable-hc-sp", BOOL, False, "sequence parallelism", ONE_DEVICE),
    hint("all2all-backend", STR, "allgather_reducescatter", "exchange of experts", NO_MOE),
    hint("enable-ep-weight-filter", BOOL, False, "load only own experts", NO_MOE),
    hint("expert-placement-strategy", STR, "linear", "where experts are", NO_MOE),
    hint("enable-eplb", BOOL, False, "balance experts", NO_MOE),
    hint("eplb-config", JSON, {}, "options of that", NO_MOE),
    hint("enable-elastic-ep", BOOL, False, "change the number of engines", NO_MOE),
    hint("elastic-ep-max-dp-size", INT, None, "largest number of engines", NO_MOE),
    hint("enable-dbo", BOOL, False, "overlap two half batches", ONE_DEVICE),
    hint("dbo-decode-token-threshold", INT, 32, "smallest decode batch for that", ONE_DEVICE),
    hint("dbo-prefill-token-threshold", INT, 512, "smallest prefill batch for that", ONE_DEVICE),
    hint("ubatch-size", INT, 0, "number of part batches", ONE_DEVICE),
    hint("dp-sync-interval", INT, 16, "steps between synchronisations", ONE_ENGINE),
    hint("disable-nccl-for-dp-synchronization", BOOL, None, "synchronise with gloo", ONE_ENGINE),
    hint("enable-batch-sharded-sampling", BOOL, None, "sample by rank", ONE_DEVICE),
    hint("enable-shm-tensor-arena", BOOL, False, "tensors in shared memory", ONE_DEVICE),
    hint("ray-workers-use-nsight", BOOL, False, "profile Ray workers", ONE_DEVICE),
    hint("enable-fault-tolerance", BOOL, False, "survive lost engines", ONE_ENGINE),
    hint("fault-tolerance-config", JSON, {}, "options of that", ONE_ENGINE),
)
