"""Makes this source tree the `octavo` package of the running environment, with its command."""

import sys
import sysconfig
from pathlib import Path

root = Path(__file__).resolve().parent.parent
(Path(sysconfig.get_paths()["purelib"]) / "octavo-source.pth").write_text(f"{root}\n")
command = Path(sys.executable).parent / "octavo"
command.write_text(
    f"#!{sys.executable}\nimport sys\n\nfrom octavo.cli.main import main\n\nsys.exit(main())\n"
)
command.chmod(0o755)
