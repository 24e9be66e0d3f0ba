/** The state of one connection, whatever is said over it. No I/O, no clock. */

import { type Ending, endingOfClose, lost, type ServerError } from "./endings.js";
import type { Patience, Silence } from "./silence.js";

/** One connection from its opening to its end. */
export class Connection {
  /** Whether the gateway has answered the first message. */
  opened = false;
  /** Whether the connection is being ended. Events that still arrive are ignored. */
  closing = false;
  /** Whether the first message was written. */
  openTaken = false;
  /** When the gateway wants the client to have left, and why. */
  leaveAt: number | null = null;
  leaveWhy = "";
  /** The gateway's last event, if that was an error. */
  lastError: ServerError | null = null;
  /** Tracks the gateway's silence; null if the gateway does not promise to answer. */
  silence: Silence | null = null;
  /** Whether to send an empty message, which the gateway has to answer. */
  askDue = false;

  /**
   * @param resumes whether it resumes something; otherwise it asks for something new.
   * @param openedBy when the gateway must have answered.
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
    return earliest(this.opened ? null : this.openedBy, this.leaveAt, this.silence?.due ?? null);
  }

  /** Returns why the connection has to end now; null if it goes on. */
  onTimer(now: number, patience: Patience): Ending | null {
    if (this.leaveAt !== null && this.leaveAt <= now) {
      return { kind: "moved", afterMs: 0, why: this.leaveWhy };
    }
    if (!this.opened && this.openedBy <= now) {
      return lost("the gateway did not answer in time", true);
    }
    const { silence } = this;
    if (silence === null || silence.due > now) {
      return null;
    }
    const verdict = silence.beat(now);
    this.askDue ||= verdict === "ask";
    if (verdict !== "silent") {
      return null;
    }
    patience.ranOut(now);
    return lost(`the gateway sent nothing for ${silence.silenceMs} ms`, true);
  }

  /** Returns why the connection ended: with this code and text, after the gateway's events. */
  ending(now: number, code: number, said: string): Ending {
    const ending = endingOfClose(code, said, this.lastError);
    if (this.leaveAt !== null && (ending.kind === "lost" || ending.kind === "moved")) {
      return { kind: "moved", afterMs: Math.max(0, this.leaveAt - now), why: this.leaveWhy };
    }
    return ending;
  }
}

/** Returns the earliest of some times; null if there is none. */
export function earliest(...times: readonly (number | null)[]): number | null {
  const known = times.filter((time) => time !== null);
  return known.length === 0 ? null : Math.min(...known);
}
