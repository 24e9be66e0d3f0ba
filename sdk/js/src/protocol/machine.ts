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

import type { Outcome, SessionEvent } from "../events.js";
import { Connections } from "./connections.js";
import type { Effect } from "./effects.js";
import { type Ending, refused, type ServerError } from "./endings.js";
import { speechOf } from "./frames.js";
import type { Random } from "./retry.js";
import { SessionState } from "./state.js";
import { type NewSession, type Outgoing, SessionStream } from "./stream.js";
import { eventsOf, type Opened, type Progress, type WireEvent } from "./wire.js";
import { problemFrom } from "./wire-parts.js";

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
  #connections: Connections<SessionEvent>;
  #stream: SessionStream | null = null;

  constructor({ newSession, random, reconnectMs }: ProtocolOptions) {
    this.#newSession = newSession;
    this.#connections = new Connections({ subject: this.state, random, reconnectMs });
  }

  // ---- queries of the shell ----

  /** Whether the session is open on the current connection. */
  get opened(): boolean {
    return this.#connections.opened;
  }

  /** Returns when to call `onTimer`; null if nothing is due. */
  nextDeadline(): number | null {
    return this.#stream?.nextDeadline() ?? null;
  }

  /** Returns why the connection ended, by its close code and the gateway's events. */
  ending(now: number, code: number, said: string): Ending {
    return this.#connections.ending(now, code, said);
  }

  // ---- the connection ----

  /** A connection is about to be opened. Returns the deadline for that. */
  onConnecting(now: number): number {
    return this.#connections.onConnecting(now);
  }

  /** A new connection is open; its first message is Open. */
  onConnected(now: number): void {
    this.#stream = new SessionStream(this.#connections.onConnected(now));
  }

  /** A text frame has arrived. One without events only shows that the gateway is alive. */
  onText(now: number, frame: string): Effect[] {
    this.#connections.onText(frame, eventsOf, (_, event) => {
      if (this.#stream !== null) {
        this.#onEvent(now, this.#stream, event);
      }
    });
    return this.#connections.out();
  }

  /** A binary frame has arrived: the speech of the result that follows. */
  onBinary(frame: ArrayBuffer): Effect[] {
    this.#connections.hear();
    const speech = speechOf(frame);
    // A newer gateway may send frames that this version does not know.
    if (speech !== null && this.#connections.live?.opened === true) {
      if (this.#stream?.speech.put(speech.index, speech.data) === false) {
        this.#fault("INVALID_MESSAGE", "sent too much speech before its results");
      }
    }
    return this.#connections.out();
  }

  #onEvent(now: number, stream: SessionStream, event: WireEvent): void {
    switch (event.kind) {
      case "opened":
        this.#onOpened(now, stream, event);
        break;
      case "audioAck":
        if (this.state.kept.ack(event.nextSeq, event.keepSeq)) {
          this.#connections.progress();
        }
        break;
      case "progress":
        this.#onProgress(event.index, event.event);
        break;
      case "outcome":
        this.#onOutcome(now, stream, event.event);
        break;
      case "goAway":
        this.#connections.onGoAway(now, event);
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
      this.#connections.do({ do: "give", event });
    }
  }

  #onOpened(now: number, stream: SessionStream, opened: Opened): void {
    const { opened: isOpen, resumes } = stream.connection;
    if (isOpen) {
      return;
    }
    const state = this.state;
    if (!resumes && (opened.sessionId === "" || opened.resumeToken === "")) {
      const what = "opened a session without sessionId or resumeToken";
      this.#fault("INVALID_MESSAGE", what);
      return;
    }
    if (opened.nextSeq < state.kept.first) {
      const what = `asked again for chunk ${opened.nextSeq}, which it had acknowledged`;
      this.#fault("OUT_OF_ORDER", what);
      return;
    }
    state.sessionId = opened.sessionId || state.sessionId;
    state.resumeToken = opened.resumeToken || state.resumeToken;
    state.limits = opened.limits;
    state.traceparent = opened.traceparent;
    const { silenceMs, limits } = opened;
    const announced = { silenceMs, resumeWithinMs: limits.resumeWithinMs };
    const awayMs = this.#connections.onOpened(now, announced);
    state.kept.beginAt(opened.nextSeq);
    if (resumes) {
      state.resumes += 1;
      const event = { type: "resumed", awayMs, chunksAgain: state.kept.toRepeat } as const;
      this.#connections.do({ do: "give", event });
    }
  }

  #onOutcome(now: number, stream: SessionStream, outcome: Outcome): void {
    const state = this.state;
    const speech = stream.speech.take(outcome.index);
    state.expect(outcome.index);
    if (outcome.index < state.seen) {
      state.repeated += 1;
      return;
    }
    if (outcome.index > state.seen) {
      this.#fault("OUT_OF_ORDER", `sent index ${outcome.index} before ${state.seen}`);
      return;
    }
    this.#connections.progress();
    stream.confirmSoon(now);
    if (outcome.type === "result") {
      state.results += 1;
      this.#connections.do({
        do: "give",
        event: speech === undefined ? outcome : { ...outcome, speech },
      });
    } else {
      state.missing += 1;
      this.#connections.do({ do: "give", event: outcome });
    }
  }

  #onError(stream: SessionStream, error: ServerError): void {
    const { connection } = stream;
    connection.lastError = error;
    if (!connection.opened) {
      this.#connections.end(refused(error));
      return;
    }
    const expected = error.metadata.expected_seq ?? "";
    if (/^\d{1,16}$/.test(expected)) {
      // The gateway refuses a chunk and keeps the connection, so this is not why it may end later.
      connection.lastError = null;
      const isGap = (error.metadata.seq ?? expected) !== expected;
      if (!this.#sendAgain(stream, Number(expected), isGap)) {
        return;
      }
    }
    this.#connections.do({ do: "give", event: problemFrom(error) });
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
      this.#fault("OUT_OF_ORDER", what);
    } else if (state.kept.unacknowledged > 0 && !state.closeWritten) {
      state.over = true;
      const what = "the server closed the session before the app";
      this.#connections.do({ do: "fail", error: state.lost("CLOSED", what) });
      this.#connections.end({ kind: "left" });
    } else {
      stream.confirmDue = true;
      this.#connections.finish();
      this.#connections.end({ kind: "left" }, true);
    }
  }

  #fault(reason: string, what: string): void {
    this.#connections.fault(reason, what);
  }

  /** The time of `nextDeadline` has come. */
  onTimer(now: number): Effect[] {
    this.#stream?.onTimer(now);
    this.#connections.onTimer(now);
    return this.#connections.out();
  }

  /** The connection has ended, or could not be opened. Unacknowledged chunks stay. */
  onDisconnected(now: number, ending: Ending): Effect[] {
    this.#stream = null;
    this.#connections.onDisconnected(now, ending);
    return this.#connections.out();
  }

  /** Returns the next frame to write; null if there is none now. */
  take(): Outgoing | null {
    return this.#stream?.take(this.state, this.#newSession) ?? null;
  }
}
