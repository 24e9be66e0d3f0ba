// @ts-check
/** How this tab comes into a room: by making one, by a link, or because it was in it before. */

import { Room } from "../app/sdk.js";
import { problemOf } from "../app/sessions.js";
import { invitationIn, linkTo, PATH } from "./link.js";
import { forgetMembership, keepMembership, membershipOf, storeChoices } from "./memory.js";

/** @import { Room as RoomOfSdk } from "../app/sdk.js" */
/** @import { TokenKeeper } from "../app/token.js" */
/** @import { Listening } from "./listening.js" */
/** @import { Speaking } from "./speaking.js" */
/** @import { Invitation, RoomStore } from "./types.js" */

/** How old the description of a room may be before it is entered. */
const DESCRIBE_MS = 5_000;

/** Reasons for which the link is of no use. Others may pass. */
const FINAL = new Set(["ROOM_NOT_FOUND", "ROOM_CLOSED", "UNAUTHENTICATED", "PERMISSION_DENIED"]);

/**
 * Reads the room of the address, and removes the token from it: it would end up in the history, and
 * everybody who sees the screen could read it. This tab keeps it.
 *
 * @returns {Invitation | null}
 */
export function readAddress() {
  const found = invitationIn(location.hash);
  if (found === null) {
    return null;
  }
  history.replaceState(null, "", `${PATH}#room=${found.roomId}`);
  const kept = membershipOf(found.roomId);
  if (found.token !== "" && found.token !== kept?.invitation.token) {
    keepMembership({ invitation: found, inside: "" });
    return found;
  }
  return kept?.invitation ?? found;
}

export class Entrance {
  #store;
  #token;
  #listening;
  #speaking;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #describing;

  /**
   * @param {RoomStore} store
   * @param {TokenKeeper} token with which a room is made, if the service wants one.
   * @param {Listening} listening
   * @param {Speaking} speaking
   */
  constructor(store, token, listening, speaking) {
    this.#store = store;
    this.#token = token;
    this.#listening = listening;
    this.#speaking = speaking;
  }

  get #invitation() {
    return this.#store.state.invitation;
  }

  /** @returns {RoomOfSdk} the room of this tab. */
  get room() {
    const { roomId, token } = this.#invitation ?? { roomId: "", token: "" };
    return new Room({ url: location.origin, roomId, token });
  }

  /**
   * Shows the room that somebody is invited to, and enters it if this tab was in it before.
   *
   * @param {Invitation | null} invited
   */
  begin(invited) {
    this.#store.dispatch({ type: "invited", invitation: invited });
    clearInterval(this.#describing);
    if (invited === null || invited.token === "") {
      return;
    }
    this.#describing = setInterval(() => void this.#describe(), DESCRIBE_MS);
    const inside = membershipOf(invited.roomId)?.inside ?? "";
    if (inside === "") {
      void this.#describe();
    } else {
      void this.enter(inside === "speaker");
    }
  }

  /** Asks what the room is called, and who is there, as long as it is not entered. */
  async #describe() {
    const { view, refusal, busy } = this.#store.state;
    if (view !== "lobby" || busy || document.hidden || FINAL.has(refusal)) {
      return;
    }
    const { roomId } = this.#invitation ?? {};
    try {
      const room = await this.room.get();
      if (this.#invitation?.roomId === roomId && this.#store.state.view === "lobby") {
        this.#store.dispatch({ type: "described", room });
      }
    } catch (error) {
      if (this.#invitation?.roomId === roomId) {
        this.#refuse(error);
      }
    }
  }

  /** @param {unknown} error */
  #refuse(error) {
    const problem = problemOf(error);
    if (FINAL.has(problem.reason)) {
      this.#store.dispatch({ type: "refused", reason: problem.reason });
    } else {
      this.#store.dispatch({ type: "problem", problem });
    }
  }

  /**
   * Makes a room, and enters it as its host.
   *
   * @param {string} roomName
   */
  async create(roomName) {
    this.#token.remind();
    this.#store.dispatch({ type: "busy", on: true });
    storeChoices(this.#store.state);
    try {
      const token = this.#token.current;
      const asked = { url: location.origin, name: roomName.trim().slice(0, 100) };
      const room = await Room.create(token === "" ? asked : { ...asked, token });
      const { roomId } = room;
      /** @type {Invitation} */
      const invitation = { roomId, token: room.token, role: "host" };
      keepMembership({ invitation, inside: "speaker" });
      history.replaceState(null, "", `${PATH}#room=${roomId}`);
      this.begin(invitation);
    } catch (error) {
      const problem = problemOf(error);
      this.#store.dispatch({ type: "problem", problem });
      if (problem.reason === "UNAUTHENTICATED" || problem.reason === "PERMISSION_DENIED") {
        void this.#token.ask();
      }
    }
  }

  /**
   * Enters the room, to speak or only to listen.
   *
   * @param {boolean} speaks
   */
  async enter(speaks) {
    const { name, language, sound } = this.#store.state;
    const invitation = this.#invitation;
    this.#store.dispatch({ type: "busy", on: true });
    storeChoices(this.#store.state);
    try {
      const speech = sound && !speaks;
      await this.#listening.join(this.room, { language, speech, name });
      if (speaks) {
        await this.#speaking.open(this.room, { language, name });
      }
      if (invitation === null || this.#invitation !== invitation) {
        return;
      }
      clearInterval(this.#describing);
      keepMembership({ invitation, inside: speaks ? "speaker" : "listener" });
      this.#store.dispatch({ type: "entered", speaks });
      void this.#makeLinks();
    } catch (error) {
      this.#listening.leave();
      this.#speaking.close();
      this.#store.dispatch({ type: "listening", connection: "idle" });
      this.#refuse(error);
    }
  }

  /** Links for others. Only the host can make them. */
  async #makeLinks() {
    const invitation = this.#invitation;
    if (invitation?.role !== "host") {
      return;
    }
    try {
      const make = async (/** @type {"listener" | "speaker"} */ role) => {
        const { token } = await this.room.joinToken({ role });
        return linkTo(location.origin, { roomId: invitation.roomId, token }, role);
      };
      const [listener, speaker] = await Promise.all([make("listener"), make("speaker")]);
      this.#store.dispatch({ type: "links", links: { listener, speaker } });
    } catch (error) {
      this.#store.dispatch({ type: "problem", problem: problemOf(error) });
    }
  }

  /** Forgets the room. */
  forget() {
    forgetMembership(this.#invitation?.roomId ?? "");
    history.replaceState(null, "", PATH);
    this.begin(null);
  }
}
