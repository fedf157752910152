"""A template that would take for ever or fill the memory ends soon, whatever it is made of."""

from __future__ import annotations

import resource
import time

import pytest
from jinja2 import TemplateError

from octavo.errors import InvalidParameter
from octavo.tokenizer.chat_template import ChatTemplate
from octavo.tokenizer.template_budget import Budget, BudgetExceeded, spending
from octavo.tokenizer.template_environment import chat_environment

MESSAGES = [{"role": "user", "content": "x"}] * 300
_TREE = "{% set x = ['x'] %}{% set y = ['x'] %}" + "{% set x = [x, x] %}{% set y = [y, y] %}" * 60
_GROW = (
    "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(60) %}{% set ns.x = @ %}{% endfor %}"
)

COSTLY = {
    "loops in loops": "{% for i in range(9999) %}" * 2 + "{% endfor %}" * 2,
    "loops over messages": "{% for a in messages %}" * 4 + "{% endfor %}" * 4,
    "loops whose test fails": "{% for i in range(9999) %}{% for j in range(9999) | list if 0 %}"
    "{% endfor %}{% endfor %}",
    "macros that call twice": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}"
    "{% endmacro %}{{ m(60) }}",
    "macros without end": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "callers in callers": "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}"
    + "{% call m() %}" * 40 + "{% endcall %}" * 40,
    "recursive loops": "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "blocks": "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
    "texts times": "{{ ('x' * 10 ** 9) | length }}",
    "times texts": "{{ (10 ** 9 * 'x') | length }}",
    "lists times": "{{ ([1] * 10 ** 9) | length }}",
    "powers": "{{ 10 ** 10 ** 10 }}{{ (10 ** 9999) ** 99 }}",
    "products": "{% set ns = namespace(x=9) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}"
    "{% endfor %}",
    "doubling by ~": _GROW.replace("@", "ns.x ~ ns.x"),
    "doubling by +": _GROW.replace("@", "ns.x + ns.x"),
    "doubling lists": _GROW.replace("'xxxxxxxx'", "[1]").replace("@", "ns.x + ns.x"),
    "doubling by join": _GROW.replace("@", "[ns.x, ns.x] | join"),
    "doubling by join()": _GROW.replace("@", "''.join([ns.x, ns.x])"),
    "doubling by format": _GROW.replace("@", "'{}{}'.format(ns.x, ns.x)"),
    "doubling by %": _GROW.replace("@", "'%s%s' % (ns.x, ns.x)"),
    "doubling by blocks": "{% set x = 'xx' %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 60,
    "long separators": "{{ ('x' * 10000).join(range(9999) | map('string')) }}",
    "long separators of join": "{{ range(9999) | map('string') | join('x' * 10000) }}",
    "one text often": "{% set b = 'x' * 10000 %}{{ ([b] * 9000) | join }}",
    "trees written": _TREE + "{{ x }}",
    "trees as JSON": _TREE + "{{ x | tojson }}",
    "trees compared": _TREE + "{{ x == y }}",
    "trees looked for": _TREE + "{{ x in [y] }}",
    "trees of dicts": "{% set x = 1 %}" + "{% set x = dict(a=x, b=x) %}" * 60 + "{{ x }}",
    "trees of tuples": "{% set x = (1, 2) %}" + "{% set x = (x, x) %}" * 60 + "{{ {x: 1} }}",
    "trees of namespaces": "{% set x = namespace() %}" + "{% set x = namespace(a=x, b=x) %}" * 60,
    "wide format": "{{ '{:1000000000}'.format(1) }}",
    "wide format by value": "{{ '{:{w}}'.format(1, w=10 ** 9) }}",
    "wide format by map": "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "wide %": "{{ '%1000000000d' % 1 }}",
    "wide % by name": "{{ '%(a)1000000000d' % {'a': 1} }}",
    "wide % by value": "{{ '%*d' % (10 ** 9, 1) }}",
    "wide format filter": "{{ '%1000000000d' | format(1) }}",
    "many digits": "{{ '%.1000000000f' % 1.0 }}",
    "ljust": "{{ 'x'.ljust(10 ** 9) }}",
    "zfill": "{{ 'x'.zfill(10 ** 9) }}",
    "expandtabs": "{{ '\t'.expandtabs(10 ** 9) }}",
    "center": "{{ 'x' | center(10 ** 9) }}",
    "center by name": "{{ 'x' | center(width=10 ** 9) }}",
    "indent": "{{ 'x\ny' | indent(10 ** 9) }}",
    "indent by text": "{{ ('x\n' * 9999) | indent('x' * 9999) }}",
    "wordwrap": "{{ ('a ' * 9999) | wordwrap(1, true, 'x' * 9999) }}",
    "indented JSON": "{{ [1] | tojson(indent=10 ** 9) }}",
    "separated JSON": "{{ range(9999) | list | tojson(separators=('x' * 9999, ':')) }}",
    "batch": "{{ [1] | batch(10 ** 9, 'x') | list }}",
    "slice": "{{ [1] | slice(10 ** 9) | list }}",
    "lipsum": "{{ lipsum(n=10 ** 9) }}",
    "lipsum of long texts": "{{ lipsum(1, false, 10 ** 9, 10 ** 9 + 1) }}",
    "replace": "{{ ('a' * 9999).replace('a', 'b' * 9999) }}",
    "replace nothing": "{{ ('a' * 9999).replace('', 'b' * 9999) }}",
    "replace filter": "{{ ('a' * 9999) | replace('a', 'b' * 9999) }}",
    "sum of lists": "{{ ([[1]] * 9000) | map('list') | sum(start=[]) | length }}",
    "sum of texts": "{{ ('abc' * 99999) | list | sum(start='') }}",
    "slow methods": "{% for i in range(9999) %}{{ ('a' * 99999).count('a') }}{% endfor %}",
    "slow filters": "{% set l = range(9999) | list %}{% for i in range(9999) %}"
    "{% set x = l | sort(reverse=i % 2 == 0) %}{% endfor %}",
    "slices": "{% set s = 'x' * 99999 %}" + "{% set x = s[1:] %}" * 300,
    "slices of lists": "{% set s = [1] * 99999 %}" + "{% set x = s[1:] %}" * 300,
    "copies": "{% set s = 'x' * 99999 %}" + "{% set x = s.upper() %}" * 300,
}  # fmt: skip


@pytest.mark.parametrize("name", COSTLY)
def test_costly_templates_end_soon(name: str) -> None:
    memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.thread_time()
    budget = Budget(num_steps=20_000, num_characters=2_000_000, seconds=0.2)
    with (
        spending(budget),
        pytest.raises((BudgetExceeded, TemplateError, RecursionError)),
    ):
        chat_environment().from_string(COSTLY[name]).render(messages=MESSAGES)
    assert time.thread_time() - start < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_before < 200_000  # kB


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{% for i in range(1000) %}" * 3 + "{% endfor %}" * 3, "more than 1000000 steps"),
        ("{{ 'x' * 10 ** 9 }}", "more than 200000000 characters"),
        ("{{ 9 ** 99999 }}", "its numbers are too large"),
        ("{{ 'x' | center(9999) }}", "pads to more than 200 characters"),
    ],
)
def test_what_a_rendering_costs_too_much_is_told(source: str, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        ChatTemplate(source).render(MESSAGES)


def test_what_is_slow_without_being_large_ends() -> None:
    budget = Budget(seconds=0.05)

    def step_for_ever() -> None:
        while True:
            budget.step()

    with pytest.raises(BudgetExceeded, match=r"longer than 0\.05 s"):
        step_for_ever()


def test_a_long_conversation_is_far_from_the_limits() -> None:
    template = ChatTemplate(
        "{% for m in messages %}{{ '<|' + m.role + '|>' ~ m['content'] | trim }}{% if loop.last %}"
        "{{ m | tojson(indent=4) }}{% endif %}{% endfor %}"
    )
    messages = [{"role": "user", "content": "word " * 100}] * 20_000
    assert len(template.render(messages)) > 10_000_000
