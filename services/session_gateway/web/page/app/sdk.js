// @ts-check
/** The JavaScript SDK, with its types. */

import * as bundle from "../lingua/lingua.js";

/** @typedef {typeof import("../../../../../sdk/js/src/index.js")} Sdk */
/** @typedef {import("../../../../../sdk/js/src/index.js").Session} Session */
/** @typedef {import("../../../../../sdk/js/src/index.js").Microphone} Microphone */
/** @typedef {import("../../../../../sdk/js/src/index.js").Recording} Recording */
/** @typedef {import("../../../../../sdk/js/src/index.js").RecordedBlock} RecordedBlock */
/** @typedef {import("../../../../../sdk/js/src/index.js").Player} Player */
/** @typedef {import("../../../../../sdk/js/src/index.js").Result} Result */

export const { Microphone, Player, Session, SessionRefusedError, offeredDirections } =
  /** @type {Sdk} */ (/** @type {unknown} */ (bundle));
