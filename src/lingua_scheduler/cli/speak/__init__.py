"""`lingua speak`: files or a microphone in, translations out."""
