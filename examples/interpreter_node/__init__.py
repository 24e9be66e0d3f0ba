"""A node that interprets between English and Spanish, on a CPU.

    PYTHONPATH=examples python -m interpreter_node --id amber --dispatcher 127.0.0.1:7720

It uses the node SDK and nothing else of this project. `engines` says what a recogniser, a
translator, a voice and a detector of speech are; the modules named after an engine are those;
`choice` picks them by the settings. `interpreter` is the handler: it joins held audio, cuts it at
its pauses (`segments`), and takes it through the stages. `parts` and `fetching` get the models.
docs/interpreter.md has the licences and the measurements.
"""
