/** The state of one connection of a session. No I/O, no clock. */

import { type Ending, endingOfClose, type ServerError } from "./endings.js";
import type { Speech } from "./frames.js";
import type { AudioChunk } from "./kept-chunks.js";
import type { Silence } from "./silence.js";
import type { SessionState } from "./state.js";

/** Results are confirmed with the next text message, or alone if there is none for this long. */
export const CONFIRM_MS = 200;
/**
 * The limit of speech whose results have not arrived yet. The results follow in the next text frame,
 * and a gateway puts about 3 MiB into one.
 */
export const MAX_EARLY_SPEECH_BYTES = 16 * 1024 * 1024;
/** What the SDK needs for each piece of speech besides the audio. */
const SPEECH_OVERHEAD_BYTES = 128;

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
 * One connection from its opening: what it has received, and what was written to it.
 *
 * Everything that has to be repeated on each connection (the chunks, whether speech is playing,
 * whether the app has closed) is a fact of the session. `take` compares the facts with what this
 * connection has written, so nothing depends on where the previous one broke.
 */
export class SessionStream {
  opened = false;
  /** Whether the connection is being ended. Events that still arrive are ignored. */
  closing = false;
  /** Whether Open was written. */
  openTaken = false;
  /** When the gateway wants the client to have left, and why. */
  leaveAt: number | null = null;
  leaveWhy = "";
  /** The gateway's last event, if that was an error. */
  lastError: ServerError | null = null;
  /** Chunks that were refused on this connection: sent again as they were, or emptied. */
  readonly refused = new Map<number, "gap" | "emptied">();
  /** Tracks the gateway's silence; null if the gateway does not promise to answer. */
  silence: Silence | null = null;
  /** Whether to send an empty message, which the gateway has to answer. */
  askDue = false;
  /** When results are confirmed even without another message, and whether that time has come. */
  confirmAt: number | null = null;
  confirmDue = false;
  #seenSaid = 0;
  #playingSaid = false;
  #closeSaid = false;
  #speech = new Map<number, Uint8Array>();
  #speechBytes = 0;

  /**
   * @param resumes whether it resumes the session; otherwise it asks for a new one.
   * @param openedBy when Opened must have arrived.
   */
  constructor(
    readonly resumes: boolean,
    readonly openedBy: number,
  ) {}

  /** Returns when something is due on this connection; null if nothing is. */
  nextDeadline(): number | null {
    if (this.closing) {
      return null;
    }
    const times = [
      this.opened ? null : this.openedBy,
      this.leaveAt,
      this.confirmAt,
      this.silence?.due ?? null,
    ].filter((time) => time !== null);
    return times.length === 0 ? null : Math.min(...times);
  }

  /** Schedules a confirmation, unless one is scheduled already. */
  confirmSoon(now: number): void {
    if (this.confirmAt === null && !this.confirmDue) {
      this.confirmAt = now + CONFIRM_MS;
    }
  }

  /** Returns why the connection ended: with this code and text, after the gateway's events. */
  ending(now: number, code: number, said: string): Ending {
    const ending = endingOfClose(code, said, this.lastError);
    if (this.leaveAt !== null && (ending.kind === "lost" || ending.kind === "moved")) {
      return { kind: "moved", afterMs: Math.max(0, this.leaveAt - now), why: this.leaveWhy };
    }
    return ending;
  }

  /** Keeps speech for the result that follows. Returns whether there was room. */
  putSpeech({ index, data }: Speech): boolean {
    this.takeSpeech(index);
    this.#speech.set(index, data);
    this.#speechBytes += SPEECH_OVERHEAD_BYTES + data.length;
    return this.#speechBytes <= MAX_EARLY_SPEECH_BYTES;
  }

  /** Returns the speech of a result, if there is any. */
  takeSpeech(index: number): Uint8Array | undefined {
    const data = this.#speech.get(index);
    if (data !== undefined) {
      this.#speech.delete(index);
      this.#speechBytes -= SPEECH_OVERHEAD_BYTES + data.length;
    }
    return data;
  }

  /** Returns the next frame to write; null if there is none now. */
  take(state: SessionState, newSession: NewSession): Outgoing | null {
    if (!this.openTaken) {
      return { kind: "message", message: this.#takeOpen(state, newSession) };
    }
    if (!this.opened) {
      return null;
    }
    if (this.confirmDue && this.#seenSaid < state.seen) {
      return this.#text({}, state);
    }
    return (this.closing ? null : this.#takeNext(state)) ?? this.#takeAsk(state);
  }

  #takeOpen(state: SessionState, newSession: NewSession): ClientMessage {
    this.openTaken = true;
    if (!this.resumes) {
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
    return this.askDue && !this.closing ? this.#text({}, state) : null;
  }

  /** Returns a text message, with a confirmation if one is missing. */
  #text(message: ClientMessage, state: SessionState): Outgoing {
    this.askDue = false;
    this.confirmAt = null;
    this.confirmDue = false;
    if (this.#seenSaid === state.seen) {
      return { kind: "message", message };
    }
    this.#seenSaid = state.seen;
    return { kind: "message", message: { ...message, resultsSeen: state.seen } };
  }
}
