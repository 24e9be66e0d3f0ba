"""Rules of the contract that Python enforces: field limits, text formats, audio, ids.

Pure. May import `errors` and the generated code; nothing else.
"""
