"""The measure itself: word errors, and those near a cut."""

from word_errors import WordErrors, errors_by_word, near, word_errors, words


def test_case_punctuation_and_the_form_of_small_numbers_do_not_count() -> None:
    assert words("¡Hola! It's EIGHT o’clock, a las ocho.") == [
        *("hola", "it's", "8", "o'clock", "a", "las", "8")
    ]
    assert word_errors("At eight, please.", "at 8 please") == WordErrors(3, 0)


def test_wrong_missing_and_added_words_are_mistakes() -> None:
    assert word_errors("a b c d", "a x c").errors == 2
    assert word_errors("a b", "a b c d").rate == 1.0
    assert word_errors("", "a") == WordErrors(0, 1)
    assert word_errors("a b", "") == WordErrors(2, 2)


def test_mistakes_are_told_by_word() -> None:
    assert errors_by_word(["a", "b", "c", "d"], ["a", "x", "c", "d"]) == [0, 1, 0, 0]
    assert errors_by_word(["a", "b", "c", "d"], ["a", "d"]) == [0, 1, 1, 0]
    assert errors_by_word(["a", "b"], ["x", "a", "b"]) == [1, 0]


def test_only_words_near_a_cut_are_counted() -> None:
    assert near([1.0, 2.0, 9.0, 10.5, 20.0], [1, 1, 1, 0, 1], [10.0], 1.5) == WordErrors(2, 1)
