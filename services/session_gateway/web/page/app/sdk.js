// @ts-check
/** The JavaScript SDK, with its types. */

import * as bundle from "../lingua/lingua.js";

/** @typedef {typeof import("../../../../../sdk/js/src/index.js")} Sdk */
/** @typedef {import("../../../../../sdk/js/src/index.js").Session} Session */
/** @typedef {import("../../../../../sdk/js/src/index.js").Microphone} Microphone */
/** @typedef {import("../../../../../sdk/js/src/index.js").Recording} Recording */
/** @typedef {import("../../../../../sdk/js/src/index.js").RecordedBlock} RecordedBlock */
/** @typedef {import("../../../../../sdk/js/src/index.js").Player} Player */
/** @typedef {import("../../../../../sdk/js/src/index.js").Speech} Speech */
/** @typedef {import("../../../../../sdk/js/src/index.js").Result} Result */
/** @typedef {import("../../../../../sdk/js/src/index.js").Direction} Direction */
/** @typedef {import("../../../../../sdk/js/src/index.js").Room} Room */
/** @typedef {import("../../../../../sdk/js/src/index.js").Listener} Listener */
/** @typedef {import("../../../../../sdk/js/src/index.js").RoomEvent} RoomEvent */

export const { Microphone, Player, Room, Session, SessionRefusedError, offeredDirections } =
  /** @type {Sdk} */ (/** @type {unknown} */ (bundle));
