"""What rooms promise (docs/rooms.md), as pure functions over the records of their members."""

from tests.robustness.validate.rooms.agreement import (
    an_index_has_one_speaker,
    listeners_agree,
    speakers_keep_their_order,
)
from tests.robustness.validate.rooms.audio import (
    original_audio_is_what_was_said,
    speech_fits_its_text,
    wanted_audio_comes,
)
from tests.robustness.validate.rooms.delivery import (
    delivered_is_heard,
    members_reach_the_end,
    missing_in_rooms_only_where_allowed,
    speakers_get_receipts,
    wanted_is_translated,
)
from tests.robustness.validate.rooms.jobs import an_utterance_has_a_job_a_language
from tests.robustness.validate.rooms.order import (
    chains_have_no_hole,
    replays_come_first,
    room_indexes_rise,
)
from tests.robustness.validate.rooms.words import no_word_is_lost_in_rooms

__all__ = ["ROOM_CHECKS"]

ROOM_CHECKS = (
    room_indexes_rise,
    chains_have_no_hole,
    replays_come_first,
    listeners_agree,
    an_index_has_one_speaker,
    speakers_keep_their_order,
    members_reach_the_end,
    speakers_get_receipts,
    missing_in_rooms_only_where_allowed,
    delivered_is_heard,
    wanted_is_translated,
    no_word_is_lost_in_rooms,
    an_utterance_has_a_job_a_language,
    speech_fits_its_text,
    original_audio_is_what_was_said,
    wanted_audio_comes,
)
