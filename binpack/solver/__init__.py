"""CP-SAT over patterns per node class, in a child process with a watchdog; the only code that knows OR-Tools.

Importing this package does not import OR-Tools: only `model` does, and only the child process imports that.
"""
