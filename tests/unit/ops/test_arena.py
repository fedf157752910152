"""Memory of activations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo.ops.arena import lay_out
from octavo.ops.program import Buffer, ElementType, Instruction, Op, Operand, Program, Rows


def f32(cols: int, *, is_chunked: bool = False) -> Buffer:
    return Buffer(Rows.T, cols, ElementType.F32, is_chunked)


def add(out: int, *ins: int) -> Instruction:
    return Instruction(Op.ADD, Rows.T, [Operand(i) for i in ins], [Operand(out)])


def chain(length: int) -> Program:
    """Buffer n + 1 is made from buffer n."""
    return Program([f32(16)] * (length + 1), [add(n + 1, n) for n in range(length)])


def size_of(program: Program):
    return lambda buffer: 64 * program.buffers[buffer].cols


def test_a_chain_needs_two_buffers_however_long_it_is() -> None:
    program = chain(20)
    layout = lay_out(program, size_of(program), is_shared=True)
    assert layout.arena_bytes == 2 * 64 * 16


def test_without_sharing_every_buffer_has_its_own_place() -> None:
    program = chain(5)
    layout = lay_out(program, size_of(program), is_shared=False)
    assert sorted(layout.offsets) == [n * 64 * 16 for n in range(6)]


def test_unused_buffers_have_no_place() -> None:
    program = Program([f32(16), f32(16), f32(16)], [add(1, 0)])
    assert lay_out(program, size_of(program), is_shared=True).offsets[2] == -1


def test_a_linear_adds_to_its_residual_where_it_lies() -> None:
    linear = Instruction(Op.LINEAR, Rows.T, [Operand(1), Operand(0)], [Operand(2)], i=[1])
    program = Program([f32(16), f32(8), f32(16), f32(4)], [add(1, 0), linear, add(3, 2)])
    offsets = lay_out(program, size_of(program), is_shared=True).offsets
    assert offsets[2] == offsets[0]


def test_a_residual_that_is_read_again_keeps_its_place() -> None:
    linear = Instruction(Op.LINEAR, Rows.T, [Operand(1), Operand(0)], [Operand(2)], i=[1])
    program = Program([f32(16), f32(8), f32(16), f32(4)], [add(1, 0), linear, add(3, 2, 0)])
    offsets = lay_out(program, size_of(program), is_shared=True).offsets
    assert offsets[2] != offsets[0]


def test_what_the_sample_segment_reads_outlives_all_its_chunks() -> None:
    program = Program(
        [f32(16), f32(16), f32(16), f32(16)],
        [add(1, 0)],
        [add(2, 1), add(3, 2)],
    )
    offsets = lay_out(program, size_of(program), is_shared=True).offsets
    assert offsets[1] not in (offsets[2], offsets[3])


@given(st.data())
def test_buffers_that_live_at_the_same_time_never_overlap(data: st.DataObject) -> None:
    """Random programs: each instruction makes one new buffer from one or two older ones."""
    sizes = data.draw(st.lists(st.integers(1, 40), min_size=2, max_size=25))
    forward = []
    for made in range(1, len(sizes)):
        ins = data.draw(st.lists(st.integers(0, made - 1), min_size=1, max_size=2))
        forward.append(add(made, *ins))
    split = data.draw(st.integers(0, len(forward)))
    program = Program([f32(n) for n in sizes], forward[:split], forward[split:])
    layout = lay_out(program, size_of(program), is_shared=True)
    touched: dict[int, list[int]] = {}
    for number, item in enumerate(forward):
        for buffer in item.reads() | item.writes():
            touched.setdefault(buffer, []).append(number)
    for a in touched:
        for b in touched:
            if a >= b or min(touched[a]) > max(touched[b]) or min(touched[b]) > max(touched[a]):
                continue
            start_a, start_b = layout.offsets[a], layout.offsets[b]
            end_a, end_b = start_a + 64 * sizes[a], start_b + 64 * sizes[b]
            assert end_a <= start_b or end_b <= start_a
            assert max(end_a, end_b) <= layout.arena_bytes
