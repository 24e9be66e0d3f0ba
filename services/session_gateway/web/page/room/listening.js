// @ts-check
/** The listener of this tab: what is said in the room, and who is there. */

import { announce, problemOf } from "../app/sessions.js";

/** @import { Listener, Room, RoomEvent, Speech } from "../app/sdk.js" */
/** @import { RoomStore } from "./types.js" */

/**
 * @typedef {object} Wanted
 * @property {string} language
 * @property {boolean} speech
 * @property {string} name for the roster.
 */

export class Listening {
  #store;
  #onSpeech;
  /** @type {Listener | null} */
  #listener = null;

  /**
   * @param {RoomStore} store
   * @param {(key: string, speech: Speech) => void} onSpeech is called with audio that can be played.
   */
  constructor(store, onSpeech) {
    this.#store = store;
    this.#onSpeech = onSpeech;
  }

  /**
   * Joins the room. Returns when the listener is in it. Throws RoomError.
   *
   * @param {Room} room
   * @param {Wanted} wanted
   */
  async join(room, wanted) {
    this.leave();
    this.#store.dispatch({ type: "listening", connection: "connecting" });
    const listener = await room.listen({ ...wanted, status: true });
    this.#listener = listener;
    if (listener.room !== null) {
      this.#store.dispatch({ type: "described", room: listener.room });
    }
    this.#store.dispatch({ type: "listening", connection: "connected" });
    void this.#read(listener);
  }

  /**
   * Throws RoomRefusedError if the room does not allow it.
   *
   * @param {Partial<Wanted>} wanted
   */
  async change(wanted) {
    await this.#listener?.change(wanted);
  }

  leave() {
    const listener = this.#listener;
    this.#listener = null;
    listener?.leave().catch(() => undefined);
  }

  /** @param {Listener} listener */
  async #read(listener) {
    try {
      for await (const event of listener.events()) {
        if (this.#listener === listener) {
          this.#take(event);
        }
      }
    } catch (error) {
      if (this.#listener === listener) {
        this.#store.dispatch({ type: "listening", connection: "lost" });
        this.#store.dispatch({ type: "problem", problem: problemOf(error) });
      }
    }
  }

  /** @param {RoomEvent} event */
  #take(event) {
    announce("room", withoutAudio(event));
    this.#store.dispatch({ type: "room-event", event });
    if (event.type === "said" && event.kind === "TRANSLATED") {
      const { speech, speechFormat, originalAudio, originalFormat } = event;
      if (speech.length > 0) {
        this.#onSpeech(`r${event.roomIndex}`, { speech, speechFormat });
      } else if (originalAudio.length > 0) {
        const own = { speech: originalAudio, speechFormat: originalFormat };
        this.#onSpeech(`r${event.roomIndex}`, own);
      }
    }
  }
}

/** @param {RoomEvent} event */
function withoutAudio(event) {
  if (event.type !== "said") {
    return event;
  }
  const { speech, originalAudio, ...rest } = event;
  return { ...rest, speechBytes: speech.length, originalBytes: originalAudio.length };
}
