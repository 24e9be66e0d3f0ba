"""One module per command of `lingua`; `app` loads it when the command is called."""
