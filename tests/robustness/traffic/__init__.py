"""Those who talk and those who work: the SDK's own sessions and nodes, which write down all."""

WHO = "who"
"""The feature by which nodes tell conversations apart: they are not told the session."""
