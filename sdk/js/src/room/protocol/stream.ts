/** What a listener says over one connection. No I/O, no clock. */

import type { Connection } from "../../protocol/connection.js";
import { EarlyAudio } from "../../protocol/early-audio.js";
import type { Empty } from "../../protocol/stream.js";
import type { Listening } from "../events.js";
import type { ListenerState } from "./state.js";

/** Who joins which room. */
export interface Joining {
  readonly roomId: string;
  readonly joinToken: string;
  readonly name: string;
  readonly status: boolean;
}

/** A message to the gateway in protobuf's JSON form. */
export type ListenerMessage =
  | { readonly join: JoinRoom }
  | { readonly change: { readonly listening: Listening } }
  | { readonly leave: Empty };

export interface JoinRoom extends Joining {
  readonly listening: Listening;
  readonly memberId?: string;
  readonly position?: number;
}

/**
 * One connection of a listener: what it has received, and what was written to it.
 *
 * As with sessions, what the listener wants is a fact of its state. `take` compares it with what this
 * connection has asked for, so nothing depends on where the previous one broke.
 */
export class ListenerStream {
  /** The change that the gateway has not answered yet. */
  asked: Listening | null = null;
  /** Audio by room index. */
  readonly speech = new EarlyAudio<number>();
  readonly original = new EarlyAudio<number>();
  #leaveTaken = false;

  constructor(readonly connection: Connection) {}

  /** Returns the next message to write; null if there is none now. */
  take(state: ListenerState, joining: Joining): ListenerMessage | null {
    const { connection } = this;
    if (!connection.openTaken) {
      connection.openTaken = true;
      return { join: this.#join(state, joining) };
    }
    if (!connection.opened) {
      return null;
    }
    if (state.leaving) {
      const isFirst = !this.#leaveTaken;
      this.#leaveTaken = true;
      return isFirst ? { leave: {} } : null;
    }
    if (connection.closing || this.asked !== null || state.isSettled) {
      return null;
    }
    this.asked = state.wanted;
    return { change: { listening: state.wanted } };
  }

  #join(state: ListenerState, joining: Joining): JoinRoom {
    const join = { ...joining, listening: state.confirmed };
    return this.connection.resumes
      ? { ...join, memberId: state.memberId, position: state.chain.position }
      : join;
  }
}
