/**
 * What an app gets to know of a room. A listener gets each utterance of its language exactly once,
 * in order: as Said or as NotSaid. All other events are for display only.
 */

import type { AudioFormat } from "../audio-format.js";
import type { Problem, Reconnecting, ResultKind, Texts } from "../events.js";

/** What the holder of a join token may do. Speakers may also listen. */
export type RoomRole = "listener" | "speaker";

/** Who may speak: holders of a speaker's token and the host, or holders of any token. */
export type SpeakPolicy = "invited" | "anyone";

/** What a listener receives. */
export interface Listening {
  readonly language: string;
  /** Texts. */
  readonly captions: boolean;
  /** Translated speech; for speakers of the same language, their own voice. */
  readonly speech: boolean;
  /** The audio of the speaker, whatever its language. */
  readonly originalAudio: boolean;
}

// ---- the state of a room ----

export interface SpeakerInfo {
  readonly sessionId: string;
  /** For display; may be empty. */
  readonly name: string;
  readonly language: string;
  /** In milliseconds since the epoch. */
  readonly joinedMs: number;
}

/** A language that somebody listens to. */
export interface LanguageInfo {
  readonly language: string;
  readonly listeners: number;
  /** How many of them want speech. */
  readonly speechListeners: number;
  /** Utterances that have no outcome in this language yet, and how old the first one is. */
  readonly waiting: number;
  readonly oldestWaitingMs: number;
}

/** Who is in a room. */
export interface Attendance {
  readonly listeners: number;
  /** The languages that are listened to, most listeners first. */
  readonly languages: readonly LanguageInfo[];
  /** In the order in which they came. */
  readonly speakers: readonly SpeakerInfo[];
}

/** A room as it was when the server answered. */
export interface RoomInfo extends Attendance {
  readonly roomId: string;
  readonly tenant: string;
  /** For people. */
  readonly name: string;
  /** Languages that members may speak and listen to; empty: any. */
  readonly allowedLanguages: readonly string[];
  readonly speak: SpeakPolicy;
  readonly maxMembers: number;
  readonly maxSpeakers: number;
  readonly maxLanguages: number;
  /** In milliseconds since the epoch. */
  readonly createdMs: number;
  /** The room index of the next utterance. */
  readonly nextIndex: number;
}

/** A member of a room, for the roster. */
export interface Member {
  readonly name: string;
  readonly role: RoomRole;
  /** What a speaker speaks, or a listener listens to. */
  readonly language: string;
  /** What a listener receives; null for a speaker. */
  readonly listening: Listening | null;
  readonly joinedMs: number;
}

// ---- what a listener hears ----

/** An utterance, whether it has a result or not. */
export interface Spoken {
  /** Counts the utterances of all speakers. Those that nobody wanted in this language are skipped. */
  readonly roomIndex: number;
  /** The listener's, and the speaker's. If both are the same, nothing is translated. */
  readonly language: string;
  readonly spokenLanguage: string;
  /** The speaker's session, and name, which may be empty. */
  readonly sessionId: string;
  readonly speaker: string;
  /** Earlier room indexes whose held audio was lost: no result contains what was said there. */
  readonly lost: readonly number[];
  /** Said before the listener came. It has no audio then. */
  readonly replayed: boolean;
}

/** An utterance in the listener's language. */
export interface Said extends Spoken {
  readonly type: "said";
  /** Only TRANSLATED has texts and audio. */
  readonly kind: ResultKind;
  readonly texts: Texts;
  /** The caption: the translation, or what was recognised if nothing was translated. */
  readonly text: string;
  /** Translated speech, if the listener wants it and a node made it; else empty. */
  readonly speech: Uint8Array;
  readonly speechFormat: AudioFormat | null;
  /** The speaker's own audio, if the listener wants it; else empty. */
  readonly originalAudio: Uint8Array;
  readonly originalFormat: AudioFormat | null;
  /** Earlier room indexes that were HELD and are part of this one. */
  readonly joined: readonly number[];
  /** The sentence began at another node, which did not become available in time. */
  readonly turnBroken: boolean;
  /** When the utterance was cut, and for how long it was spoken. */
  readonly cutAtMs: number;
  readonly audioMs: number;
  /** When the result was there for all listeners. */
  readonly publishedMs: number;
}

/**
 * There will be no result for one or more utterances in the listener's language. If there are
 * several, `roomIndex` is that of the first one, and the speaker is empty.
 */
export interface NotSaid extends Spoken {
  readonly type: "not-said";
  /** One more than the room index of the last one. */
  readonly untilIndex: number;
  /**
   * An ErrorReason of the contract without its prefix, such as JOB_TIMEOUT; or OUT_OF_ORDER: the
   * server skipped them, and did not have them when it was asked again; LISTENING_CHANGED: the
   * connection broke while the language was being changed.
   */
  readonly reason: string;
  readonly message: string;
}

/** The listener receives something else from now on. */
export interface ListeningChanged {
  readonly type: "changed";
  readonly listening: Listening;
  /** The first room index that comes in this way. */
  readonly position: number;
}

/** Who is in the room now. Sent at most once a second, to listeners that ask for it. */
export interface RoomStatus extends Attendance {
  readonly type: "status";
}

/** The listener is in the room again after `reconnecting`. It continues where it was. */
export interface Rejoined {
  readonly type: "rejoined";
  /** How long there was no connection. */
  readonly awayMs: number;
  /** The room index from which it continues. */
  readonly position: number;
}

/** The room was closed. This is the last event. */
export interface RoomClosed {
  readonly type: "closed";
}

export type Heard = Said | NotSaid;
export type RoomEvent =
  Heard | ListeningChanged | RoomStatus | Problem | Reconnecting | Rejoined | RoomClosed;
