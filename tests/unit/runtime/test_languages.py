"""The languages that may be used."""

import pytest

from lingua_scheduler.services.runtime.contract.language_codes import ISO_639
from lingua_scheduler.services.runtime.contract.languages import Languages, parse_languages
from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.settings.settings import load_settings
from tests.support.local_codes import local_code


def allowing(setting: str) -> Languages:
    languages = Languages()
    languages.allow(parse_languages(setting))
    return languages


@pytest.mark.parametrize(
    "code",
    [
        *("en", "zh", "EN", "yue", "cmn", "deu", "ger", "ber", "iw", "und"),
        *("zh-CN", "en-us", "pt-BR", "es-419", "zh-Hant", "zh-hant-tw", "sr-Latn"),
        *("qaa", "qtz", "qab-de", "ceb", "haw"),
    ],
)
def test_codes_of_iso_639_are_allowed_with_scripts_and_regions(code: str) -> None:
    languages = Languages()
    assert languages.allows(code)
    assert languages.allows(code)  # as remembered


@pytest.mark.parametrize(
    "code",
    [
        *("xx", "xa", "zz", "qua-zz-zz", "qza", "e", "", "*", "english", "iso639"),
        *("xx-us", "en-", "-en", "en_us", "en-usa", "en-1", "en-hant-tw-x", "en-tw-hant"),
        *("ca-valencia", "en-x-foo", "en\n", "é", "en:zh", "zh-" + "x" * 1_000_000),
    ],
)
def test_other_codes_are_refused(code: str) -> None:
    languages = Languages()
    assert not languages.allows(code)
    assert not languages.allows(code)


def test_a_setting_replaces_the_list() -> None:
    languages = allowing("en, zh-Hant,tok-sitelen")
    assert all(map(languages.allows, ("en", "EN", "zh-hant", "tok-sitelen")))
    assert not any(map(languages.allows, ("en-us", "zh", "de", "tok", "qaa")))
    assert languages.expected() == "one of the languages allowed here: en, tok-sitelen, zh-hant"


def test_a_setting_extends_the_list() -> None:
    languages = allowing("iso639,xx,ca-valencia")
    assert all(map(languages.allows, ("de", "pt-br", "xx", "ca-valencia")))
    assert not any(map(languages.allows, ("yy", "xx-us")))
    assert languages.expected() == (
        "an ISO 639 language code such as 'en', 'pt-br' or 'zh-hant', or one of: ca-valencia, xx"
    )


def test_an_empty_setting_is_the_default() -> None:
    languages = allowing(" ")
    assert languages.allows("de")
    assert not languages.allows("xx")


def test_a_new_list_invalidates_the_remembered_codes() -> None:
    languages = Languages()
    assert languages.allows("de")
    languages.allow(parse_languages("en"))
    assert not languages.allows("de")


def test_errors_do_not_grow_with_the_list() -> None:
    languages = allowing(",".join(map(local_code, range(500))))
    assert languages.expected().endswith("qas, qat (and 480 more)")


@pytest.mark.parametrize("value", ["en;de", "english", "en,*", "en,e"])
def test_a_setting_with_an_invalid_code_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="LINGUA_LANGUAGES"):
        load_settings({"LINGUA_LANGUAGES": value})


def test_hostile_codes_cost_no_memory() -> None:
    languages = Languages()
    for number in range(50_000):
        assert languages.allows(local_code(number))
        assert not languages.allows(f"x{number}")
    # Remembered codes are looked up; what is not allowed is never kept.
    assert len(languages._remembered) <= 4096


def test_codes_are_listed_once_and_have_two_or_three_letters() -> None:
    assert len(ISO_639) > 8000
    assert all(code.isascii() and code.islower() and len(code) in (2, 3) for code in ISO_639)
