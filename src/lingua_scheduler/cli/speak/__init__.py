"""What `lingua speak` does: sends files or a microphone's audio, and shows translations.

May import `clients`, `views` and the SDK, but not `commands` or `up`.
"""
