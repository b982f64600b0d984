"""Runs a command as a shell does: as the job in the foreground of the terminal on stderr, which becomes its controlling terminal.

Usage: job.py PIDFILE COMMAND...; to be started in a session of its own. What the command's exit is, is its own exit.
"""

import fcntl
import os
import signal
import sys
import termios


def main():
    pid_file, *command = sys.argv[1:]
    fcntl.ioctl(2, termios.TIOCSCTTY, 0)
    # The terminal is handed to another group from here on; that, and its Ctrl-C, must not stop us.
    for signum in (signal.SIGTTOU, signal.SIGTTIN, signal.SIGINT, signal.SIGTSTP, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    ready, go = os.pipe()
    child = os.fork()
    if not child:
        os.close(go)
        os.read(ready, 1)
        for signum in (signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP, signal.SIGHUP):
            signal.signal(signum, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.execvp(command[0], command)
    os.setpgid(child, child)
    os.tcsetpgrp(2, child)
    with open(pid_file + ".new", "w") as file:
        file.write(str(child))
    os.rename(pid_file + ".new", pid_file)
    os.write(go, b"x")
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


main()
