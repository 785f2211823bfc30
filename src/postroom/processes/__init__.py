"""The threads of a process, its signals, its child processes, and how long it waits."""
