/** A listener of a room, as app developers see it. */

import { RoomRefusedError } from "../errors.js";
import { parseOrigins } from "../session/addresses.js";
import { Channel } from "../session/channel.js";
import type { Sorting } from "../session/inbox.js";
import { TokenSource } from "../session/tokens.js";
import type { Heard, Listening, RoomEvent, RoomInfo } from "./events.js";
import { checkListener, checkListening, type ListenOptions, type RoomOptions } from "./options.js";
import { ListenerProtocol } from "./protocol/machine.js";
import { isSame, type ListenerCounts, type ListenerState } from "./protocol/state.js";
import type { ListenerMessage } from "./protocol/stream.js";

const SORTING: Sorting<RoomEvent, Heard> = {
  isOutcome: (event) => event.type === "said" || event.type === "not-said",
  bytesOf: (event) =>
    event.type === "said" ? event.speech.length + event.originalAudio.length : 0,
  // Only the newest status matters.
  keyOf: (event) => (event.type === "status" ? 0 : null),
};

/**
 * Receives what is said in a room, in one language.
 *
 *     const listener = await room.listen({ language: "es" });
 *     for await (const heard of listener.results()) {
 *       if (heard.type === "said") console.log(heard.speaker, heard.text);
 *     }
 *
 * It reconnects by itself. Each utterance of its language is given once and in order, as said or as
 * not said, whatever happens to connections and gateways.
 */
export class Listener {
  #protocol: ListenerProtocol;
  #state: ListenerState;
  #channel: Channel<RoomEvent, Heard, ListenerMessage>;

  private constructor(room: RoomOptions, options: ListenOptions) {
    const checked = checkListener(room, options);
    this.#protocol = new ListenerProtocol({ ...checked, random: Math.random });
    this.#state = this.#protocol.state;
    this.#channel = new Channel({
      protocol: this.#protocol,
      addresses: parseOrigins(room.url).map(
        (origin) => `${origin.replace(/^http/, "ws")}/v1/listen`,
      ),
      token: new TokenSource(room.token),
      webSocket: checked.webSocket,
      encode: (message) => JSON.stringify(message),
      sorting: SORTING,
    });
  }

  /** Joins a room: see `Room.listen`. */
  static async join(room: RoomOptions, options: ListenOptions): Promise<Listener> {
    const listener = new Listener(room, options);
    listener.#channel.start();
    await listener.#channel.until(() => listener.#state.isKnown);
    return listener;
  }

  // ---- receiving ----

  /**
   * Everything that happens, in order, to the end. An unread status is replaced by the next one;
   * nothing else is dropped, unless `results()` is read and this is not: then only the newest events
   * are kept. Throws ListenerLostError after the last event of a listener that was lost.
   */
  events(): AsyncIterableIterator<RoomEvent, undefined> {
    return this.#channel.events();
  }

  /**
   * What was said and not said only: each utterance once, in order, until the listener leaves or the
   * room is closed. They are kept until they are read, even if `events()`, which also has them, is
   * read too. Throws ListenerLostError after the last one of a listener that was lost.
   */
  results(): AsyncIterableIterator<Heard, undefined> {
    return this.#channel.results();
  }

  // ---- changing and leaving ----

  /**
   * Receives something else, from the next utterance on; what is not named stays as it is. Returns
   * when the server has confirmed it, or when a later change replaces it.
   *
   * Throws RoomRefusedError if the server refuses the change: then everything stays as it was.
   */
  async change(options: Partial<Listening>): Promise<void> {
    const state = this.#state;
    this.#channel.checkFailure();
    const wanted = checkListening({ ...state.wanted, ...options });
    state.change(wanted);
    this.#channel.wake();
    const isReplaced = (): boolean => state.changeError === null && !isSame(state.wanted, wanted);
    await this.#channel.until(() => state.isSettled || isReplaced());
    const error = state.changeError;
    if (error !== null) {
      throw new RoomRefusedError(error.reason, error.message, error.fieldViolations);
    }
  }

  /** Leaves the room. What has arrived can still be read. */
  async leave(): Promise<void> {
    if (!this.#channel.done) {
      const isConnected = this.#protocol.opened;
      this.#channel.carryOut(this.#protocol.leave());
      if (!isConnected) {
        this.#channel.stop();
      }
    }
    await this.#channel.until(() => false);
  }

  /** Drops the connection at once. The room notices that later than if the listener leaves. */
  abort(): void {
    this.#channel.abort("ABORTED", "the app dropped the listener");
  }

  // ---- properties ----

  /** The room as it was when the listener last joined it. */
  get room(): RoomInfo | null {
    return this.#state.room;
  }

  /** What it receives. */
  get listening(): Listening {
    return this.#state.confirmed;
  }

  /** The first room index that it has not seen, or gets live. */
  get position(): number {
    return this.#state.chain.position;
  }

  /** Its id among the members of the room. */
  get memberId(): string {
    return this.#state.memberId;
  }

  /** Whether it is connected to a gateway now. */
  get connected(): boolean {
    return this.#protocol.opened && !this.#channel.done;
  }

  /** Whether it has left, the room was closed, or it was lost. */
  get ended(): boolean {
    return this.#channel.done;
  }

  /** Whether the room was closed. */
  get roomClosed(): boolean {
    return this.#state.isRoomClosed;
  }

  /** Totals so far. */
  get counts(): ListenerCounts {
    return this.#state.counts;
  }
}
