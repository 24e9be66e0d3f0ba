"""A node that interprets between English and Spanish, on a CPU.

    PYTHONPATH=examples python -m interpreter_node --id amber --dispatcher 127.0.0.1:7720

Of this project it uses only the node SDK. `engines` defines the interfaces of recognisers,
translators, voices and speech detectors; modules named after an engine implement them; `choice`
selects them by the settings. `interpreter` is the handler: it joins held audio, cuts it at its
pauses (`segments`) and runs the stages. `parts` and `fetching` download the models.
docs/interpreter.md has the licences and the measurements.
"""
