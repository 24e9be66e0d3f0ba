"""Those who talk and those who work: the SDK's own sessions and nodes, which write down all.

Beside them, hostile clients and nodes, which do what no SDK does.
"""

WHO = "who"
"""The feature by which nodes tell conversations apart: they are not told the session."""
BAD = "bad"
"""The feature of jobs that honest nodes refuse as bad, as they would refuse broken audio."""
