// @ts-check
/**
 * What the page remembers: choices in the browser, and in this tab the token of its room, so that it
 * can be loaded again. Nothing that was said is stored.
 */

import { chosenInterface, codeOf, readChoices, writeChoices } from "../app/choices.js";

/** @import { Invitation, State } from "./types.js" */

const CHOICES = "lingua.room";
const MEMBERSHIP = "lingua.room.";

/** @returns {Partial<State>} */
export function storedChoices() {
  const stored = readChoices(CHOICES);
  return {
    interface: chosenInterface(stored.interface),
    language: codeOf(stored.language),
    name: typeof stored.name === "string" ? stored.name.slice(0, 64) : "",
    sound: stored.sound === true,
    handsFree: stored.handsFree === true,
  };
}

/** @param {State} state */
export function storeChoices({ interface: shown, language, name, sound, handsFree }) {
  writeChoices(CHOICES, { interface: shown, language, name, sound, handsFree });
}

/**
 * @typedef {object} Membership
 * @property {Invitation} invitation
 * @property {"" | "speaker" | "listener"} inside as what this tab was in the room; "" if it was not.
 */

/**
 * @param {string} roomId
 * @returns {Membership | null}
 */
export function membershipOf(roomId) {
  try {
    /** @type {unknown} */
    const read = JSON.parse(sessionStorage.getItem(MEMBERSHIP + roomId) ?? "null");
    const { token, role, inside } = /** @type {Record<string, unknown>} */ (read);
    if (typeof token !== "string") {
      return null;
    }
    return {
      invitation: {
        roomId,
        token,
        role: role === "host" || role === "speaker" ? role : "listener",
      },
      inside: inside === "speaker" || inside === "listener" ? inside : "",
    };
  } catch {
    // Nothing is kept, or it is damaged.
    return null;
  }
}

/** @param {Membership} membership */
export function keepMembership({ invitation: { roomId, token, role }, inside }) {
  try {
    sessionStorage.setItem(MEMBERSHIP + roomId, JSON.stringify({ token, role, inside }));
  } catch {
    // The browser keeps nothing for this page: the token lasts until it is loaded again.
  }
}

/** @param {string} roomId */
export function forgetMembership(roomId) {
  try {
    sessionStorage.removeItem(MEMBERSHIP + roomId);
  } catch {
    // Nothing was kept.
  }
}
