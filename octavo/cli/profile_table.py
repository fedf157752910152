"""The table of a profile: time by kind of operation, and how near it is to the machine's limit.

Runs in: the user's process. Knows nothing of: how it was measured.
"""

from __future__ import annotations

from octavo.messages.profile import OpTime, Profile


def limit_seconds(op: OpTime, limits: dict[str, float]) -> float:
    """The least time the machine needs for what `op` reads and computes; 0: nothing is counted."""
    return max(op.bytes / limits["read"], sum(_compute_seconds(op, limits).values()))


def _compute_seconds(op: OpTime, limits: dict[str, float]) -> dict[str, float]:
    return {name: count / limits[name] for name, count in op.operations.items()}


def profile_table(profile: Profile) -> str:
    """Lines of text: one per kind of operation, the total, and the limits."""
    total_s = sum(op.seconds for op in profile.ops)
    steps = max(profile.num_steps, 1)
    head = f"{'operation':<14}{'calls':>9}{'us/step':>11}{'share':>8}{'GB/s':>8}{'GOP/s':>9}  limit"
    lines = [head]
    for op in profile.ops:
        if not op.seconds:
            continue
        read = f"{op.bytes / op.seconds / 1e9:.1f}" if op.bytes else "-"
        count = sum(op.operations.values())
        computed = f"{count / op.seconds / 1e9:.0f}" if count else "-"
        lines.append(
            f"{op.op:<14}{op.calls:>9}{op.seconds / steps * 1e6:>11.1f}"
            f"{op.seconds / total_s:>8.1%}{read:>8}{computed:>9}  {_limit(op, profile.limits)}"
        )
    per_step = f"{total_s / steps * 1e6:>11.1f}"
    lines.append(f"{'all':<14}{'':>9}{per_step}   over {profile.num_steps} steps")
    limits = profile.limits
    lines.append(
        f"limits of all threads: {limits['read'] / 1e9:.1f} GB/s read; GOP/s: "
        + ", ".join(f"{name} {limits[name] / 1e9:.0f}" for name in ("int8", "bf16", "f32"))
    )
    return "\n".join(lines)


def _limit(op: OpTime, limits: dict[str, float]) -> str:
    least = limit_seconds(op, limits)
    if not least:
        return "-"
    compute = _compute_seconds(op, limits)
    bound = "read" if op.bytes / limits["read"] >= least else max(compute, key=compute.__getitem__)
    return f"{least / op.seconds:.0%} of {bound}"
