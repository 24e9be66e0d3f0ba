"""Sessions: actors, audio, finalize, ordered results, resume."""
