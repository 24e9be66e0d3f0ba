/**
 * The connections of a session or a listener, one after the other. No I/O, no clock.
 *
 * It holds what has to happen on any connection: reading frames, noticing that a gateway is frozen,
 * leaving one that asks for it, and connecting again. What the messages mean is the protocol's.
 */

import type { Problem, Reconnecting } from "../events.js";
import { Connection } from "./connection.js";
import type { Effect } from "./effects.js";
import { type Ending, inWords, lost } from "./endings.js";
import { Reconnection, type Subject } from "./reconnection.js";
import type { Random } from "./retry.js";
import { Patience, Silence } from "./silence.js";

/** Kinds of events that a gateway may send before it has answered the first message. */
const BEFORE_OPENED = new Set(["opened", "joined", "error", "goAway"]);

/** What a gateway announces when it answers the first message. */
export interface Announced {
  /** How long it may be silent; 0: forever. */
  readonly silenceMs: number;
  /** How long it waits to be resumed. */
  readonly resumeWithinMs: number;
}

export interface ConnectionsOptions {
  /** What lives on over the connections. */
  readonly subject: Subject;
  /** Randomizes the waits between attempts to connect. */
  readonly random: Random;
  /** How long to try before giving up; null: as long as the server allows. */
  readonly reconnectMs: number | null;
}

/** `E`: the events of the app. */
export class Connections<E> {
  #subject: Subject;
  #reconnection: Reconnection;
  #patience = new Patience();
  #current: Connection | null = null;
  #effects: Effect<E | Reconnecting | Problem>[] = [];

  constructor({ subject, random, reconnectMs }: ConnectionsOptions) {
    this.#subject = subject;
    this.#reconnection = new Reconnection(subject, random, reconnectMs);
  }

  /** Whether the gateway has answered the first message of the current connection. */
  get opened(): boolean {
    return this.#current?.opened ?? false;
  }

  /** The current connection, unless it is being ended. */
  get live(): Connection | null {
    return this.#current?.closing === true ? null : this.#current;
  }

  /** Returns why the connection ended, by its close code and the gateway's events. */
  ending(now: number, code: number, said: string): Ending {
    return this.#current?.ending(now, code, said) ?? lost("the connection ended");
  }

  // ---- the connection ----

  /** A connection is about to be opened. Returns the deadline for that. */
  onConnecting(now: number): number {
    return this.#reconnection.connecting(now);
  }

  /** A new connection is open. */
  onConnected(now: number): Connection {
    this.#current = new Connection(this.#subject.isKnown, this.onConnecting(now));
    return this.#current;
  }

  /**
   * Handles the events of a text frame, as long as the connection is kept.
   *
   * @param parse returns the events of a frame, or throws if it is malformed.
   */
  onText<W extends { readonly kind: string }>(
    frame: string,
    parse: (frame: string) => readonly W[],
    handle: (connection: Connection, event: W) => void,
  ): void {
    this.hear();
    for (const event of this.#read(frame, parse)) {
      const connection = this.live;
      if (connection === null) {
        break;
      }
      if (connection.opened || BEFORE_OPENED.has(event.kind)) {
        connection.lastError = null;
        handle(connection, event);
      }
    }
  }

  /** Returns the events of a frame. Ends the connection if the frame is malformed. */
  #read<W>(frame: string, parse: (frame: string) => readonly W[]): readonly W[] {
    if (this.live === null) {
      return [];
    }
    try {
      return parse(frame);
    } catch (error) {
      // Whatever the server sends, the app must not end with an uncaught exception.
      const why = error instanceof Error ? error.message : String(error);
      this.fault("INVALID_MESSAGE", `sent a malformed message: ${why}`);
      return [];
    }
  }

  /** The gateway has sent something. */
  hear(): void {
    if (this.#current?.silence != null) {
      this.#current.silence.heard = true;
    }
  }

  /** The gateway has answered the first message. Returns for how long there was no connection. */
  onOpened(now: number, { silenceMs, resumeWithinMs }: Announced): number {
    if (this.#current !== null) {
      const limitMs = this.#patience.silenceMs(now, silenceMs);
      this.#current.opened = true;
      this.#current.silence = limitMs > 0 ? new Silence(now, limitMs) : null;
    }
    return this.#reconnection.opened(now, resumeWithinMs);
  }

  /** The gateway wants the client to connect elsewhere. */
  onGoAway(now: number, { afterMs, why }: { afterMs: number; why: string }): void {
    if (this.#current !== null) {
      this.#current.leaveAt = now + afterMs;
      this.#current.leaveWhy = why;
    }
  }

  /** The current connection has brought things forward. */
  progress(): void {
    this.#reconnection.progress();
  }

  /** Ends the connection because the server broke the contract, in the hope of a better one. */
  fault(reason: string, what: string): void {
    this.#reconnection.fault();
    this.leave(reason, what);
  }

  /** Ends the connection because of something that another one may bring. */
  leave(reason: string, what: string): void {
    const details = { fieldViolations: [], metadata: {}, retryAfterMs: 0 };
    const message = `the server ${what}; reconnecting`;
    this.do({ do: "give", event: { type: "problem", reason, message, ...details } });
    this.end(lost(`the server ${what}`));
  }

  /** The time of `Connection.nextDeadline` has come. */
  onTimer(now: number): void {
    const ending = this.live?.onTimer(now, this.#patience) ?? null;
    if (ending !== null) {
      this.end(ending);
    }
  }

  // ---- the end of a connection ----

  /** Ends the connection, unless it is being ended already. */
  end(ending: Ending, graceful = false): void {
    const connection = this.live;
    if (connection !== null) {
      connection.closing = true;
      this.do({ do: "close", ending, graceful });
    }
  }

  /** The connection has ended, or could not be opened. */
  onDisconnected(now: number, ending: Ending): void {
    const connection = this.#current;
    this.#current = null;
    if (this.#subject.over) {
      return;
    }
    const opened = connection?.opened ?? false;
    if (opened) {
      this.do({ do: "give", event: { type: "reconnecting", why: inWords(ending) } });
    }
    const askedToResume = connection !== null && connection.resumes && connection.openTaken;
    const next = this.#reconnection.next(now, ending, { opened, askedToResume });
    if (next.do === "over") {
      this.finish();
    } else {
      this.#subject.over = next.do === "fail";
      this.do(next);
    }
  }

  /** All is done. */
  finish(): void {
    this.#subject.finish();
    this.do({ do: "over" });
  }

  // ---- effects ----

  do(effect: Effect<E | Reconnecting | Problem>): void {
    this.#effects.push(effect);
  }

  /** Returns the effects since the last call. */
  out(): Effect<E | Reconnecting | Problem>[] {
    const effects = this.#effects;
    this.#effects = [];
    return effects;
  }
}
