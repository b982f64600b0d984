"""What the pytest plugin does once it is asked for a report."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from . import _lab, _patch

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from .cli.output import OutputFile

_FORMS = {".json": "json", ".html": "html", ".htm": "html"}


def begin(config: pytest.Config, path: str | None) -> None:
    """Replace the locks, and see to the report: in a file, or in the terminal's summary."""
    from .cli.output import OutputFile, UsageError

    file = None
    if path is not None:
        try:
            file = OutputFile(os.path.abspath(path), "--ticketlock-report")
        except UsageError as mistake:
            raise pytest.UsageError(str(mistake)) from None
    if os.environ.get("TICKETLOCK_SITES") != "0":
        _lab.set_sites(True)
    try:
        replaced = _patch.patch()
    except RuntimeError as refusal:
        raise pytest.UsageError(f"--ticketlock-report: {refusal}") from None
    config.pluginmanager.register(Ending(config, file, replaced), "ticketlock-report")


class Ending:
    """Writes the report, and takes the locks away again."""

    def __init__(self, config: pytest.Config, file: OutputFile | None, replaced: bool) -> None:
        self._config = config
        self._file = file
        self._replaced = replaced
        self._folder = str(config.invocation_params.dir)

    def pytest_unconfigure(self) -> None:
        """The end of everything."""
        if self._replaced:
            _patch.unpatch()

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """A section of the summary at the end, or a line that says where the report is."""
        terminalreporter.section("ticketlock")
        for line in self._lines(terminalreporter):
            terminalreporter.write_line(line)

    def _lines(self, terminal: TerminalReporter) -> list[str]:
        from . import _report
        from .cli.glyphs import for_encoding
        from .cli.text import to_text

        if not self._replaced:
            return ["TICKETLOCK_PATCH=0: locks were not replaced"]
        try:
            found = _report.take()
        except RuntimeError as problem:
            return [f"no report: {problem}"]
        remote = ["tests ran in processes of their own (xdist), which report nothing; use -n0"] if self._distributed() else []
        if self._file is not None:
            form = _FORMS.get(os.path.splitext(self._file.path)[1].lower(), "table")
            self._file.write(_report.text(form, found, "pytest", self._folder))
            return [*remote, f"report written to {self._file.path}"]
        width = terminal._tw.fullwidth
        glyphs = for_encoding(getattr(terminal._tw._file, "encoding", None), False)
        text = to_text(_report.lines(found, "pytest", self._folder, width, glyphs), False)
        return [*remote, *text.splitlines()]

    def _distributed(self) -> bool:
        return bool(getattr(self._config.option, "numprocesses", None)) or hasattr(self._config, "workerinput")
