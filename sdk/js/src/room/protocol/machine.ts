/**
 * The client side of Listen: what to send on which event. No I/O, no clock, no logging.
 *
 * The shell is that of a session (`session/link.ts`). A listener over its connections:
 *
 *     a connection opens       send JoinRoom: as a new member, or with member id and position
 *     Joined                   the listener is in the room; send a change that the app wants
 *     RoomResult, RoomMissing  at or above the position: give it to the app, and move the position
 *                              below the position: drop it, it is a repeat
 *                              if the utterance before it was not given: end the connection, so that
 *                              it arrives again; if it does not, report it as NotSaid
 *     ListeningChanged         the app's change is in effect from a room index on
 *     RoomGoAway               end the connection when its time has come
 *     the connection ends      try another gateway until one answers Joined or the time is up
 *     leave                    send LeaveRoom, and end
 *     RoomClosed               end
 */

import { Connections } from "../../protocol/connections.js";
import type { Effect } from "../../protocol/effects.js";
import { type Ending, refused, type ServerError } from "../../protocol/endings.js";
import type { Random } from "../../protocol/retry.js";
import { problemFrom } from "../../protocol/wire-parts.js";
import type { Heard, Listening, RoomEvent } from "../events.js";
import { inWords, type Range } from "./chain.js";
import { roomAudioOf } from "./frames.js";
import { ListenerState } from "./state.js";
import { type Joining, type ListenerMessage, ListenerStream } from "./stream.js";
import { type Joined, roomEventsOf, type RoomWireEvent } from "./wire.js";

/**
 * How long to look for a gateway once the listener was in the room. Longer than a membership is
 * kept: captions are kept for longer, and what is no longer kept is reported.
 */
export const REJOIN_MS = 300_000;
/** The highest room index that the contract allows. */
const MAX_INDEX = 2 ** 53 - 1;
/** These say something about the gateway, and nothing about a change that was asked for. */
const OF_THE_GATEWAY = new Set(["DRAINING", "BACKPRESSURE", "ROOM_CLOSED"]);

export interface ListenerProtocolOptions {
  /** Who joins which room. */
  readonly joining: Joining;
  /** What it receives at first. */
  readonly listening: Listening;
  /** Randomizes the waits between attempts to connect. */
  readonly random: Random;
  /** How long to try before giving up; null: 10 s at first, and later at least REJOIN_MS. */
  readonly reconnectMs: number | null;
}

/** One listener, over all its connections. */
export class ListenerProtocol {
  /** The facts that outlive a connection. The app's side calls `state.change`. */
  readonly state: ListenerState;
  #joining: Joining;
  #connections: Connections<RoomEvent>;
  #stream: ListenerStream | null = null;
  /** The position at which the server last skipped something. */
  #skippedAt: number | null = null;

  constructor({ joining, listening, random, reconnectMs }: ListenerProtocolOptions) {
    this.state = new ListenerState(listening);
    this.#joining = joining;
    this.#connections = new Connections({ subject: this.state, random, reconnectMs });
  }

  // ---- queries of the shell ----

  /** Whether the listener is in the room on the current connection. */
  get opened(): boolean {
    return this.#connections.opened;
  }

  /** Returns when to call `onTimer`; null if nothing is due. */
  nextDeadline(): number | null {
    return this.#connections.live?.nextDeadline() ?? null;
  }

  /** Returns why the connection ended, by its close code and the gateway's events. */
  ending(now: number, code: number, said: string): Ending {
    return this.#connections.ending(now, code, said);
  }

  /** Returns the next message to write; null if there is none now. */
  take(): ListenerMessage | null {
    return this.#stream?.take(this.state, this.#joining) ?? null;
  }

  // ---- the app ----

  /** The app leaves the room. */
  leave(): Effect<RoomEvent>[] {
    if (!this.state.over) {
      this.state.leaving = true;
      this.#connections.finish();
      this.#connections.end({ kind: "left" }, this.opened);
    }
    return this.#connections.out();
  }

  // ---- the connection ----

  /** A connection is about to be opened. Returns the deadline for that. */
  onConnecting(now: number): number {
    return this.#connections.onConnecting(now);
  }

  /** A new connection is open; its first message is JoinRoom. */
  onConnected(now: number): void {
    this.#stream = new ListenerStream(this.#connections.onConnected(now));
  }

  /** A text frame has arrived. One without events only shows that the gateway is alive. */
  onText(now: number, frame: string): Effect<RoomEvent>[] {
    this.#connections.onText(frame, roomEventsOf, (_, event) => {
      if (this.#stream !== null) {
        this.#onEvent(now, this.#stream, event);
      }
    });
    return this.#connections.out();
  }

  /** A binary frame has arrived: audio of a result that follows. */
  onBinary(frame: ArrayBuffer): Effect<RoomEvent>[] {
    this.#connections.hear();
    const audio = roomAudioOf(frame);
    // A newer gateway may send frames that this version does not know.
    if (audio !== null && this.#connections.live?.opened === true) {
      if (this.#stream?.[audio.kind].put(audio.roomIndex, audio.data) === false) {
        this.#fault("sent too much audio before its results");
      }
    }
    return this.#connections.out();
  }

  #onEvent(now: number, stream: ListenerStream, event: RoomWireEvent): void {
    switch (event.kind) {
      case "joined":
        this.#onJoined(now, stream, event);
        break;
      case "heard":
        this.#onHeard(stream, event.event, event.previous);
        break;
      case "changed":
        this.#onChanged(stream, event.listening, event.position);
        break;
      case "status":
        this.#connections.do({ do: "give", event: { type: "status", ...event.attendance } });
        break;
      case "goAway":
        this.#connections.onGoAway(now, event);
        break;
      case "error":
        this.#onError(stream, event.error);
        break;
      case "closed":
        this.#giveClosed();
        this.#connections.finish();
        this.#connections.end({ kind: "left" }, true);
        break;
      case "unknown":
        break;
    }
  }

  #onJoined(now: number, stream: ListenerStream, joined: Joined): void {
    if (stream.connection.opened) {
      return;
    }
    if (joined.memberId === "") {
      this.#fault("let the listener in without a memberId");
      return;
    }
    const { state } = this;
    const { silenceMs } = joined;
    const resumeWithinMs = Math.max(REJOIN_MS, joined.resumeWithinMs);
    const awayMs = this.#connections.onOpened(now, { silenceMs, resumeWithinMs });
    state.memberId = joined.memberId;
    state.room = joined.room;
    state.chain.join(joined.position);
    if (stream.connection.resumes) {
      state.rejoins += 1;
      const { position } = state.chain;
      this.#connections.do({ do: "give", event: { type: "rejoined", awayMs, position } });
    }
  }

  // ---- what is said ----

  #onHeard(stream: ListenerStream, heard: Heard, previous: number | null): void {
    const { chain } = this.state;
    const whole = withAudio(stream, heard);
    const until = untilOf(heard);
    if (until > MAX_INDEX || (previous ?? -1) >= heard.roomIndex) {
      this.#fault(`sent the room index ${heard.roomIndex} after ${previous ?? "nothing"}`);
      return;
    }
    if (chain.isRepeat(until)) {
      this.state.repeated += 1;
      return;
    }
    const skipped = chain.lostBefore(heard.roomIndex, previous);
    if (skipped !== null && this.#skippedAt !== chain.position) {
      this.#skippedAt = chain.position;
      this.#connections.leave("OUT_OF_ORDER", `skipped ${inWords(skipped)} of the room`);
      return;
    }
    const unsure = chain.unsureBefore(heard.roomIndex);
    if (skipped !== null) {
      this.#report(skipped, heard.language, "OUT_OF_ORDER", "the server skipped it twice");
    } else if (unsure !== null) {
      const what = "the connection broke during a change of language";
      this.#report(unsure, heard.language, "LISTENING_CHANGED", what);
    }
    this.#give(
      chain.isRepeat(heard.roomIndex + 1) ? { ...whole, roomIndex: chain.position } : whole,
    );
  }

  /** Tells the app that it does not get some utterances. */
  #report({ first, until }: Range, language: string, reason: string, message: string): void {
    const nobody = { spokenLanguage: "", sessionId: "", speaker: "" };
    const details = { language, reason, message, lost: [], replayed: false };
    const range = { roomIndex: first, untilIndex: until };
    this.#give({ type: "not-said", ...range, ...nobody, ...details });
  }

  #give(heard: Heard): void {
    const { state } = this;
    const until = untilOf(heard);
    this.#connections.progress();
    if (heard.type === "said") {
      state.said += 1;
    } else {
      state.notSaid += until - heard.roomIndex;
    }
    state.chain.advance(until);
    this.#connections.do({ do: "give", event: heard });
  }

  #onChanged(stream: ListenerStream, listening: Listening, position: number): void {
    if (stream.asked !== null) {
      this.state.confirmed = stream.asked;
      stream.asked = null;
    }
    this.state.chain.change(position);
    this.#connections.do({ do: "give", event: { type: "changed", listening, position } });
  }

  #onError(stream: ListenerStream, error: ServerError): void {
    const { connection } = stream;
    connection.lastError = error;
    if (!connection.opened) {
      this.#connections.end(refused(error));
      return;
    }
    if (stream.asked !== null && !OF_THE_GATEWAY.has(error.reason)) {
      // The connection survives that, so it is not why it may end later.
      connection.lastError = null;
      this.state.refuseChange(stream.asked, error);
      stream.asked = null;
    }
    this.#connections.do({ do: "give", event: problemFrom(error) });
  }

  #fault(what: string): void {
    this.#connections.fault("INVALID_MESSAGE", what);
  }

  /** The time of `nextDeadline` has come. */
  onTimer(now: number): Effect<RoomEvent>[] {
    // A gateway sends signs of life to listeners without being asked.
    this.#connections.onTimer(now);
    return this.#connections.out();
  }

  /** The connection has ended, or could not be opened. The position stays. */
  onDisconnected(now: number, ending: Ending): Effect<RoomEvent>[] {
    const { state } = this;
    if (this.opened) {
      state.chain.break(this.#stream?.asked !== null);
    }
    this.#stream = null;
    const wasOver = state.over;
    this.#connections.onDisconnected(now, ending);
    const effects = this.#connections.out();
    if (!wasOver && effects.some((effect) => effect.do === "over")) {
      this.#giveClosed();
    }
    return [...this.#connections.out(), ...effects];
  }

  #giveClosed(): void {
    this.state.isRoomClosed = true;
    this.#connections.do({ do: "give", event: { type: "closed" } });
  }
}

function untilOf(heard: Heard): number {
  return heard.type === "said" ? heard.roomIndex + 1 : heard.untilIndex;
}

/** Returns a result with the audio that came before it. */
function withAudio(stream: ListenerStream, heard: Heard): Heard {
  const speech = stream.speech.take(heard.roomIndex);
  const originalAudio = stream.original.take(heard.roomIndex);
  return heard.type === "not-said"
    ? heard
    : {
        ...heard,
        ...(speech === undefined ? {} : { speech }),
        ...(originalAudio === undefined ? {} : { originalAudio }),
      };
}
