/**
 * The events of a session that an app receives. Each utterance has exactly one Result or Missing,
 * in order. All other events are for display only.
 */

import type { AudioFormat } from "./audio-format.js";
import type { FieldViolation } from "./errors.js";

/** A direction of translation: the spoken language, and the one that it is translated to. */
export interface Direction {
  readonly src: string;
  readonly tgt: string;
}

/** The text as recognised, as repaired, and as translated. */
export interface Texts {
  readonly source: string;
  readonly repaired: string;
  readonly translated: string;
}

/** When a stage at the node started, from receipt of the job, and how long it took. */
export interface StageTiming {
  /** ASR, SEMANTIC, NMT, TTS, TONE, or one of a newer server. */
  readonly stage: string;
  readonly startedMs: number;
  readonly tookMs: number;
}

/** Where the time went: consecutive durations from the first chunk on. */
export interface ResultTimings {
  /** The length of the utterance. */
  readonly audioMs: number;
  /** From its end to the cut. */
  readonly hangoverMs: number;
  /** From the cut until a node had accepted it. */
  readonly dispatchMs: number;
  /** Until the node's result. */
  readonly nodeMs: number;
  /** Until it was sent to this client, including the wait for earlier indexes. */
  readonly deliverMs: number;
  readonly stages: readonly StageTiming[];
}

export type ResultKind =
  | "TRANSLATED"
  /** The sentence was unfinished: a later result has it, and names this index in `joined`. */
  | "HELD"
  /** The audio contains no speech. */
  | "NO_SPEECH"
  /** A kind of a newer server. */
  | "UNSPECIFIED";

export interface Result {
  readonly type: "result";
  /** Indexes count up from 0 without gaps. */
  readonly index: number;
  readonly direction: Direction;
  /** Only TRANSLATED has texts and speech. */
  readonly kind: ResultKind;
  readonly texts: Texts;
  /** Audio of the translation; empty if there is none. */
  readonly speech: Uint8Array;
  readonly speechFormat: AudioFormat | null;
  /** Earlier indexes that were HELD and are part of this result. */
  readonly joined: readonly number[];
  /** Earlier indexes whose held audio was lost: no result contains what was said there. */
  readonly lost: readonly number[];
  /** For operators' tools. */
  readonly jobId: string;
  readonly nodeId: string;
  readonly attempts: number;
  readonly timings: ResultTimings;
  /** The sentence began at another node, which did not become available in time. */
  readonly turnBroken: boolean;
  /** Only in sessions that speak to a room. Everything that concerns one translation is empty then. */
  readonly room: RoomReceipt | null;
}

/** What became of an utterance in its room. */
export interface RoomReceipt {
  /** Counts all utterances of the room. */
  readonly roomIndex: number;
  /** The languages in which the room has it. Nobody wanted the others. */
  readonly delivered: readonly string[];
  readonly missing: readonly RoomLanguageMissing[];
}

/** A language in which an utterance has no result. */
export interface RoomLanguageMissing {
  readonly language: string;
  /** As in `Missing`. */
  readonly reason: string;
  readonly message: string;
}

/** There will be no result for this utterance. Later utterances are not affected. */
export interface Missing {
  readonly type: "missing";
  readonly index: number;
  readonly direction: Direction;
  /** An ErrorReason of the contract without its prefix, such as JOB_TIMEOUT. */
  readonly reason: string;
  /** One sentence for people. */
  readonly message: string;
  readonly lost: readonly number[];
}

/** The text of an utterance so far. Each replaces the one before. */
export interface PartialText {
  readonly type: "partial";
  readonly index: number;
  readonly direction: Direction;
  readonly texts: Texts;
}

/** An utterance was cut. */
export interface Finalized {
  readonly type: "finalized";
  readonly index: number;
  readonly direction: Direction;
  /** IS_FINAL, TIMEOUT (a pause), MAX_DURATION, MAX_LENGTH, SESSION_CLOSE or INTERRUPTED. */
  readonly reason: string;
  readonly audioMs: number;
}

/** A node has accepted an utterance. */
export interface Accepted {
  readonly type: "accepted";
  readonly index: number;
  readonly direction: Direction;
  readonly jobId: string;
  readonly nodeId: string;
  readonly attempt: number;
}

/** An attempt failed, and another one follows. */
export interface Retrying {
  readonly type: "retrying";
  readonly index: number;
  readonly direction: Direction;
  readonly attempt: number;
  readonly reason: string;
  readonly message: string;
}

/** The server reports an error. The session continues. */
export interface Problem {
  readonly type: "problem";
  /**
   * An ErrorReason of the contract without its prefix; or OUT_OF_ORDER: the server skipped
   * something, and the SDK reconnects to get it.
   */
  readonly reason: string;
  readonly message: string;
  readonly fieldViolations: readonly FieldViolation[];
  readonly metadata: Readonly<Record<string, string>>;
  readonly retryAfterMs: number;
}

/** The connection was lost, and the SDK is reconnecting. The app may continue to send. */
export interface Reconnecting {
  readonly type: "reconnecting";
  readonly why: string;
}

/** The session continues after `reconnecting`. */
export interface Resumed {
  readonly type: "resumed";
  /** How long there was no connection. */
  readonly awayMs: number;
  /** How many unacknowledged chunks are sent again. */
  readonly chunksAgain: number;
}

/** What the server allows, and how it cuts utterances. */
export interface Limits {
  readonly maxChunkBytes: number;
  /** How long without audio, or without voice, ends an utterance. */
  readonly pauseMs: number;
  readonly maxDurationMs: number;
  readonly maxLengthBytes: number;
  /** After this, an utterance without a result is missing. */
  readonly resultDeadlineMs: number;
  /** How long a session can be resumed after its connection was lost. */
  readonly resumeWithinMs: number;
}

export type Outcome = Result | Missing;
export type SessionEvent =
  Outcome | PartialText | Finalized | Accepted | Retrying | Problem | Reconnecting | Resumed;
