"""Those who talk, listen and work: the SDK's own sessions, rooms and nodes, which write down all.

Beside them, hostile clients and nodes, which do what no SDK does.
"""

WHO = "who"
"""The feature by which nodes tell conversations apart: they are not told the session."""
BAD = "bad"
"""The feature of jobs that honest nodes refuse as bad, as they would refuse broken audio."""
ROOM = "room"
"""The feature of jobs of rooms: they are quick, so that rooms take few of the slots, and spoken."""
ROOM_LANGUAGES = ("en", "de", "fr", "it")
"""What people speak and listen to in rooms."""
LANGUAGES = (*ROOM_LANGUAGES, "es")
"""What nodes can do: each of these to each, and captions in each. Conversations are from English to
Spanish, so that jobs of rooms do not wait behind theirs."""
