/**
 * The client side of a session: what to send on which event. No I/O, no clock, no logging.
 *
 * Each method handles one event and returns the effects that the shell has to carry out. Every
 * event of a connection carries the time, in milliseconds of a monotonic clock. `take` returns the
 * next frame to write, and `nextDeadline` says when to call `onTimer`. A session over its
 * connections:
 *
 *     a connection opens    send Open: a new session, or resume once a gateway has answered Opened
 *     Opened                send unacknowledged chunks, from where Opened says; then new ones
 *     AudioAck              forget the chunks below, except those that a node holds
 *     Result, Missing       the next index: give it to the app and confirm it soon
 *                           an earlier index: drop it, it is a repeat
 *                           a later index: end the connection, so that the others arrive again
 *     GoAway                end the connection when its time has come
 *     the connection ends   try another gateway until one opens the session or the time is up
 *     close                 send Close after the last chunk, on every connection until Closed
 *     Closed                confirm once more, and end
 */

import type { Outcome } from "../events.js";
import type { Effect } from "./effects.js";
import { type Ending, inWords, lost, refused, type ServerError } from "./endings.js";
import { speechOf } from "./frames.js";
import { Reconnection } from "./reconnection.js";
import type { Random } from "./retry.js";
import { Patience, Silence } from "./silence.js";
import { SessionState } from "./state.js";
import { type NewSession, type Outgoing, SessionStream } from "./stream.js";
import { eventsOf, type Opened, problemFrom, type Progress, type WireEvent } from "./wire.js";

const BEFORE_OPENED = new Set<WireEvent["kind"]>(["opened", "error", "goAway"]);

export interface ProtocolOptions {
  /** The request for the session. */
  readonly newSession: NewSession;
  /** Randomizes the waits between attempts to connect. */
  readonly random: Random;
  /** How long to try before giving up; null: as long as the server allows. */
  readonly reconnectMs: number | null;
}

/** One session, over all its connections. */
export class SessionProtocol {
  /**
   * The facts that outlive a connection. The app's side adds chunks to `state.kept` and sets
   * `state.playing` and `state.closing`; the protocol changes everything else.
   */
  readonly state = new SessionState();
  #newSession: NewSession;
  #reconnection: Reconnection;
  #patience = new Patience();
  #stream: SessionStream | null = null;
  #effects: Effect[] = [];

  constructor({ newSession, random, reconnectMs }: ProtocolOptions) {
    this.#newSession = newSession;
    this.#reconnection = new Reconnection(this.state, random, reconnectMs);
  }

  // ---- queries of the shell ----

  /** Whether the session is open on the current connection. */
  get opened(): boolean {
    return this.#stream?.opened ?? false;
  }

  /** Returns when to call `onTimer`; null if nothing is due. */
  nextDeadline(): number | null {
    return this.#stream?.nextDeadline() ?? null;
  }

  /** Returns why the connection ended, by its close code and the gateway's events. */
  ending(now: number, code: number, said: string): Ending {
    return this.#stream?.ending(now, code, said) ?? lost("the connection ended");
  }

  // ---- the connection ----

  /** A connection is about to be opened. Returns the deadline for that. */
  onConnecting(now: number): number {
    return this.#reconnection.connecting(now);
  }

  /** A new connection is open; its first message is Open. */
  onConnected(now: number): void {
    const openedBy = this.onConnecting(now);
    this.#stream = new SessionStream(this.state.sessionId !== "", openedBy);
  }

  /** A text frame has arrived. One without events only shows that the gateway is alive. */
  onText(now: number, frame: string): Effect[] {
    this.#hear();
    for (const event of this.#read(frame)) {
      const stream = this.#stream;
      if (stream === null || stream.closing) {
        break;
      }
      if (stream.opened || BEFORE_OPENED.has(event.kind)) {
        stream.lastError = null;
        this.#onEvent(now, stream, event);
      }
    }
    return this.#out();
  }

  /** Returns the events of a frame. Ends the connection if the frame is malformed. */
  #read(frame: string): readonly WireEvent[] {
    const stream = this.#stream;
    if (stream === null || stream.closing) {
      return [];
    }
    try {
      return eventsOf(frame);
    } catch (error) {
      // Whatever the server sends, the app must not end with an uncaught exception.
      const why = error instanceof Error ? error.message : String(error);
      this.#fault(stream, "INVALID_MESSAGE", `sent a malformed message: ${why}`);
      return [];
    }
  }

  /** A binary frame has arrived: the speech of the result that follows. */
  onBinary(frame: ArrayBuffer): Effect[] {
    this.#hear();
    const stream = this.#stream;
    const speech = speechOf(frame);
    // A newer gateway may send frames that this version does not know.
    if (speech !== null && stream?.opened === true && !stream.closing) {
      if (!stream.putSpeech(speech)) {
        this.#fault(stream, "INVALID_MESSAGE", "sent too much speech before its results");
      }
    }
    return this.#out();
  }

  #hear(): void {
    if (this.#stream?.silence != null) {
      this.#stream.silence.heard = true;
    }
  }

  #onEvent(now: number, stream: SessionStream, event: WireEvent): void {
    switch (event.kind) {
      case "opened":
        this.#onOpened(now, stream, event);
        break;
      case "audioAck":
        if (this.state.kept.ack(event.nextSeq, event.keepSeq)) {
          this.#reconnection.progress();
        }
        break;
      case "progress":
        this.#onProgress(event.index, event.event);
        break;
      case "outcome":
        this.#onOutcome(now, stream, event.event);
        break;
      case "goAway":
        stream.leaveAt = now + event.afterMs;
        stream.leaveWhy = event.why;
        break;
      case "error":
        this.#onError(stream, event.error);
        break;
      case "closed":
        this.#onClosed(stream, event.results + event.missing);
        break;
      case "unknown":
        break;
    }
  }

  #onProgress(index: number, event: Progress | null): void {
    this.state.expect(index);
    const isLate = event?.type === "partial" && index < this.state.seen;
    if (event !== null && !isLate) {
      this.#do({ do: "give", event });
    }
  }

  #onOpened(now: number, stream: SessionStream, opened: Opened): void {
    if (stream.opened) {
      return;
    }
    const state = this.state;
    if (!stream.resumes && (opened.sessionId === "" || opened.resumeToken === "")) {
      const what = "opened a session without sessionId or resumeToken";
      this.#fault(stream, "INVALID_MESSAGE", what);
      return;
    }
    if (opened.nextSeq < state.kept.first) {
      const what = `asked again for chunk ${opened.nextSeq}, which it had acknowledged`;
      this.#fault(stream, "OUT_OF_ORDER", what);
      return;
    }
    stream.opened = true;
    state.sessionId = opened.sessionId || state.sessionId;
    state.resumeToken = opened.resumeToken || state.resumeToken;
    state.limits = opened.limits;
    state.traceparent = opened.traceparent;
    const silenceMs = this.#patience.silenceMs(now, opened.silenceMs);
    stream.silence = silenceMs > 0 ? new Silence(now, silenceMs) : null;
    const awayMs = this.#reconnection.opened(now, opened.limits.resumeWithinMs);
    state.kept.beginAt(opened.nextSeq);
    if (stream.resumes) {
      state.resumes += 1;
      const event = { type: "resumed", awayMs, chunksAgain: state.kept.toRepeat } as const;
      this.#do({ do: "give", event });
    }
  }

  #onOutcome(now: number, stream: SessionStream, outcome: Outcome): void {
    const state = this.state;
    const speech = stream.takeSpeech(outcome.index);
    state.expect(outcome.index);
    if (outcome.index < state.seen) {
      state.repeated += 1;
      return;
    }
    if (outcome.index > state.seen) {
      this.#fault(stream, "OUT_OF_ORDER", `sent index ${outcome.index} before ${state.seen}`);
      return;
    }
    this.#reconnection.progress();
    stream.confirmSoon(now);
    if (outcome.type === "result") {
      state.results += 1;
      this.#do({ do: "give", event: speech === undefined ? outcome : { ...outcome, speech } });
    } else {
      state.missing += 1;
      this.#do({ do: "give", event: outcome });
    }
  }

  #onError(stream: SessionStream, error: ServerError): void {
    stream.lastError = error;
    if (!stream.opened) {
      this.#endStream(stream, refused(error));
      return;
    }
    const expected = error.metadata.expected_seq ?? "";
    if (/^\d{1,16}$/.test(expected)) {
      // The gateway refuses a chunk and keeps the connection, so this is not why it may end later.
      stream.lastError = null;
      const isGap = (error.metadata.seq ?? expected) !== expected;
      if (!this.#sendAgain(stream, Number(expected), isGap)) {
        return;
      }
    }
    this.#do({ do: "give", event: problemFrom(error) });
  }

  /**
   * Sends chunks again, from one that was refused; without its audio and time, which the server
   * cannot use. Returns false if the refused chunk was only in flight behind that one.
   */
  #sendAgain(stream: SessionStream, seq: number, isGap: boolean): boolean {
    if (isGap && stream.refused.has(seq)) {
      return false;
    }
    // Chunks are sent in order, so a gap is not ours; sending the same again fixes it.
    if (stream.refused.get(seq) !== "emptied" && this.state.kept.againFrom(seq, !isGap)) {
      stream.refused.set(seq, isGap ? "gap" : "emptied");
    }
    return true;
  }

  #onClosed(stream: SessionStream, total: number): void {
    const state = this.state;
    if (total > state.seen) {
      state.expect(total - 1);
      const what = `closed the session after ${state.seen} of ${total} results`;
      this.#fault(stream, "OUT_OF_ORDER", what);
    } else if (state.kept.unacknowledged > 0 && !state.closeWritten) {
      state.over = true;
      const what = "the server closed the session before the app";
      this.#do({ do: "fail", error: state.lost("CLOSED", what) });
      this.#endStream(stream, { kind: "left" });
    } else {
      stream.confirmDue = true;
      this.#beOver();
      this.#endStream(stream, { kind: "left" }, true);
    }
  }

  /** Ends the connection because the server broke the contract, in the hope of a better one. */
  #fault(stream: SessionStream, reason: string, what: string): void {
    this.#reconnection.fault();
    const details = { fieldViolations: [], metadata: {}, retryAfterMs: 0 };
    const message = `the server ${what}; reconnecting`;
    this.#do({ do: "give", event: { type: "problem", reason, message, ...details } });
    this.#endStream(stream, lost(`the server ${what}`));
  }

  /** The time of `nextDeadline` has come. */
  onTimer(now: number): Effect[] {
    const stream = this.#stream;
    if (stream !== null && !stream.closing) {
      if (stream.confirmAt !== null && stream.confirmAt <= now) {
        stream.confirmAt = null;
        stream.confirmDue = true;
      }
      if (stream.leaveAt !== null && stream.leaveAt <= now) {
        this.#endStream(stream, { kind: "moved", afterMs: 0, why: stream.leaveWhy });
      } else if (!stream.opened && stream.openedBy <= now) {
        this.#endStream(stream, lost("Open was not answered in time", true));
      } else if (stream.silence !== null && stream.silence.due <= now) {
        this.#onBeat(now, stream, stream.silence);
      }
    }
    return this.#out();
  }

  #onBeat(now: number, stream: SessionStream, silence: Silence): void {
    const verdict = silence.beat(now);
    if (verdict === "ask") {
      stream.askDue = true;
    } else if (verdict === "silent") {
      this.#patience.ranOut(now);
      const what = `the gateway sent nothing for ${silence.silenceMs} ms`;
      this.#endStream(stream, lost(what, true));
    }
  }

  // ---- the end of a connection ----

  /** The connection has ended, or could not be opened. Unacknowledged chunks stay. */
  onDisconnected(now: number, ending: Ending): Effect[] {
    const stream = this.#stream;
    this.#stream = null;
    if (this.state.over) {
      return this.#out();
    }
    const opened = stream?.opened ?? false;
    if (opened) {
      this.#do({ do: "give", event: { type: "reconnecting", why: inWords(ending) } });
    }
    const askedToResume = stream !== null && stream.resumes && stream.openTaken;
    const next = this.#reconnection.next(now, ending, { opened, askedToResume });
    if (next.do === "over") {
      this.#beOver();
    } else {
      this.state.over = next.do === "fail";
      this.#do(next);
    }
    return this.#out();
  }

  #beOver(): void {
    this.state.over = true;
    this.state.kept.forget();
    this.#do({ do: "over" });
  }

  #endStream(stream: SessionStream, ending: Ending, graceful = false): void {
    if (!stream.closing) {
      stream.closing = true;
      this.#do({ do: "close", ending, graceful });
    }
  }

  /** Returns the next frame to write; null if there is none now. */
  take(): Outgoing | null {
    return this.#stream?.take(this.state, this.#newSession) ?? null;
  }

  #do(effect: Effect): void {
    this.#effects.push(effect);
  }

  #out(): Effect[] {
    const effects = this.#effects;
    this.#effects = [];
    return effects;
  }
}
