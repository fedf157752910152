"""Peephole fusion: what is merged, and what must not be."""

from __future__ import annotations

from octavo.ops.fusion import fuse_program
from octavo.ops.program import Buffer, ElementType, Instruction, Op, Operand, Program, Rows


def instruction(op: Op, ins: list[int], outs: list[int], **constants: list) -> Instruction:
    return Instruction(
        op, Rows.T, [Operand(i) for i in ins], [Operand(o) for o in outs], **constants
    )


def norm(source: int, out: int) -> Instruction:
    return instruction(Op.RMS_NORM, [source], [out], vectors=[0], i=[8, 1, 0], f=[1e-5, 0.0])


def prepare(source: int, out: int) -> Instruction:
    return instruction(Op.PREPARE, [source], [out], i=[ElementType.A8])


def linear(source: int, out: int, weight: int) -> Instruction:
    return instruction(Op.LINEAR, [source], [out], weights=[weight], vectors=[None])


def rope(buffer: int, heads: int, vector: int = 0) -> Instruction:
    return instruction(Op.ROPE, [buffer], [], vectors=[vector], i=[heads, 64, 64], f=[1.0])


def fused(*forward: Instruction) -> list[Instruction]:
    program = Program([Buffer(Rows.T, 8, ElementType.F32)] * 20, list(forward))
    return fuse_program(program).forward


def test_a_norm_writes_its_output_prepared() -> None:
    (only,) = fused(norm(0, 1), prepare(1, 2))
    assert only.op == Op.RMS_NORM
    assert only.outs == [Operand(2)]
    assert only.i == [8, 1, ElementType.A8]


def test_a_norm_that_is_also_read_as_it_is_stays_apart() -> None:
    add = instruction(Op.ADD, [1, 0], [3])
    ops = [item.op for item in fused(norm(0, 1), prepare(1, 2), linear(2, 4, 0), add)]
    assert ops == [Op.RMS_NORM, Op.PREPARE, Op.LINEAR, Op.ADD]


def test_products_of_one_input_are_one_instruction() -> None:
    (only,) = fused(linear(0, 1, 5), linear(0, 2, 6), linear(0, 3, 7))
    assert only.weights == [5, 6, 7]
    assert only.outs == [Operand(1), Operand(2), Operand(3)]
    assert only.vectors == [None, None, None]


def test_at_most_four_products_are_merged() -> None:
    result = fused(*(linear(0, 1 + n, n) for n in range(5)))
    assert [len(item.outs) for item in result] == [4, 1]


def test_products_of_different_inputs_stay_apart() -> None:
    assert len(fused(linear(0, 1, 0), linear(2, 3, 1))) == 2


def test_a_residual_is_added_by_the_linear_whichever_side_it_is_on() -> None:
    for ins in ([1, 2], [2, 1]):
        (only,) = fused(linear(0, 2, 0), instruction(Op.ADD, ins, [3]))
        assert only.op == Op.LINEAR
        assert only.ins == [Operand(0), Operand(1)]
        assert only.outs == [Operand(3)]
        assert only.i == [1]


def test_a_product_that_is_read_twice_keeps_its_own_place() -> None:
    result = fused(
        linear(0, 2, 0), instruction(Op.ADD, [1, 2], [3]), instruction(Op.MUL, [2, 3], [4])
    )
    assert [item.op for item in result] == [Op.LINEAR, Op.ADD, Op.MUL]


def test_a_product_added_to_itself_is_not_a_residual() -> None:
    assert len(fused(linear(0, 2, 0), instruction(Op.ADD, [2, 2], [3]))) == 2


def test_a_sum_that_no_linear_makes_is_made_by_the_norm() -> None:
    (only,) = fused(instruction(Op.ADD, [0, 1], [2]), norm(2, 3), prepare(3, 4))
    assert only.op == Op.RMS_NORM
    assert only.ins == [Operand(0), Operand(1)]
    assert only.outs == [Operand(4), Operand(2)]


def test_gate_and_attention_write_prepared() -> None:
    gate = instruction(Op.ACT_MUL, [0, 1], [2], i=[0, 0, 0])
    attention = instruction(Op.ATTENTION, [0], [2], vectors=[None], i=[9, 0, 0, 0], f=[0.1, 0.0])
    assert fused(gate, prepare(2, 3))[0].i == [0, 0, ElementType.A8]
    assert fused(attention, prepare(2, 3))[0].i == [9, 0, 0, ElementType.A8]


def gated(ins: list[int], *, dtype: ElementType = ElementType.A8) -> list[Instruction]:
    """Gate and up of buffer 0 in buffers 1 and 2, and what is made of `ins`."""
    act_mul = instruction(Op.ACT_MUL, ins, [3], i=[2, 0, ElementType.F32])
    after = [prepare(3, 4)] if dtype == ElementType.A8 else []
    return [linear(0, 1, 5), linear(0, 2, 6), act_mul, *after]


def test_gate_and_up_and_what_is_made_of_them_are_one() -> None:
    (only,) = fused(*gated([1, 2]))
    assert only.op == Op.LINEAR_ACT_MUL
    assert (only.ins, only.outs) == ([Operand(0)], [Operand(4), Operand(1), Operand(2)])
    assert (only.weights, only.vectors) == ([5, 6], [None, None])
    assert only.i == [2, 0, ElementType.A8]


def test_factors_in_another_order_or_in_float32_stay_apart() -> None:
    for items in (gated([2, 1]), gated([1, 2], dtype=ElementType.F32)):
        assert [item.op for item in fused(*items)] == [Op.LINEAR, Op.ACT_MUL]


def test_a_factor_that_is_read_later_is_written() -> None:
    later = instruction(Op.SCALE, [2], [7], f=[1.0])
    ops = [item.op for item in fused(*gated([1, 2]), later)]
    assert ops == [Op.LINEAR, Op.ACT_MUL, Op.SCALE]


def test_rotations_and_cache_write_are_one() -> None:
    write = instruction(Op.KV_WRITE, [1, 2], [], i=[4])
    (only,) = fused(rope(0, 9), rope(1, 3), write)
    assert only.op == Op.ROPE_KV
    assert only.ins == [Operand(0), Operand(1), Operand(2)]
    assert only.i == [9, 64, 64, 4]


def test_rotations_with_other_frequencies_stay_apart() -> None:
    write = instruction(Op.KV_WRITE, [1, 2], [], i=[4])
    assert len(fused(rope(0, 9), rope(1, 3, vector=1), write)) == 3


def test_a_key_that_is_read_later_is_not_hidden() -> None:
    write = instruction(Op.KV_WRITE, [1, 2], [], i=[4])
    later = instruction(Op.ADD, [1, 2], [3])
    assert len(fused(rope(0, 9), rope(1, 3), write, later)) == 4
