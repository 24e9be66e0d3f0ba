/** Decides what follows when a connection has ended. No I/O, no clock. */

import type { Failure } from "../errors.js";
import type { Effect } from "./effects.js";
import { type Ending, inWords, refused, type ServerError } from "./endings.js";
import { type Random, Retries } from "./retry.js";

/** It fails after this many connections in a row on which the server broke the contract. */
export const MAX_FAULTS = 5;
/** How long a gateway that has not answered a resume may still take over the session. */
const LATE_RESUME_MS = 60_000;

/** A retry cannot help: no permission, the session or the room is gone, or it is no gateway. */
const FATAL = new Set([
  "UNAUTHENTICATED",
  "PERMISSION_DENIED",
  "SESSION_NOT_FOUND",
  "ROOM_NOT_FOUND",
  "ROOM_CLOSED",
  "BAD_ADDRESS",
  // Only in HTTP refusals.
  "WRONG_ORIGIN",
  "WRONG_HOST",
  "NOT_FOUND",
]);

/** What lives on over several connections: a session, or a listener. */
export interface Subject {
  /** Whether a gateway has opened it, so that it can be resumed. */
  readonly isKnown: boolean;
  /** Whether it is closed or lost. */
  over: boolean;
  /** Whether a refusal for this reason says that everything was done. */
  isDoneBy(reason: string): boolean;
  /** All is done. */
  finish(): void;
  /** Returns the error of one that no gateway has opened, and that a retry cannot help. */
  refused(error: ServerError): Failure;
  /** Returns the error of one that no gateway has opened in time. */
  unavailable(reason: string, message: string, retryAfterMs: number): Failure;
  /** Returns the error that says what is lost if it ends now. */
  lost(reason: string, message: string): Failure;
}

/** How far a connection had come when it ended. */
export interface Reached {
  /** The gateway had answered its first message. */
  readonly opened: boolean;
  /** It asked to resume. */
  readonly askedToResume: boolean;
}

/** The effect that follows the end of a connection. */
export type Next = Extract<Effect<never>, { do: "retry" | "fail" | "over" }>;

export class Reconnection {
  #retries: Retries;
  #faults = 0;
  /** The last refusal of a first message since one was last answered. */
  #refusal: ServerError | null = null;
  #lateResumeUntil = 0;

  /** @param reconnectMs how long to try before giving up; null: as long as the server allows. */
  constructor(
    private readonly subject: Subject,
    random: Random,
    reconnectMs: number | null,
  ) {
    this.#retries = new Retries(random, reconnectMs);
  }

  /** A connection is about to be opened. Returns when the gateway must have answered. */
  connecting(now: number): number {
    this.#retries.away(now);
    return this.#retries.answerBy(now);
  }

  /** The session is open. Returns for how many milliseconds it was not. */
  opened(now: number, resumeWithinMs: number): number {
    this.#refusal = null;
    return this.#retries.opened(now, resumeWithinMs);
  }

  /** The current connection has brought the session forward. */
  progress(): void {
    this.#faults = 0;
    this.#retries.progress();
  }

  /** The server broke the contract. */
  fault(): void {
    this.#faults += 1;
  }

  /** The connection has ended, or could not be opened. */
  next(now: number, ending: Ending, reached: Reached): Next {
    this.#retries.away(now);
    if (!reached.opened && reached.askedToResume && ending.kind === "lost") {
      this.#lateResumeUntil = now + LATE_RESUME_MS;
    }
    if (ending.kind === "refused") {
      return this.#afterRefusal(now, reached, ending.error, ending.final);
    }
    return this.#retry(now, ending, ending.kind === "moved" ? ending.afterMs : 0);
  }

  #afterRefusal(now: number, reached: Reached, error: ServerError, final: boolean): Next {
    const { reason, message } = error;
    if (this.subject.isDoneBy(reason)) {
      return { do: "over" };
    }
    if (this.#isFinal(now, reached, error, final)) {
      const { isKnown } = this.subject;
      const why = isKnown ? this.subject.lost(reason, message) : this.subject.refused(error);
      return { do: "fail", error: why };
    }
    if (reached.opened && reason === "INVALID_MESSAGE") {
      this.#faults += 1;
    }
    // That one gateway is draining says nothing about the others.
    if (!reached.opened && reason !== "DRAINING") {
      this.#refusal = error;
    }
    return this.#retry(now, refused(error), error.retryAfterMs);
  }

  /** Whether a retry cannot help. */
  #isFinal(now: number, reached: Reached, { reason }: ServerError, final: boolean): boolean {
    if (reason === "SESSION_TAKEN_OVER") {
      // A resume that this client abandoned may have taken over; true once for each.
      const wasUs = now < this.#lateResumeUntil;
      this.#lateResumeUntil = 0;
      return !wasUs;
    }
    if (reason === "ROOM_FULL") {
      // One that was in the room may find a place in it again.
      return !this.subject.isKnown;
    }
    return final || FATAL.has(reason) || (!reached.opened && reason === "INVALID_MESSAGE");
  }

  #retry(now: number, ending: Ending, askedMs: number): Next {
    if (this.#faults >= MAX_FAULTS) {
      const what = `${MAX_FAULTS} connections in a row failed: ${inWords(ending)}`;
      return this.#fail("BROKEN_PROMISE", what, 0);
    }
    // A quota has no room before the time that the server gave.
    const strictly = ending.kind === "refused" && ending.error.reason === "QUOTA_EXCEEDED";
    const moved = ending.kind === "moved";
    const wait = this.#retries.nextWait(now, { askedMs, moved, strictly });
    return wait === null ? this.#giveUp(ending, askedMs) : { do: "retry", afterMs: wait };
  }

  #giveUp(ending: Ending, askedMs: number): Next {
    const said = ending.kind === "refused" ? ending.error : this.#refusal;
    const reason = said?.reason ?? "UNREACHABLE";
    const within = `${this.#retries.withinMs / 1000} s`;
    const what = `no gateway accepted it within ${within}; last: ${inWords(ending)}`;
    return this.#fail(reason, what, askedMs);
  }

  #fail(reason: string, what: string, retryAfterMs: number): Next {
    // What a gateway had opened is lost; otherwise nothing has begun.
    const error = this.subject.isKnown
      ? this.subject.lost(reason, what)
      : this.subject.unavailable(reason, what, retryAfterMs);
    return { do: "fail", error };
  }
}
