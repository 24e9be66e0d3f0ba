"""Rules of the contract that Python enforces: field limits, text formats, audio, ids.

Pure: no I/O, clock or logging. May import `errors` and the generated code, and nothing else.
"""
