"""What a recogniser gives: whether it is finished, and what is taken out."""

import pytest
from interpreter_node.sentences import is_unfinished, repaired, split_sentences
from interpreter_node.translators.apertium import escaped, polished, unescaped


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("My brother works in a hospital, and", "en"),
        ("I would like to buy a ticket to.", "en"),
        ("We wanted to go to the beach because", "en"),
        ("Before ten,", "en"),
        ("Quisiera comprar un billete para...", "es"),
        ("Mi hermano trabaja en un hospital y...", "es"),
        ("¿Dónde está la?", "es"),
    ],
)
def test_a_sentence_that_must_go_on_is_unfinished(text: str, language: str) -> None:
    assert is_unfinished(text, language)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("I would like to buy a ticket.", "en"),
        ("it was very hot", "en"),
        ("Yes", "en"),
        ("", "en"),
        ("...", "en"),
        ("That!", "en"),
        ("Sí.", "es"),
        ("Vamos a visitar la catedral", "es"),
        ("какой-то текст", "ru"),
    ],
)
def test_what_can_be_an_end_is_taken_for_one(text: str, language: str) -> None:
    assert not is_unfinished(text, language)


@pytest.mark.parametrize(
    ("text", "language", "clean"),
    [
        ("um I would, uh, like it", "en", "I would, like it."),
        ("I I want the the house.", "en", "I want the house."),
        ("eh, quiero ir", "es", "Quiero ir."),
        ("Thank you. Thank you. Thank you. Thank you.", "en", "Thank you."),
        ("para…", "es", "Para."),
        ("¿dónde está?", "es", "¿Dónde está?"),
        ("We had had enough.", "en", "We had enough."),
        ("um", "en", ""),
        ("", "en", ""),
    ],
)
def test_repair_takes_out_what_nobody_meant_to_say(text: str, language: str, clean: str) -> None:
    assert repaired(text, language) == clean


def test_text_is_split_at_the_ends_of_sentences() -> None:
    assert split_sentences(" One. Two? ¡Tres! four ") == ["One.", "Two?", "¡Tres!", "four"]


def test_nothing_in_a_text_is_a_command_for_apertium() -> None:
    text = "a^b$ [c] <d> e/f \\g @h #i {j} ~k *l +m"
    assert unescaped(escaped(text)) == text
    assert "\0" not in escaped("a\0b")


@pytest.mark.parametrize(
    ("raw", "language", "clean"),
    [
        ("Buenos días, cómo eres hoy?", "es", "¿Buenos días, cómo eres hoy?"),
        ("Hola.  Dónde es? Aquí .", "es", "Hola. ¿Dónde es? Aquí."),
        ("  the house  is big. it is old.", "en", "The house is big. It is old."),
    ],
)
def test_translations_are_polished(raw: str, language: str, clean: str) -> None:
    assert polished(raw, language) == clean


def test_a_question_that_is_open_is_not_opened_again() -> None:
    assert polished("¿qué es? bien. cuándo?", "es") == "¿Qué es? Bien. ¿Cuándo?"


def test_a_long_text_without_an_end_is_polished_at_once() -> None:
    # A pattern that looks back took minutes for this.
    assert polished("a" * 60_000, "es") == "A" + "a" * 59_999
