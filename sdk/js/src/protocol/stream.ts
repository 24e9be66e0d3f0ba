/** What a session says over one connection. No I/O, no clock. */

import type { Connection } from "./connection.js";
import { earliest } from "./connection.js";
import { EarlyAudio } from "./early-audio.js";
import type { AudioChunk } from "./kept-chunks.js";
import type { SessionState } from "./state.js";

/** Results are confirmed with the next text message, or alone if there is none for this long. */
export const CONFIRM_MS = 200;

/** A message to the gateway in protobuf's JSON form, without audio. */
export interface ClientMessage {
  readonly open?: { readonly new: NewSession } | { readonly resume: ResumeSession };
  readonly playbackStarted?: Empty;
  readonly playbackEnded?: Empty;
  readonly close?: Empty;
  readonly resultsSeen?: number;
}

export type Empty = Readonly<Record<string, never>>;

/** The request for a session in protobuf's JSON form; see `options.ts`. */
export type NewSession = Readonly<Record<string, unknown>>;

export interface ResumeSession {
  readonly sessionId: string;
  readonly resumeToken: string;
  readonly resultsSeen: number;
  readonly nextSeq: number;
  readonly keptSeq: number;
  readonly tries: number;
}

/** What is written to a connection: a text frame or a binary one. */
export type Outgoing =
  | { readonly kind: "message"; readonly message: ClientMessage }
  | { readonly kind: "audio"; readonly chunk: AudioChunk };

/**
 * One connection of a session: what it has received, and what was written to it.
 *
 * Everything that has to be repeated on each connection (the chunks, whether speech is playing,
 * whether the app has closed) is a fact of the session. `take` compares the facts with what this
 * connection has written, so nothing depends on where the previous one broke.
 */
export class SessionStream {
  /** Chunks that were refused on this connection: sent again as they were, or emptied. */
  readonly refused = new Map<number, "gap" | "emptied">();
  /** Speech by the index of its result. */
  readonly speech = new EarlyAudio<number>();
  /** When results are confirmed even without another message, and whether that time has come. */
  confirmAt: number | null = null;
  confirmDue = false;
  #seenSaid = 0;
  #playingSaid = false;
  #closeSaid = false;

  constructor(readonly connection: Connection) {}

  /** Returns when something is due on this connection; null if nothing is. */
  nextDeadline(): number | null {
    return this.connection.closing
      ? null
      : earliest(this.connection.nextDeadline(), this.confirmAt);
  }

  /** Schedules a confirmation, unless one is scheduled already. */
  confirmSoon(now: number): void {
    if (this.confirmAt === null && !this.confirmDue) {
      this.confirmAt = now + CONFIRM_MS;
    }
  }

  /** The time of `nextDeadline` has come. */
  onTimer(now: number): void {
    if (this.confirmAt !== null && this.confirmAt <= now) {
      this.confirmAt = null;
      this.confirmDue = true;
    }
  }

  /** Returns the next frame to write; null if there is none now. */
  take(state: SessionState, newSession: NewSession): Outgoing | null {
    const { openTaken, opened, closing } = this.connection;
    if (!openTaken) {
      return { kind: "message", message: this.#takeOpen(state, newSession) };
    }
    if (!opened) {
      return null;
    }
    if (this.confirmDue && this.#seenSaid < state.seen) {
      return this.#text({}, state);
    }
    return closing ? null : (this.#takeNext(state) ?? this.#takeAsk(state));
  }

  #takeOpen(state: SessionState, newSession: NewSession): ClientMessage {
    this.connection.openTaken = true;
    if (!this.connection.resumes) {
      return { open: { new: newSession } };
    }
    this.#seenSaid = state.seen;
    state.resumeAttempts += 1;
    const resume = {
      sessionId: state.sessionId,
      resumeToken: state.resumeToken,
      resultsSeen: state.seen,
      nextSeq: state.kept.acknowledged,
      keptSeq: state.kept.first,
      tries: state.resumeAttempts,
    };
    return { open: { resume } };
  }

  #takeNext(state: SessionState): Outgoing | null {
    if (this.#playingSaid !== state.playing) {
      this.#playingSaid = state.playing;
      return this.#text(state.playing ? { playbackStarted: {} } : { playbackEnded: {} }, state);
    }
    const chunk = state.kept.take();
    if (chunk !== null) {
      return { kind: "audio", chunk };
    }
    if (state.closing && !this.#closeSaid) {
      this.#closeSaid = state.closeWritten = true;
      return this.#text({ close: {} }, state);
    }
    return null;
  }

  #takeAsk(state: SessionState): Outgoing | null {
    return this.connection.askDue ? this.#text({}, state) : null;
  }

  /** Returns a text message, with a confirmation if one is missing. */
  #text(message: ClientMessage, state: SessionState): Outgoing {
    this.connection.askDue = false;
    this.confirmAt = null;
    this.confirmDue = false;
    if (this.#seenSaid === state.seen) {
      return { kind: "message", message };
    }
    this.#seenSaid = state.seen;
    return { kind: "message", message: { ...message, resultsSeen: state.seen } };
  }
}
