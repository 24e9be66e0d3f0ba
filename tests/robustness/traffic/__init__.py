"""Those who talk and those who work: the SDK's own sessions and nodes, which write down all."""
