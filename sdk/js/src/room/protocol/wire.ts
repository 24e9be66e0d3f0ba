/** Converts messages about rooms, in protobuf's JSON form, to events. No I/O, no clock. */

import type { ServerError } from "../../protocol/endings.js";
import {
  enumOf,
  type Fields,
  fieldsOf,
  integerOf,
  integersOf,
  messagesOf,
  optionalInteger,
  textListOf,
  textOf,
} from "../../protocol/json.js";
import {
  errorFrom,
  formatOf,
  type GoAway,
  goAwayFrom,
  kindOf,
  messageEvents,
  readFirst,
  textsOf,
} from "../../protocol/wire-parts.js";
import type {
  Attendance,
  Heard,
  Listening,
  Member,
  NotSaid,
  RoomInfo,
  RoomRole,
  Said,
  Spoken,
} from "../events.js";

const NO_AUDIO = new Uint8Array();

export interface Joined {
  readonly kind: "joined";
  readonly memberId: string;
  readonly room: RoomInfo;
  readonly position: number;
  readonly resumeWithinMs: number;
  readonly silenceMs: number;
}

/** One event of a RoomMessage. */
export type RoomWireEvent =
  | Joined
  | { readonly kind: "heard"; readonly event: Heard; readonly previous: number | null }
  | { readonly kind: "changed"; readonly listening: Listening; readonly position: number }
  | { readonly kind: "status"; readonly attendance: Attendance }
  | GoAway
  | { readonly kind: "error"; readonly error: ServerError }
  | { readonly kind: "closed" }
  | { readonly kind: "unknown" };

/** Returns the events of a text frame. Throws WireError if it is not a RoomMessage. */
export function roomEventsOf(frame: string): readonly RoomWireEvent[] {
  return messageEvents(frame).map((event) => readFirst(event, READERS) ?? { kind: "unknown" });
}

const READERS: Readonly<Record<string, (fields: Fields) => RoomWireEvent>> = {
  joined: (joined) => ({
    kind: "joined",
    memberId: textOf(joined, "memberId"),
    room: roomFrom(fieldsOf(joined, "room")),
    position: integerOf(joined, "position"),
    resumeWithinMs: integerOf(joined, "resumeWithinMs"),
    silenceMs: integerOf(joined, "silenceMs"),
  }),
  result: (result) => heard(result, saidFrom(result)),
  missing: (missing) => heard(missing, notSaidFrom(missing)),
  changed: (changed) => ({
    kind: "changed",
    listening: listeningFrom(fieldsOf(changed, "listening")),
    position: integerOf(changed, "position"),
  }),
  status: (status) => ({ kind: "status", attendance: attendanceFrom(status) }),
  goAway: goAwayFrom,
  error: (error) => ({ kind: "error", error: errorFrom(error) }),
  closed: () => ({ kind: "closed" }),
};

function heard(fields: Fields, event: Heard): RoomWireEvent {
  return { kind: "heard", event, previous: optionalInteger(fields, "previousIndex") };
}

/** What results and missing ones have in spoken. */
function spokenFrom(event: Fields): Spoken {
  return {
    roomIndex: integerOf(event, "roomIndex"),
    language: textOf(event, "language"),
    spokenLanguage: textOf(event, "spokenLanguage"),
    sessionId: textOf(event, "sessionId"),
    speaker: textOf(event, "speaker"),
    lost: integersOf(event, "lostIndexes"),
    replayed: event.replayed === true,
  };
}
function saidFrom(result: Fields): Said {
  const spoken = spokenFrom(result);
  const { source, repaired, translated } = textsOf(result);
  const isOwn = spoken.language.toLowerCase() === spoken.spokenLanguage.toLowerCase();
  return {
    type: "said",
    ...spoken,
    kind: kindOf(result),
    texts: { source, repaired, translated },
    text: translated || (isOwn ? repaired || source : ""),
    speech: NO_AUDIO,
    speechFormat: formatOf(result, "speechFormat"),
    originalAudio: NO_AUDIO,
    originalFormat: formatOf(result, "originalFormat"),
    joined: integersOf(result, "joinedIndexes"),
    turnBroken: result.turnBroken === true,
    cutAtMs: integerOf(result, "cutAtMs"),
    audioMs: integerOf(result, "audioMs"),
    publishedMs: integerOf(result, "publishedMs"),
  };
}

function notSaidFrom(missing: Fields): NotSaid {
  const spoken = spokenFrom(missing);
  const { reason, message } = errorFrom(fieldsOf(missing, "why"));
  const untilIndex = Math.max(spoken.roomIndex + 1, integerOf(missing, "untilIndex"));
  return { type: "not-said", ...spoken, untilIndex, reason, message };
}

// ---- rooms ----

export function roomFrom(room: Fields): RoomInfo {
  const options = fieldsOf(room, "options");
  return {
    roomId: textOf(room, "roomId"),
    tenant: textOf(room, "tenant"),
    name: textOf(options, "name"),
    allowedLanguages: textListOf(options, "languages"),
    speak: enumOf(options, "speak", "SPEAK_POLICY_") === "ANYONE" ? "anyone" : "invited",
    maxMembers: integerOf(options, "maxMembers"),
    maxSpeakers: integerOf(options, "maxSpeakers"),
    maxLanguages: integerOf(options, "maxLanguages"),
    createdMs: integerOf(room, "createdMs"),
    nextIndex: integerOf(room, "nextIndex"),
    ...attendanceFrom(room),
  };
}

function attendanceFrom(from: Fields): Attendance {
  return {
    listeners: integerOf(from, "listeners"),
    languages: messagesOf(from, "languages").map((each) => ({
      language: textOf(each, "language"),
      listeners: integerOf(each, "listeners"),
      speechListeners: integerOf(each, "speechListeners"),
      waiting: integerOf(each, "waiting"),
      oldestWaitingMs: integerOf(each, "oldestWaitingMs"),
    })),
    speakers: messagesOf(from, "speakers").map((each) => ({
      sessionId: textOf(each, "sessionId"),
      name: textOf(each, "name"),
      language: textOf(each, "language"),
      joinedMs: integerOf(each, "joinedMs"),
    })),
  };
}

export function memberFrom(member: Fields): Member {
  const role: RoomRole =
    enumOf(member, "role", "ROOM_ROLE_") === "SPEAKER" ? "speaker" : "listener";
  return {
    name: textOf(member, "name"),
    role,
    language: textOf(member, "language"),
    listening: role === "speaker" ? null : listeningFrom(fieldsOf(member, "listening")),
    joinedMs: integerOf(member, "joinedMs"),
  };
}

function listeningFrom(listening: Fields): Listening {
  return {
    language: textOf(listening, "language"),
    captions: listening.captions === true,
    speech: listening.speech === true,
    originalAudio: listening.originalAudio === true,
  };
}
