"""Names of processes and threads as the kernel shows them; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SHOW = "print(open('/proc/self/cmdline').read().rstrip(chr(0)).split(chr(0))[4:], sys.argv[1:])"


def run(code: str, *arguments: str) -> str:
    """What a Python process says that runs `code` with these arguments."""
    code = f"import sys; sys.path.append({str(ROOT)!r}); {code}"
    command = [sys.executable, "-P", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


def test_a_process_has_its_title_and_keeps_its_arguments() -> None:
    code = (
        "from octavo.transport.process_name import name_process; name_process('Octavo::Test');"
        "print(open('/proc/self/cmdline').read().rstrip(chr(0)), open('/proc/self/comm').read(),"
        "sys.argv[1:], sep='|')"
    )
    assert run(code, "--a", "b") == "Octavo::Test|Octavo::Test\n|['--a', 'b']\n"


def test_a_title_longer_than_the_arguments_is_cut() -> None:
    code = (
        "from octavo.transport.process_name import name_process; name_process('x' * 50000);"
        "line = open('/proc/self/cmdline').read().rstrip(chr(0));"
        "print(set(line), len(line) < 50000, len(open('/proc/self/comm').read().strip()))"
    )
    assert run(code) == "{'x'} True 15\n"


def test_a_thread_is_named_for_the_kernel_and_the_process_is_not() -> None:
    code = (
        "import threading; from octavo.transport.process_name import name_thread\n"
        "def show():\n"
        "    name_thread('octavo-thread')\n"
        "    path = f'/proc/self/task/{threading.get_native_id()}/comm'\n"
        "    print(open(path).read().strip(), open('/proc/self/comm').read().strip())\n"
        "thread = threading.Thread(target=show); thread.start(); thread.join()"
    )
    thread, process = run(code).split()
    assert thread == "octavo-thread"
    assert process.startswith("python")


def test_secrets_are_hidden_from_others_and_kept_for_the_program() -> None:
    code = (
        "from octavo.transport.process_name import hide_in_command_line;"
        f"hide_in_command_line(['sk-one', 'sk-two', '']); {SHOW}"
    )
    said = run(code, "--api-key", "sk-one", "--x=sk-two", "plain")
    assert said == (
        "['--api-key', '******', '--x=******', 'plain'] "
        "['--api-key', 'sk-one', '--x=sk-two', 'plain']\n"
    )


def test_a_short_secret_is_hidden_where_it_is_a_word() -> None:
    code = (
        "from octavo.transport.process_name import hide_in_command_line;"
        f"hide_in_command_line(['a', 'long-secret']); {SHOW}"
    )
    said = run(code, "--api-key", "a", "--api-key=a", "--data", "a=b", '["long-secret"]', "a")
    shown, _, kept = said.partition("] [")
    assert shown == ("['--api-key', '*', '--api-key=*', '--data', 'a=b', '[\"***********\"]', '*'")
    assert "'a=b', '[\"long-secret\"]', 'a'" in kept


def test_without_secrets_nothing_is_touched_and_no_ctypes_imported() -> None:
    code = (
        "from octavo.transport.process_name import hide_in_command_line;"
        f"hide_in_command_line(['abs' + 'ent']); print('ctypes' in sys.modules); {SHOW}"
    )
    assert run(code, "a") == "False\n['a'] ['a']\n"
