/** What a session knows beyond any one connection. No I/O, no clock. */

import { SessionLostError, SessionRefusedError, SessionUnavailableError } from "../errors.js";
import type { Limits } from "../events.js";
import type { ServerError } from "./endings.js";
import { KeptChunks } from "./kept-chunks.js";
import type { Subject } from "./reconnection.js";

/** Totals of a session. */
export interface Counts {
  /** Chunks of audio that the app has sent. */
  readonly chunks: number;
  /** Utterances that the server has mentioned. */
  readonly utterances: number;
  /** Results received, and utterances without a result. */
  readonly results: number;
  readonly missing: number;
  /** Results that arrived again after a reconnection and were dropped. */
  readonly repeated: number;
  /** Reconnections. */
  readonly resumes: number;
}

const NO_LIMITS: Limits = {
  maxChunkBytes: 64 * 1024,
  pauseMs: 0,
  maxDurationMs: 0,
  maxLengthBytes: 0,
  resultDeadlineMs: 0,
  resumeWithinMs: 0,
};

/** Facts that outlive a connection. */
export class SessionState implements Subject {
  /** The chunks that the session may still have to send. New chunks are added here. */
  readonly kept = new KeptChunks();
  /** Whether the app is playing speech. */
  playing = false;
  /** Whether the app has closed the session, and whether Close was written to any connection. */
  closing = false;
  closeWritten = false;
  /** Empty until the session is open. */
  sessionId = "";
  resumeToken = "";
  limits = NO_LIMITS;
  traceparent = "";
  /** How often a connection asked to resume. */
  resumeAttempts = 0;
  results = 0;
  missing = 0;
  repeated = 0;
  resumes = 0;
  /** One more than the highest utterance index that the server has mentioned. */
  awaited = 0;
  /** Whether the session is closed or lost. */
  over = false;

  /** The number of results and missing utterances so far; also the next expected index. */
  get seen(): number {
    return this.results + this.missing;
  }

  get isKnown(): boolean {
    return this.sessionId !== "";
  }

  /** A server forgets a session when it has done everything that it was asked to do. */
  isDoneBy(reason: string): boolean {
    const isComplete = this.kept.unacknowledged === 0 && this.seen >= this.awaited;
    return reason === "SESSION_NOT_FOUND" && this.closeWritten && isComplete;
  }

  finish(): void {
    this.over = true;
    this.kept.forget();
  }

  get counts(): Counts {
    return {
      chunks: this.kept.end,
      utterances: this.awaited,
      results: this.results,
      missing: this.missing,
      repeated: this.repeated,
      resumes: this.resumes,
    };
  }

  /** Notes that the server has mentioned this utterance. */
  expect(index: number): void {
    this.awaited = Math.max(this.awaited, index + 1);
  }

  refused({ reason, message, fieldViolations }: ServerError): SessionRefusedError {
    return new SessionRefusedError(reason, message, fieldViolations);
  }

  unavailable(reason: string, message: string, retryAfterMs: number): SessionUnavailableError {
    return new SessionUnavailableError(reason, message, retryAfterMs);
  }

  /** Returns the error that says what is lost if the session ends now. */
  lost(reason: string, message: string, options?: ErrorOptions): SessionLostError {
    const unfinished = {
      unacknowledgedChunks: this.kept.unacknowledged,
      unacknowledgedBytes: this.kept.bytes,
      resultsSeen: this.seen,
    };
    return new SessionLostError(reason, message, unfinished, options);
  }
}
