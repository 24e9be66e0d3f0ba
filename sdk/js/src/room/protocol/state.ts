/** What a listener knows beyond any one connection. No I/O, no clock. */

import { ListenerLostError, RoomRefusedError, RoomUnavailableError } from "../../errors.js";
import type { ServerError } from "../../protocol/endings.js";
import type { Subject } from "../../protocol/reconnection.js";
import type { Listening, RoomInfo } from "../events.js";
import { Chain } from "./chain.js";

/** Totals of a listener. */
export interface ListenerCounts {
  /** Utterances that were given to the app. */
  readonly said: number;
  /** Utterances that were reported missing. */
  readonly notSaid: number;
  /** Utterances that arrived again after a reconnection and were dropped. */
  readonly repeated: number;
  /** Reconnections. */
  readonly rejoins: number;
}

/** Facts that outlive a connection. */
export class ListenerState implements Subject {
  readonly chain = new Chain();
  /** What the app wants to receive. */
  wanted: Listening;
  /** What the server has confirmed; also what the next connection asks for at first. */
  confirmed: Listening;
  /** Why the server refused the last change; null if it did not. */
  changeError: ServerError | null = null;
  /** Empty until the listener is in the room. */
  memberId = "";
  /** As the server described it last; null until the listener is in the room. */
  room: RoomInfo | null = null;
  /** Whether the app has left the room. */
  leaving = false;
  /** Whether the room was closed. */
  isRoomClosed = false;
  over = false;
  said = 0;
  notSaid = 0;
  repeated = 0;
  rejoins = 0;

  constructor(listening: Listening) {
    this.wanted = this.confirmed = listening;
  }

  get isKnown(): boolean {
    return this.chain.started;
  }

  get counts(): ListenerCounts {
    const { said, notSaid, repeated, rejoins } = this;
    return { said, notSaid, repeated, rejoins };
  }

  /** Whether the server has confirmed or refused what the app wants to receive. */
  get isSettled(): boolean {
    return isSame(this.wanted, this.confirmed) || this.changeError !== null;
  }

  /** The app wants to receive something else. */
  change(listening: Listening): void {
    this.wanted = listening;
    this.changeError = null;
  }

  /** The server refuses a change. */
  refuseChange(asked: Listening, error: ServerError): void {
    if (isSame(this.wanted, asked)) {
      this.wanted = this.confirmed;
      this.changeError = error;
    }
  }

  /** A room that was closed meanwhile is left as one that is closed. */
  isDoneBy(reason: string): boolean {
    return reason === "ROOM_CLOSED" && this.isKnown;
  }

  finish(): void {
    this.over = true;
  }

  refused({ reason, message, fieldViolations }: ServerError): RoomRefusedError {
    return new RoomRefusedError(reason, message, fieldViolations);
  }

  unavailable(reason: string, message: string, retryAfterMs: number): RoomUnavailableError {
    return new RoomUnavailableError(reason, message, retryAfterMs);
  }

  lost(reason: string, message: string): ListenerLostError {
    return new ListenerLostError(reason, message, this.chain.position);
  }
}

export function isSame(one: Listening, other: Listening): boolean {
  return (
    one.language.toLowerCase() === other.language.toLowerCase() &&
    one.captions === other.captions &&
    one.speech === other.speech &&
    one.originalAudio === other.originalAudio
  );
}
