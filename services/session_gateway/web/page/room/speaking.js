// @ts-check
/** The session with which this tab speaks to the room. */

import { announce, problemOf } from "../app/sessions.js";

/** @import { Room, Session } from "../app/sdk.js" */
/** @import { Take } from "../app/talking.js" */
/** @import { RoomStore } from "./types.js" */

export class Speaking {
  #store;
  /** @type {Take | null} */
  #current = null;
  #count = 0;

  /** @param {RoomStore} store */
  constructor(store) {
    this.#store = store;
  }

  /**
   * Opens a session, so that the room knows who speaks which language. Returns when it is open. Throws
   * SessionError.
   *
   * @param {Room} room
   * @param {{ language: string, name: string }} who
   */
  async open(room, who) {
    this.close();
    this.#count += 1;
    const opening = room.speak(who);
    const take = {
      number: this.#count,
      languages: { a: who.language, b: "" },
      directionOf: () => undefined,
      opening,
    };
    this.#current = take;
    this.#store.dispatch({ type: "speaking", connection: "connecting", sessionId: "" });
    const session = await opening;
    const { sessionId } = session;
    this.#store.dispatch({ type: "speaking", connection: "connected", sessionId });
    void this.#read(take, session);
  }

  // ---- for Talking ----

  get isReady() {
    return this.#current !== null;
  }

  /** @returns {Take} */
  begin() {
    if (this.#current === null) {
      throw new Error("nobody speaks here");
    }
    return this.#current;
  }

  /** Nothing to do: the session lasts as long as this tab is in the room. */
  done() {}

  touch() {}

  /** Ends the session; what was said is translated. */
  close() {
    const current = this.#current;
    this.#current = null;
    current?.opening.then((session) => session.close()).catch(() => undefined);
  }

  /**
   * @param {Take} take
   * @param {Session} session
   */
  async #read(take, session) {
    const { sessionId } = session;
    try {
      for await (const event of session.events()) {
        announce("event", { ...event, sessionId });
        this.#store.dispatch({ type: "session-event", event });
      }
    } catch (error) {
      if (this.#current === take) {
        this.#lost(error);
      }
    }
    if (this.#current === take) {
      this.#current = null;
    }
  }

  /** @param {unknown} error */
  #lost(error) {
    const problem = problemOf(error);
    this.#store.dispatch({ type: "speaking", connection: "lost", sessionId: "" });
    // Listeners are told as well, and better.
    if (problem.reason !== "ROOM_CLOSED") {
      this.#store.dispatch({ type: "problem", problem });
    }
  }
}
