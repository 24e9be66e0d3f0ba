// @ts-check
/** Where the modules of the room page are, and things to test them with. */

/** @import { RoomInfo } from "../../../../services/session_gateway/web/page/room/types.js" */

/**
 * @param {number} roomIndex
 * @param {Partial<import("../../src/index.js").Said>} [more]
 * @returns {import("../../src/index.js").Said}
 */
export function said(roomIndex, more = {}) {
  return {
    type: "said",
    roomIndex,
    language: "es",
    spokenLanguage: "en",
    sessionId: "s-1",
    speaker: "Ana",
    kind: "TRANSLATED",
    texts: { source: "hello", repaired: "Hello.", translated: "Hola." },
    text: "Hola.",
    speech: new Uint8Array(),
    speechFormat: null,
    originalAudio: new Uint8Array(),
    originalFormat: null,
    joined: [],
    lost: [],
    turnBroken: false,
    replayed: false,
    cutAtMs: 0,
    audioMs: 0,
    publishedMs: 0,
    ...more,
  };
}

/**
 * @param {number} roomIndex
 * @param {Partial<import("../../src/index.js").NotSaid>} [more]
 * @returns {import("../../src/index.js").NotSaid}
 */
export function notSaid(roomIndex, more = {}) {
  return {
    type: "not-said",
    roomIndex,
    untilIndex: roomIndex + 1,
    language: "es",
    spokenLanguage: "en",
    sessionId: "s-1",
    speaker: "Ana",
    reason: "JOB_TIMEOUT",
    message: "",
    lost: [],
    replayed: false,
    ...more,
  };
}

/**
 * @param {Partial<RoomInfo>} [more]
 * @returns {RoomInfo}
 */
export function room(more = {}) {
  return {
    roomId: "r-1",
    tenant: "",
    name: "Tour",
    allowedLanguages: [],
    speak: "invited",
    maxMembers: 0,
    maxSpeakers: 0,
    maxLanguages: 0,
    createdMs: 0,
    nextIndex: 0,
    listeners: 0,
    languages: [],
    speakers: [],
    ...more,
  };
}

/**
 * @param {string} language
 * @param {number} listeners
 */
export function listened(language, listeners) {
  return { language, listeners, speechListeners: 0, waiting: 0, oldestWaitingMs: 0 };
}

/** @param {string} language */
export function speaker(language) {
  return { sessionId: `s-${language}`, name: "", language, joinedMs: 0 };
}
